"""Elastic jobs on several hosts: namespaces with a real sshd each, as cluster.py makes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster import Cluster, address, hosts, shell
from elastic_training import entries, training
from launcher import ended, wait_until

pytest.importorskip("horovod._core")

COUNT = 3
KILL_ONE = "if (generation, rank, step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"


def test_a_lost_rank_costs_only_its_slot(cluster: Cluster, tmp_path: Path) -> None:
    command = training(tmp_path, KILL_ONE, "generation >= 2")
    result = cluster.run("-np", "4", "--min-np", "2", "-H", hosts(2, 2), *command, cwd=tmp_path)
    assert result.code == 0, result.err
    found = entries(result)
    survivors = [found[0][rank].pid for rank in (0, 2, 3)]
    assert [found[1][rank].pid for rank in range(3)] == survivors
    assert [found[1][rank].local for rank in range(3)] == ["0/1", "0/2", "1/2"]
    assert {entry.pid for entry in found[2].values()} > set(survivors)
    assert [found[2][rank].local for rank in range(4)] == ["0/2", "1/2", "0/2", "1/2"]


def test_a_replacement_is_started_on_another_host(cluster: Cluster, tmp_path: Path) -> None:
    deed = KILL_ONE.replace("(0, 1, 10)", "(0, 3, 10)")
    command = training(tmp_path, deed, "generation >= 2")
    on = hosts(2, 2)
    result = cluster.run("-np", "4", "--min-np", "2", "-H", on, *command, cwd=tmp_path)
    assert result.code == 0, result.err
    found = entries(result)
    assert [found[1][rank].pid for rank in range(3)] == [found[0][rank].pid for rank in range(3)]
    assert len(found[2]) == 4


def test_a_lost_host_is_left_behind(cluster: Cluster, tmp_path: Path) -> None:
    deed = "if rank == size - 1 and generation == 0 and step == 10: open('ready', 'w').close()"
    command = training(tmp_path, deed, "generation >= 1 and step >= 30")
    process = cluster.start("-np", "4", "--min-np", "2", "-H", hosts(2, 2), *command, cwd=tmp_path)
    wait_until((tmp_path / "ready").exists, "step 10")
    cluster.kill_all(2)
    result = ended(process)
    assert result.code == 0, result.err
    assert any(line.startswith(f"{address(2)} was lost with ranks 2, 3") for line in result.said)
    found = entries(result)
    last = found[max(found)]
    assert [entry.pid for _, entry in sorted(last.items())] == [found[0][0].pid, found[0][1].pid]


def test_the_host_of_the_new_rank_0_is_the_master(cluster: Cluster, tmp_path: Path) -> None:
    """Torch's process groups of a generation meet there."""
    deed = """
if rank == 0 and step % 10 == 0:
    print(f"master={generation}/{os.environ['MASTER_ADDR']}", flush=True)
if rank == 0 and generation == 0 and step == 10: open('ready', 'w').close()
"""
    command = training(tmp_path, deed, "generation >= 1 and step >= 30")
    on = f"{address(2)}:2,{address(3)}:2"
    process = cluster.start("-np", "4", "--min-np", "2", "-H", on, *command, cwd=tmp_path)
    wait_until((tmp_path / "ready").exists, "step 10")
    cluster.kill_all(2)
    result = ended(process)
    assert result.code == 0, result.err
    masters = dict(re.findall(r"master=(\d+)/(\S+)", result.out))
    assert masters.pop("0") == address(2) and set(masters.values()) == {address(3)}


def test_a_host_is_dropped_after_two_failures_there(cluster: Cluster, tmp_path: Path) -> None:
    """It has one of the job's ranks, and a free slot for a third one."""
    deed = """
if size == 3 and rank == 2 and step >= 10:
    open('failed', 'a').write('.')
    raise RuntimeError("a broken GPU")
if size == 2 and rank == 0 and os.path.exists('failed') and len(open('failed').read()) == 2:
    began = globals().get('began') or time.monotonic()
"""
    over = (
        "globals().get('began') and time.monotonic() > began + 1.5"  # a new one would join by then
    )
    command = training(tmp_path, deed, over)
    result = cluster.run("-np", "3", "--min-np", "2", "-H", hosts(2, 2), *command, cwd=tmp_path)
    assert result.code == 0, result.err
    found = entries(result)
    first = {entry.pid for entry in found[0].values()}
    pids = {entry.pid for ranks in found.values() for entry in ranks.values()}
    assert len(pids - first) == 1, "one replacement, and no third process"
    dropped = f"no more workers are started on {address(2)}: 2 workers failed or left there"
    assert result.said.count(dropped) == 1
    assert result.err.count("RuntimeError: a broken GPU") == 2
    assert {found[max(found)][rank].pid for rank in (0, 1)} == {found[0][0].pid, found[0][1].pid}


def test_a_job_starts_without_a_host_that_cannot_be_reached(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It would have had rank 0, which reads the input. The local host has none."""
    listed = f"{address(2)}:1,{address(3)}:2"
    text = "echo rank=$HOROVOD_RANK size=$HOROVOD_SIZE on $HOROVOD_HOSTNAME; cat"
    command = shell(tmp_path, text)
    (tmp_path / "input").write_text("for rank 0\n")
    cluster.stop_sshd(2)
    try:
        with (tmp_path / "input").open("rb") as stdin:
            flags = ("-np", "3", "--min-np", "2", "-H", listed)
            result = ended(cluster.start(*flags, command, cwd=tmp_path, stdin=stdin))
    finally:
        cluster.start_sshd(2)
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == [
        "[0]<stdout>:for rank 0",
        f"[0]<stdout>:rank=0 size=2 on {address(3)}",
        f"[1]<stdout>:rank=1 size=2 on {address(3)}",
    ]
    (refused,) = [line for line in result.said if line.startswith(f"{address(2)} is not used: ")]
    assert "Connection refused" in refused
    assert "the job starts with 2 of 3 ranks" in result.said


def test_a_job_does_not_start_with_fewer_ranks_than_its_minimum(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.stop_sshd(3)
    try:
        flags = ("-np", "3", "--min-np", "3", "-H", hosts(1, 1, 1))
        result = cluster.run(*flags, "touch", "started", cwd=tmp_path)
    finally:
        cluster.start_sshd(3)
    assert result.code == 1
    assert "the job was not started: 1 of 3 hosts is not ready" in result.said
    assert not (tmp_path / "started").exists()


def test_a_lost_host_is_connected_to_again_after_its_cooldown(
    cluster: Cluster, tmp_path: Path
) -> None:
    deed = "if rank == size - 1 and generation == 0 and step == 10: open('ready', 'w').close()"
    command = training(tmp_path, deed, "generation >= 2 and size == 4")
    flags = ("-np", "4", "--min-np", "2", "-H", hosts(2, 2), "--blacklist-cooldown-range", "1", "2")
    process = cluster.start(*flags, *command, cwd=tmp_path)
    wait_until((tmp_path / "ready").exists, "step 10")
    cluster.kill_all(2)
    result = ended(process)
    assert result.code == 0, result.err
    found = entries(result)
    assert [found[1][rank].pid for rank in range(2)] == [found[0][rank].pid for rank in range(2)]
    assert [found[max(found)][rank].local for rank in range(4)] == ["0/2", "1/2", "0/2", "1/2"]


def test_the_job_follows_the_discovery_script(cluster: Cluster, tmp_path: Path) -> None:
    """It grows onto a host that appears, and leaves one that disappears, which had rank 0."""
    listed = tmp_path / "listed"
    listed.write_text(f"{address(1)}:1\n{address(2)}:1\n")
    script = tmp_path / "hosts.sh"
    script.write_text(f"#!/bin/sh\ncat {listed}\n")
    script.chmod(0o755)
    deed = f"""
if size == 2 and step == 10 and rank == 0:
    open('listed', 'a').write('{address(3)}:2\\n')
if size == 4 and rank == 0 and not os.path.exists('moved'):
    open('moved', 'w').close()
    open('listed', 'w').write('{address(2)}:1\\n{address(3)}:2\\n')
"""
    command = training(tmp_path, deed, "size == 3 and os.path.exists('moved')")
    result = cluster.run(
        "-np", "2", "--min-np", "2", "--host-discovery-script", "./hosts.sh", *command, cwd=tmp_path
    )
    assert result.code == 0, result.err
    found = entries(result)
    sizes = [len(ranks) for _, ranks in sorted(found.items())]
    assert (sizes[0], sizes[-1]) == (2, 3) and 4 in sizes
    last = found[max(found)]
    assert last[0].pid == found[0][1].pid, "the lowest survivor"
    assert "its host or slot was removed from the job" in result.err
