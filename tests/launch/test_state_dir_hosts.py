"""--state-dir and preemption on several hosts: namespaces with a real sshd each."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cluster import Cluster, hosts
from launcher import ended, pids_in, wait_gone
from state_training import (
    SELDOM,
    committed_step,
    counting,
    entries,
    expect_goes_on,
    parts_of_newest,
    training,
    written_step,
)

pytest.importorskip("horovod._core")

COUNT = 2
TELL = "if state.step == 10: tell_pid()"


def agent_on(cluster: Cluster, host: int) -> int:
    """The process that the launcher has started there by ssh."""
    for pid in cluster.processes(host):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if b"--agent" in command and name != "hvd-supervisor" and b"horovodrun" in command[0]:
            return pid
    raise AssertionError(f"no agent on host {host}")


def test_if_the_launcher_is_killed_all_hosts_write_their_state(
    cluster: Cluster, tmp_path: Path
) -> None:
    command = training(tmp_path, TELL, "False")
    flags = ("--state-dir", "state", *SELDOM, "--grace-seconds", "50", "-H", hosts(1, 2))
    process = cluster.start("-np", "3", *flags, *command, cwd=tmp_path)
    pids = pids_in(tmp_path, 3)
    process.kill()
    wait_gone(pids)
    assert written_step(tmp_path / "state") >= 10
    assert parts_of_newest(tmp_path / "state") == 3
    cluster.end_and_look()


def test_if_the_launchers_host_is_lost_with_its_ranks_the_others_write_the_last_commit(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each of the others alone, and a job of another size goes on from it."""
    flags = ("--min-np", "1", "--state-dir", "state", *SELDOM, "--grace-seconds", "50")
    command = counting(tmp_path, 0.02)
    cluster.start("-np", "4", *flags, "-H", hosts(2, 2), *command, cwd=tmp_path)
    pids = pids_in(tmp_path, 4)
    far = [int((tmp_path / f"{rank}.pid").read_text()) for rank in (2, 3)]
    cluster.kill_all(1)
    wait_gone(pids)
    step = max(committed_step(tmp_path, pid) for pid in far)
    assert step >= 10 and step <= written_step(tmp_path / "state") <= step + 1
    assert parts_of_newest(tmp_path / "state") == 1
    command = counting(tmp_path, 0)
    again = cluster.run("-np", "3", *flags, "-H", hosts(2, 1), *command, cwd=tmp_path)
    assert again.code == 0, again.err
    expect_goes_on(tmp_path, again.out, step, ranks=3)


def test_a_host_that_is_told_to_end_leaves_at_a_commit(cluster: Cluster, tmp_path: Path) -> None:
    command = training(tmp_path, TELL, "generation >= 1 and state.step >= 200")
    flags = ("--min-np", "1", "--grace-seconds", "50", "-H", hosts(2, 2))
    process = cluster.start("-np", "4", *flags, *command, cwd=tmp_path)
    pids = pids_in(tmp_path, 4)
    os.kill(agent_on(cluster, 2), signal.SIGTERM)
    result = ended(process)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err  # nobody was lost in the middle of a step
    found = entries(result.out)
    newest = max(one.generation for one in found)
    first = {one.rank: one.pid for one in found if one.generation == 0}
    last = {one.rank: one.pid for one in found if one.generation == newest}
    assert sorted(first.values()) == sorted(pids)
    assert {first[0], first[1]} <= set(last.values())
    assert not {first[2], first[3]} & set(last.values())
    assert min(one.step for one in found if one.generation == 1) > 10
