"""Hosts that are cut off without a reset of their connections, as by a switch that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import Cluster, hosts
from launcher import ended, wait_until
from test_silent_ranks import BEAT, LARGE, SMALL, training

pytest.importorskip("horovod._core")

COUNT = 2


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_both_sides_of_a_cut_give_up_the_other_one(
    cluster: Cluster, tmp_path: Path, count: int
) -> None:
    command = training(tmp_path, "pass", count)
    process = cluster.start("-np", "4", "-H", hosts(2, 2), *BEAT, *command, cwd=tmp_path)
    errors = [tmp_path / f"{rank}.error" for rank in range(4)]
    steps = tmp_path / "3.steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size > 0, "a step")
    cluster.cut(2)
    try:
        wait_until(lambda: all(error.exists() for error in errors), "the error on all ranks")
    finally:
        cluster.cut(2, off=False)
    assert ended(process).code != 0
    for rank, lost in ((0, 2), (1, 2), (2, 0), (3, 0)):
        text = errors[rank].read_text()
        assert text.startswith('allreduce "x'), text
        assert f"rank {lost} is lost: its process on host 10.77.1.{1 + lost // 2} has sent" in text
        assert "for 2 s: it is stopped, or its host or network is down; rank " in text
