"""Hosts that are cut off without a reset of their connections, as by a switch that fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster import Cluster, hosts, shell
from elastic_training import entries
from elastic_training import training as elastic_training
from launcher import ended, wait_until
from test_silent_ranks import BEAT, LARGE, SMALL, training
from test_stopped_in_init import WHY, script

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


#: Each rank writes its step to a file, which is never seen empty, and its errors, which do not
#: reach a launcher that is cut off.
STEPS = """
with open(f"{os.getpid()}.part", "w") as part:
    part.write(f"{generation} {step}")
os.replace(part.name, f"{os.getpid()}.step")
"""
WITH_ERRORS_IN_FILES = 'exec "$@" 2>$$.errors\n'


def steps(folder: Path) -> dict[int, tuple[int, int]]:
    """The generation and the step of each process."""
    texts = {int(path.stem): path.read_text().split() for path in folder.glob("*.step")}
    return {pid: (int(words[0]), int(words[1])) for pid, words in texts.items() if len(words) == 2}


@pytest.mark.parametrize("slots", [(2, 1), (2, 2)])
def test_an_elastic_job_goes_on_where_its_launcher_is(
    cluster: Cluster, tmp_path: Path, slots: tuple[int, int]
) -> None:
    """The ranks that are cut off from it end and say why, while the network is still down."""
    over = "os.path.exists('healed')"
    command = [shell(tmp_path, WITH_ERRORS_IN_FILES), *elastic_training(tmp_path, STEPS, over)]
    on = ("-np", str(sum(slots)), "--min-np", "2", "-H", hosts(*slots))
    process = cluster.start(*on, *BEAT, "--survivor-timeout", "1000", *command, cwd=tmp_path)
    wait_until(
        lambda: sum(step > 10 for _, step in steps(tmp_path).values()) == sum(slots), "steps"
    )
    there = sorted(cluster.processes(2) & steps(tmp_path).keys())
    cluster.cut(2)
    try:
        wait_until(
            lambda: not cluster.processes(2) & set(there), "the end of ranks without launcher"
        )
        here = [pid for pid in steps(tmp_path) if pid not in there]
        at = max(step for _, step in steps(tmp_path).values())
        wait_until(
            lambda: all(steps(tmp_path).get(pid, (0, 0)) > (0, at + 10) for pid in here),
            "steps of the others",
        )
        assert len(there) == slots[1] and len(here) == 2
    finally:
        cluster.cut(2, off=False)
    (tmp_path / "healed").touch()
    result = ended(process)
    assert result.code == 0, result.err
    assert {entry.pid for entry in entries(result)[1].values()} == set(here)
    for pid in there:
        text = (tmp_path / f"{pid}.errors").read_text()
        silent = r"the store of this job, at 10\.77\.1\.1:\d+, does not answer"
        unreachable = rf"cannot connect to 10\.77\.1\.1:.*|{silent}"
        why = rf"the launcher of this elastic job cannot be reached any more \(({unreachable})\): "
        assert re.search(f"HorovodInternalError: {why}if horovodrun still runs, the job", text), (
            text
        )


def test_a_rank_on_another_host_that_is_stopped_before_init_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    command = script(tmp_path, "if rank == 3: stop()")
    result = ended(cluster.start("-np", "4", "-H", hosts(2, 2), *command, cwd=tmp_path))
    assert result.code == 1
    assert result.out.count(f"rank 3 on host 10.77.1.2 is lost: {WHY}") == 3
    assert result.said[0] == f"rank 3 on 10.77.1.2 was given up: {WHY}"
