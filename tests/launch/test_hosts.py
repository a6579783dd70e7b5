"""Jobs on several hosts: namespaces with a real sshd each, as cluster.py makes them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import (
    COUNT,
    DEAD,
    WIRE,
    Cluster,
    address,
    address_v6,
    by_rank,
    hosts,
    refused,
    shell,
    start_sleepers,
)
from launcher import ended, horovodrun, wait_until
from training import GRACE_SECONDS
from wire import CARD, sniffed


def test_ranks_find_their_place_folder_and_environment_on_every_host(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = shell(tmp_path, "env; echo CWD=$(pwd); echo HOST=$(hostname)\n")
    secret = {"HOROVOD_SECRET_KEY": "s", "MINE": "a 'b' $c"}
    result = cluster.run("-np", "4", "-H", hosts(2, 1, 1), script, cwd=tmp_path, env=secret)
    assert (result.code, result.err) == (0, "")
    found = by_rank(result)
    assert [found[rank]["HOST"] for rank in range(4)] == ["node1", "node1", "node2", "node3"]
    for rank, (host, local, size, cross, across) in enumerate(
        [(1, 0, 2, 0, 3), (1, 1, 2, 0, 1), (2, 0, 1, 1, 3), (3, 0, 1, 2, 3)]
    ):
        expected = {
            "HOROVOD_HOSTNAME": address(host),
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "4",
            "HOROVOD_LOCAL_RANK": str(local),
            "HOROVOD_LOCAL_SIZE": str(size),
            "HOROVOD_CROSS_RANK": str(cross),
            "HOROVOD_CROSS_SIZE": str(across),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address(1),
            "NCCL_SOCKET_IFNAME": WIRE,
            "MINE": "a 'b' $c",
            "CWD": str(tmp_path),
        }
        assert expected.items() <= found[rank].items()
        assert "HOROVOD_SECRET_KEY" not in found[rank]


def test_hosts_may_be_names_addresses_of_both_kinds_and_lines_of_a_file(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = shell(tmp_path, "echo HOST=$(hostname)\n")
    (tmp_path / "hosts").write_text(f"node2 slots=1\n{address_v6(3)} slots=2\n")
    result = cluster.run("-np", "3", "--hostfile", "hosts", script, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert [by_rank(result)[rank]["HOST"] for rank in range(3)] == ["node2", "node3", "node3"]
    mixed = f"localhost:1,[{address_v6(2)}]:1,node3:1"
    result = cluster.run("-np", "3", "-H", mixed, script, cwd=tmp_path)
    assert [by_rank(result)[rank]["HOST"] for rank in range(3)] == ["node1", "node2", "node3"]


REDUCE = """
import array, os, pathlib, socket, sys
import horovod._core as core

def peers():
    not_ours = {22, int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            own, other, state = line.split()[1:4]
            ports = {int(end.split(":")[1], 16) for end in (own, other)}
            if state == "01" and not ports & not_ours:  # established
                found.add(socket.inet_ntoa(bytes.fromhex(other.split(":")[0])[-4:][::-1]))
    return found - {"127.0.0.1"}  # ranks of one host

core.init()
world = core.world()
for step, length in enumerate([1, 1000, 300000]):
    values = array.array("f", [float(world.rank + 1)] * length)
    at = values.buffer_info()[0]
    if step == 2:
        print("PEERS=" + ",".join(sorted(peers())), flush=True)  # while all are still there
    tensor = at, (length,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), f"x{step}", tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
    expected = world.size * (world.size + 1) / 2
    assert set(values) == {expected}, (step, values[0], expected)
core.shutdown()
"""


@pytest.mark.parametrize("slots", [(2, 1, 1), (4, 4, 4)])
@pytest.mark.parametrize("options", [(), ("--encrypt",)], ids=["", "encrypted"])
def test_allreduce_sums_over_hosts_by_the_wire_alone(
    cluster: Cluster, tmp_path: Path, slots: tuple[int, ...], options: tuple[str, ...]
) -> None:
    pytest.importorskip("horovod._core")
    (tmp_path / "reduce.py").write_text(REDUCE)
    command = [sys.executable, "reduce.py"]
    size = sum(slots)
    sums = struct.pack("16f", *[size * (size + 1) / 2] * 16)
    with sniffed(sums, CARD, interface=f"{WIRE}1", namespace=cluster.name("switch")) as seen:
        result = cluster.run(
            "-np", str(size), "-H", hosts(*slots), *options, *command, cwd=tmp_path,
            env={"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    assert (result.code, result.err) == (0, "")
    assert seen == (set() if options else {sums, CARD}), "what can be read on the wire"
    found = by_rank(result)
    first_of_host = [sum(slots[:host]) for host in range(COUNT)]
    for host, rank in enumerate(first_of_host, start=1):
        others = {address(other) for other in range(1, COUNT + 1) if other != host}
        assert set(found[rank]["PEERS"].split(",")) == others


def test_ranks_of_every_host_share_the_cores_of_that_host(cluster: Cluster, tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core cannot be shared out")
    text = "sed -n 's/^Cpus_allowed:\\t/CPUS=/p' /proc/self/status\n"
    common = ["-H", hosts(1, 2, len(cores) + 1), "--binding-args", "cores"]
    result = cluster.run("-np", "3", *common, "--verbose", shell(tmp_path, text), cwd=tmp_path)
    assert result.code == 0, result.err
    found = by_rank(result)
    masks = [int(found[rank]["CPUS"].replace(",", ""), 16) for rank in range(3)]
    everything = sum(1 << core for core in cores)
    assert masks[0] == everything
    assert masks[1] and masks[2] and (masks[1] & masks[2], masks[1] | masks[2]) == (0, everything)
    assert [line for line in result.said if line.startswith(f"CPUs of {address(2)}: rank 1: ")]
    crowd = ["-np", str(len(cores) + 4), *common]
    told = refused(
        cluster.run(*crowd, "true", cwd=tmp_path), address(3), "ok", "ok", "ok", "FAILED", "-"
    )
    assert "too few cores" in told and "leave out --binding-args cores" in told


def test_output_comes_out_as_on_one_host_and_lies_in_files_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = "seq 20000; printf 'no end'; echo \"to err $HOROVOD_RANK\" >&2\n"
    result = cluster.run(
        "-np", "3", "-H", hosts(1, 1, 1), "--output-filename", "out", shell(tmp_path, text),
        cwd=tmp_path,
    )  # fmt: skip
    assert result.code == 0
    expected = "".join(f"{number}\n" for number in range(1, 20001)) + "no end"
    for rank in range(3):
        assert (tmp_path / f"out/rank.{rank}/stdout").read_text() == expected
        assert (tmp_path / f"out/rank.{rank}/stderr").read_text() == f"to err {rank}\n"
        mark = f"[{rank}]<stdout>:"
        assert "\n".join(line.removeprefix(mark) for line in result.out_lines
                         if line.startswith(mark)) == expected  # fmt: skip
        assert f"[{rank}]<stderr>:to err {rank}" in result.err.splitlines()


def test_the_first_failure_on_another_host_is_told_with_its_lines(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = "[ $HOROVOD_RANK = 2 ] || exec sleep 100\necho bad luck >&2; exit 7\n"
    result = cluster.run("-np", "3", "-H", hosts(1, 1, 1), shell(tmp_path, text), cwd=tmp_path)
    assert result.code == 7
    assert result.said[:2] == [
        f"rank 2 on {address(3)} exited with code 7; its last lines:",
        "    bad luck",
    ]


def test_what_ignores_sigterm_is_killed_on_every_host(cluster: Cluster, tmp_path: Path) -> None:
    text = "if [ $HOROVOD_RANK = 1 ]; then\n"
    text += "until [ -e 0.on ] && [ -e 2.on ]; do sleep 0.05; done; exit 3\nfi\n"
    text += "trap '' TERM\nsetsid sleep 900 &\n: > $HOROVOD_RANK.on\n"
    text += "while true; do sleep 1; done\n"
    result = cluster.run(
        "-np", "3", "-H", hosts(1, 1, 1), "--grace-seconds", "0", shell(tmp_path, text),
        cwd=tmp_path,
    )  # fmt: skip
    assert result.code == 3
    assert f"rank 2 on {address(3)} was stopped (SIGKILL)" in result.said


def test_a_rank_that_is_killed_ends_the_others_with_an_error_that_names_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("horovod._core")
    endless = REDUCE.replace("[1, 1000, 300000]", "[1000] * 100000").replace(
        "    values =",
        "    if step == 20 and world.rank == 3: os.kill(os.getpid(), 9)\n    values =",
    )
    (tmp_path / "reduce.py").write_text(endless)
    command = [sys.executable, "reduce.py"]
    listed = ["-H", hosts(2, 1, 1), "--grace-seconds", GRACE_SECONDS]
    result = cluster.run("-np", "4", *listed, *command, cwd=tmp_path)
    assert result.code == 137
    assert result.said[0].startswith(f"rank 3 on {address(3)} was killed by signal 9 (SIGKILL)")
    followed = [line for line in result.said if line.endswith("as a consequence of rank 3")]
    assert len(followed) == 3, result.err


def test_nothing_survives_a_launcher_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    process = start_sleepers(cluster, tmp_path, 3)
    process.kill()


def test_a_signal_to_the_launcher_ends_all(cluster: Cluster, tmp_path: Path) -> None:
    process = start_sleepers(cluster, tmp_path, 3)
    process.terminate()
    result = ended(process)
    assert result.code == 128 + signal.SIGTERM
    assert result.said == ["SIGTERM: ending all ranks"]


@pytest.mark.parametrize("victim", ["agent", "ssh"])
def test_a_host_whose_agent_or_ssh_is_killed_is_lost_and_ends_the_job(
    cluster: Cluster, tmp_path: Path, victim: str
) -> None:
    process = start_sleepers(cluster, tmp_path, 3)

    def is_victim(pid: int) -> bool:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if victim == "ssh":
            return words[0].endswith(b"ssh") and address(2).encode() in words
        is_supervisor = Path(f"/proc/{pid}/comm").read_text().startswith("hvd-")
        return b"--agent" in words and not is_supervisor

    host = 1 if victim == "ssh" else 2
    (found,) = [pid for pid in cluster.processes(host) if is_victim(pid)]
    os.kill(found, signal.SIGKILL)
    result = ended(process)
    assert result.code == 1
    assert result.said[0].startswith(f"{address(2)} was lost with rank 1: ")


# ---- Standard input of a rank 0 that is not on the launcher's host ----

KIB, MIB = 1 << 10, 1 << 20
ELSEWHERE = f"{address(2)}:1,{address(3)}:1"


def test_standard_input_reaches_rank_0_whole_wherever_it_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(20 * MIB)
    (tmp_path / "input").write_bytes(data)
    script = shell(tmp_path, "sleep 0.1; echo SUM=$(sha256sum)\n")
    expected = {
        0: {"SUM": f"{hashlib.sha256(data).hexdigest()} -"},
        1: {"SUM": f"{hashlib.sha256(b'').hexdigest()} -"},
    }
    common = ["-np", "2", "-H", ELSEWHERE, script]
    with (tmp_path / "input").open("rb") as file:
        result = ended(cluster.start(*common, cwd=tmp_path, stdin=file))
    assert (result.code, result.err, by_rank(result)) == (0, "", expected)
    result = ended(cluster.start(*common, cwd=tmp_path, stdin=subprocess.PIPE), data)
    assert (result.code, result.err, by_rank(result)) == (0, "", expected)


def test_input_that_is_not_read_waits_where_it_is_and_holds_nothing_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    with (tmp_path / "input").open("wb") as file:
        file.truncate(64 * MIB)
    common = ["-np", "2", "-H", ELSEWHERE]
    with (tmp_path / "input").open("rb") as file:
        script = shell(tmp_path, "exec sleep 900\n")
        process = cluster.start(*common, script, cwd=tmp_path, stdin=file)
        on_its_way = 1 * MIB + 64 * KIB  # what docs/wire.md allows, and what a pipe holds
        wait_until(
            lambda: os.lseek(file.fileno(), 0, os.SEEK_CUR) == on_its_way, "the input to stand"
        )
        process.terminate()
        assert ended(process).code == 128 + signal.SIGTERM
    with (tmp_path / "input").open("rb") as file:
        script = shell(tmp_path, "[ $HOROVOD_RANK = 1 ] || head -c 70000 | wc -c; exit 0\n")
        result = ended(cluster.start(*common, script, cwd=tmp_path, stdin=file))
    assert (result.code, result.out, result.err) == (0, "[0]<stdout>:70000\n", "")


TERMINAL = r"""
import fcntl, os, pathlib, signal, subprocess, sys, termios, time

keyboard, screen = os.openpty()
os.setsid()
fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as shells do

def start(in_foreground, output):
    def become_a_job():
        os.setpgrp()
        if in_foreground:
            os.tcsetpgrp(screen, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    return subprocess.Popen(sys.argv[1:], stdin=screen, stdout=output, preexec_fn=become_a_job)

def state(job):
    return pathlib.Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[0]

job = start(False, subprocess.PIPE)
print("in the background:", job.communicate()[0], job.returncode)

with open("out", "wb") as out:
    job = start(True, out)
os.write(keyboard, b"one\n")
while b"one\n" not in pathlib.Path("out").read_bytes():
    time.sleep(0.01)
os.tcsetpgrp(screen, os.getpid())
os.write(keyboard, b"two\n")
time.sleep(0.2)  # for the launcher to take what is not for it
print("moved there:", state(job) != "T", os.read(screen, 100))
os.tcsetpgrp(screen, job.pid)
os.write(keyboard, b"three\n\x04")
print("and back:", job.wait(), pathlib.Path("out").read_bytes())
"""


def test_a_terminal_is_read_in_the_foreground_alone(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "terminal.py").write_text(TERMINAL)
    command = [horovodrun(), "-np", "1", "-H", f"{address(2)}:1", "cat"]
    result = cluster.run("terminal.py", *command, cwd=tmp_path, program=sys.executable)
    assert (result.code, result.err) == (0, "")
    assert result.out_lines == [
        "in the background: b'' 0",
        r"moved there: True b'two\n'",
        r"and back: 0 b'[0]<stdout>:one\n[0]<stdout>:three\n'",
    ]


# ---- What keeps a job from starting ----


def test_a_host_without_sshd_is_named_with_what_helps(cluster: Cluster, tmp_path: Path) -> None:
    cluster.stop_sshd(3)
    try:
        result = cluster.run("-np", "3", "-H", hosts(1, 1, 1), "touch", "started", cwd=tmp_path)
    finally:
        cluster.start_sshd(3)
    told = refused(result, address(3), "ok", "FAILED", "-", "-", "-")
    assert "Connection refused" in told and "systemctl start ssh" in told
    refused(result, address(2), "ok", "ok", "ok", "ok", "ok")
    assert not (tmp_path / "started").exists()


def test_a_wrong_key_is_told_with_the_command_that_installs_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    key = str(cluster.folder / "other_key")
    config = cluster.folder / "ssh_config"
    text = config.read_text()
    config.write_text(text.replace("user_key", "other_key"))
    try:
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "-i", key, "true", cwd=tmp_path)
    finally:
        config.write_text(text)
    told = refused(result, address(2), "ok", "FAILED", "-", "-", "-")
    assert "Permission denied" in told and f"ssh-copy-id -i {key} {address(2)}" in told


def test_a_wrong_port_is_told_with_its_number(cluster: Cluster, tmp_path: Path) -> None:
    result = cluster.run("-np", "2", "-H", hosts(1, 1), "-p", "2222", "true", cwd=tmp_path)
    told = refused(result, address(2), "ok", "FAILED", "-", "-", "-")
    assert "port 2222 was tried): horovodrun -p PORT" in told


def test_a_host_that_does_not_answer_is_told_in_time(cluster: Cluster, tmp_path: Path) -> None:
    far = "10.77.1.99"
    listed = f"{hosts(1, 1)},{far}:1,no-such-name:1"
    result = cluster.run("-np", "4", "-H", listed, "--start-timeout", "8", "true", cwd=tmp_path)
    told = refused(result, far, "ok", "FAILED", "-", "-", "-")
    assert f"ping -c 1 {far}" in told
    told = refused(result, "no-such-name", "FAILED", "-", "-", "-", "-")
    assert "getent hosts no-such-name" in told


#: The time that is asked for, in which the other hosts must answer on a busy machine too, and what
#: such a machine may add; the default alone is 30. A daemon that stands still is no help: the
#: kernel takes connections to it.
START_SECONDS = "8"
AT_MOST_S = 25


#: What stands still, what a host runs then in place of what ssh was told, and the step that fails.
SILENT = {
    "sshd": (None, ["FAILED", "-", "-", "-"]),
    "the agent": ('kill -STOP $$; eval "exec $SSH_ORIGINAL_COMMAND"', ["FAILED", "-", "-", "-"]),
    "the agent that has come": (
        'sleep 900 | eval "$SSH_ORIGINAL_COMMAND"',  # it never hears what the job is
        ["ok", "ok", "FAILED", "-"],
    ),
}


@pytest.mark.parametrize("what", SILENT)
def test_a_host_that_falls_silent_is_told_within_the_start_timeout(
    cluster: Cluster, tmp_path: Path, what: str
) -> None:
    common = ["-np", "3", "-H", hosts(1, 1, 1), "--start-timeout", START_SECONDS]
    instead, cells = SILENT[what]
    if instead is None:
        cluster.signal_sshd(2, signal.SIGSTOP)
    else:
        cluster.stop_sshd(2)
        cluster.start_sshd(2, instead=instead)
    begin = time.monotonic()
    try:
        result = cluster.run(*common, "touch", "started", cwd=tmp_path)
        passed = time.monotonic() - begin
    finally:
        if instead is None:
            cluster.signal_sshd(2, signal.SIGCONT)
        else:
            cluster.stop_sshd(2)
            for stopped in cluster.processes(2):
                with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                    os.kill(stopped, signal.SIGKILL)
            cluster.start_sshd(2)
    refused(result, address(2), "ok", *cells)
    refused(result, address(3), "ok", "ok", "ok", "ok", "ok")
    assert passed < AT_MOST_S
    assert not (tmp_path / "started").exists()


def test_a_folder_or_a_launcher_that_is_not_there_is_told(cluster: Cluster, tmp_path: Path) -> None:
    here = tmp_path / "only-here"
    here.mkdir()
    cluster.stop_sshd(2)
    cluster.start_sshd(2, hide=here)
    try:
        (here / "x.sh").write_text("#!/bin/sh\ntrue\n")
        (here / "x.sh").chmod(0o755)
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "./x.sh", cwd=here)
        told = refused(result, address(2), "ok", "ok", "ok", "FAILED", "-")
        assert "'./x.sh' was not found" in told
        shutil.copy(horovodrun(), here / "horovodrun")
        program = str(here / "horovodrun")
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "true", cwd=tmp_path, program=program)
        told = refused(result, address(2), "ok", "ok", "FAILED", "-", "-")
        assert f"{program} was not found there" in told
    finally:
        cluster.stop_sshd(2)
        cluster.start_sshd(2)


def test_only_the_interfaces_that_are_named_are_used(cluster: Cluster, tmp_path: Path) -> None:
    script = shell(tmp_path, "env\n")
    both = f"{DEAD},{WIRE}"
    common = ["-np", "2", "-H", hosts(1, 1)]
    result = cluster.run(*common, "--network-interfaces", both, script, cwd=tmp_path)
    assert result.code == 0, result.err
    for found in by_rank(result).values():
        assert (found["HOROVOD_GLOO_IFACE"], found["NCCL_SOCKET_IFNAME"]) == (WIRE, both)
    common += ["--start-timeout", START_SECONDS]  # the way back does not answer
    result = cluster.run(*common, "--network-interfaces", DEAD, script, cwd=tmp_path)
    told = refused(result, address(2), "ok", "ok", "ok", "ok", "FAILED")
    assert "10.88.0.1" in told and "--network-interfaces NAME" in told


def test_a_function_is_called_on_every_host_from_one(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "call.py"
    script.write_text(
        "import socket, horovod\n"
        "def where(greeting):\n"
        "    return greeting, socket.gethostname()\n"
        f"print(horovod.run(where, args=('here',), num_proc=3, hosts='{hosts(1, 1, 1)}'))\n"
    )
    result = cluster.run(str(script), cwd=tmp_path, program=sys.executable)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{[('here', f'node{host}') for host in (1, 2, 3)]}\n"
