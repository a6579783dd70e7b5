"""The first failure, with real ranks: the rank that caused it is reported before the others."""

from __future__ import annotations

import pytest
from launcher import Jobs
from training import train

pytest.importorskip("horovod._core")


def test_all_ranks_end_well(jobs: Jobs) -> None:
    result = train(jobs, "pass")
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out_lines) == [f"[{rank}]<stdout>:end" for rank in range(4)]


@pytest.mark.parametrize(
    ("deed", "code", "announced"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
        ("raise RuntimeError('bad luck')", 1, "exited with code 1"),
        ("sys.exit(5)", 5, "exited with code 5"),
        ("os._exit(6)", 6, "exited with code 6"),
    ],
)
def test_the_culprit_is_named_before_what_follows_from_it(
    jobs: Jobs, deed: str, code: int, announced: str
) -> None:
    result = train(jobs, deed)
    assert result.code == code
    assert result.said[0].startswith(f"rank 1 {announced}; ")
    consequences = [line for line in result.said if "as a consequence of rank 1" in line]
    assert len(consequences) == 3
    lines = result.err.splitlines()
    first_word_of_others = next(
        index
        for index, line in enumerate(lines)
        if line.startswith("[") and not line.startswith("[1]")
    )
    assert lines.index("horovodrun: " + result.said[0]) < first_word_of_others


def test_a_rank_that_leaves_early_and_well_is_named_by_the_others(jobs: Jobs) -> None:
    result = train(jobs, "os._exit(0)")
    assert result.code == 1
    assert "it reported rank 1 as the cause" in result.said[0]
