"""Hosts reached by way of others: agents below agents, in namespaces with a real sshd each."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import (
    Cluster,
    address,
    by_rank,
    hosts,
    refused,
    shell,
    start_sleepers,
)
from launcher import ended, inherited, proc_number, wait_until, without_sanitizer

KIB, MIB = 1 << 10, 1 << 20
COUNT = 6
ALL = hosts(*[1] * COUNT)
CHAIN = ["--agent-fan-out", "1"]


@pytest.mark.parametrize(
    ("fan_out", "from_host"),
    [(64, [1, 1, 1, 1, 1]), (2, [1, 2, 2, 1, 5]), (1, [1, 2, 3, 4, 5])],
)
def test_each_host_is_reached_from_its_place_in_the_tree_and_writes_through_it(
    cluster: Cluster, tmp_path: Path, fan_out: int, from_host: list[int]
) -> None:
    reached_from = "s/^SSH_CONNECTION=\\([^ ]*\\) .*/FROM=\\1/p"
    text = (
        f"tr '\\0' '\\n' < /proc/$PPID/environ | sed -n '{reached_from}'\n"
        "echo HOST=$(hostname); seq 20000 >&2\n"
    )
    result = cluster.run(
        "-np", str(COUNT), "-H", ALL, "--agent-fan-out", str(fan_out),
        "--output-filename", "out", shell(tmp_path, text), cwd=tmp_path,
    )  # fmt: skip
    assert result.code == 0, result.err
    found = by_rank(result)
    assert [found[rank]["HOST"] for rank in range(COUNT)] == [
        f"node{host}" for host in cluster.hosts
    ]
    assert [found[rank].get("FROM") for rank in range(1, COUNT)] == list(map(address, from_host))
    expected = "".join(f"{number}\n" for number in range(1, 20001))
    for rank in range(COUNT):
        assert (tmp_path / f"out/rank.{rank}/stderr").read_text() == expected


def test_the_first_failure_and_the_end_of_the_others_pass_through_the_tree(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = "[ $HOROVOD_RANK = 5 ] || exec sleep 900\necho bad luck >&2; exit 7\n"
    script = shell(tmp_path, text)
    result = cluster.run("-np", str(COUNT), "-H", ALL, *CHAIN, script, cwd=tmp_path)
    assert result.code == 7
    assert result.said[:2] == [
        f"rank 5 on {address(6)} exited with code 7; its last lines:",
        "    bad luck",
    ]


def test_signals_for_ranks_and_interrupts_pass_through_the_tree(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = (
        "trap 'echo USR1; : > $HOROVOD_RANK.saw' USR1\n"
        "trap 'sleep 0.2; echo SIG=INT; exit 0' INT\n"
        ": > $HOROVOD_RANK.ready\nwhile :; do sleep 0.05; done\n"
    )
    with inherited(signal.SIGINT, signal.SIG_DFL):
        process = cluster.start(
            "-np", str(COUNT), "-H", ALL, *CHAIN, shell(tmp_path, text), cwd=tmp_path
        )
    wait_until(lambda: len(list(tmp_path.glob("*.ready"))) == COUNT, "all ranks")
    for host in cluster.hosts[1:]:  # as by a look for the name on every host
        for pid in filter(lambda pid: is_named(pid, "horovodrun"), cluster.processes(host)):
            os.kill(pid, signal.SIGUSR1)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: len(list(tmp_path.glob("*.saw"))) == COUNT, "SIGUSR1 everywhere")
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert result.code == 130 and len(result.said) == 1
    assert sorted(result.out_lines) == sorted(
        f"[{rank}]<stdout>:{line}" for rank in range(COUNT) for line in ("USR1", "SIG=INT")
    )


def is_named(pid: int, name: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == name
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False


def until_it_stands(count: Callable[[], int]) -> int:
    """Waits until it has not grown for a second."""
    seen, since = count(), time.monotonic()

    def stands() -> bool:
        nonlocal seen, since
        now = count()
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() > since + 1

    wait_until(stands, "output to stand")
    return seen


@without_sanitizer
def test_output_that_nobody_reads_waits_where_it_was_written(
    cluster: Cluster, tmp_path: Path
) -> None:
    written = 16 * MIB
    text = f": > $HOROVOD_RANK.on; yes $(printf %0999d $HOROVOD_RANK) | head -c {written}\n"
    script = shell(tmp_path, text)
    process = cluster.start("-np", str(COUNT), "-H", ALL, *CHAIN, script, cwd=tmp_path)

    def launchers() -> list[int]:
        """That of the job, and the agents."""
        found = [pid for host in cluster.hosts for pid in cluster.processes(host)]
        return [pid for pid in found if is_named(pid, "horovodrun")]

    # While they start others, a process that has not become another program yet is one more.
    wait_until(lambda: len(list(tmp_path.glob("*.on"))) == COUNT, "all ranks")
    pids = launchers()
    assert len(pids) == COUNT

    def read_by_all() -> int:
        return sum(proc_number(pid, "io", "rchar") for pid in pids)

    wait_until(lambda: read_by_all() > 1 * MIB, "some output")
    stands = until_it_stands(read_by_all)
    assert stands < COUNT * written / 4
    peaks = {pid: proc_number(pid, "status", "VmHWM") * KIB for pid in pids}
    assert max(peaks.values()) < 20 * MIB, peaks
    result = ended(process)
    assert (result.code, result.err) == (0, "")
    shown = Counter[str]()  # a line that was unfinished meanwhile is two there
    for line in result.out_lines:
        prefix, _, text = line.partition(":")
        shown[prefix] += len(text)
    line_ends = written // 1000
    assert shown == {f"[{rank}]<stdout>": written - line_ends for rank in range(COUNT)}


@pytest.mark.parametrize("victim", ["--agent", "sshd"])
def test_with_a_host_are_lost_those_that_are_reached_from_there(
    cluster: Cluster, tmp_path: Path, victim: str
) -> None:
    process = start_sleepers(cluster, tmp_path, 5, *CHAIN)

    def is_victim(pid: int) -> bool:
        own = Path(f"/proc/{pid}")
        if (own / "comm").read_text().startswith("hvd-"):
            return False
        return (
            (own / "cmdline").read_bytes().startswith(b"sshd:")
            if victim == "sshd"
            else (b"--agent" in (own / "cmdline").read_bytes().split(b"\0"))
        )

    for pid in list(filter(is_victim, cluster.processes(3))):  # before any of them is gone
        os.kill(pid, signal.SIGKILL)
    result = ended(process)
    assert result.code == 1
    assert result.said[0].startswith(f"{address(3)} was lost with rank 2: the ssh to it ")
    way = f"it was reached through {address(3)}"
    assert result.said[1:3] == [
        f"{address(4)} was lost with rank 3: {way}",
        f"{address(5)} was lost with rank 4: {way}",
    ]


def test_nothing_survives_a_launcher_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    start_sleepers(cluster, tmp_path, COUNT, "--agent-fan-out", "2").kill()


def test_a_host_that_another_cannot_reach_is_told_with_that_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.stop_sshd(4)
    try:
        command = [*CHAIN, "touch", "started"]
        result = cluster.run("-np", str(COUNT), "-H", ALL, *command, cwd=tmp_path)
    finally:
        cluster.start_sshd(4)
    told = refused(result, address(4), "ok", "FAILED", "-", "-", "-")
    assert told.startswith(f"ssh from {address(3)}: ")
    assert "Connection refused" in told and f"run these on {address(3)}" in told
    refused(result, address(3), "ok", "ok", "ok", "ok", "ok")
    refused(result, address(5), "-", "-", "-", "-", "-")
    assert f"{address(6)}: not tried, since it is reached from {address(5)}" in result.said
    assert not (tmp_path / "started").exists()
