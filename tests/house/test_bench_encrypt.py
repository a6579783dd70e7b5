"""The bench of encrypted connections: its rows and its table."""

from __future__ import annotations

import encrypt
from encrypt import PLAIN, SIZES
from harness import results
from harness.results import Work, verdicts


def test_each_size_has_a_row_with_and_one_without() -> None:
    measured = {
        results.OURS: [dict.fromkeys(SIZES, us) for us in (30.0, 20.0, 40.0)],
        PLAIN: [dict.fromkeys(SIZES, us) for us in (10.0, 12.0, 11.0)],
    }
    rows = encrypt.rows_of(2, measured)
    assert {(row["peer"], row["bytes"]) for row in rows} == {
        (peer, size) for peer in measured for size in SIZES
    }
    assert {Work.of(row) for row in rows} == {Work("tcp", "allreduce", "encrypted", 2)}
    assert rows[0]["rounds"] == {"1": 30.0, "2": 20.0, "3": 40.0}
    assert "| 64 MiB | 30 us | 11 us | 2.73 |" in encrypt.table(rows)
    judged = verdicts(rows)
    assert all(one.ratio is None for one in judged.values()), "it is compared with no peer"
