"""horovod.run: a function on many processes, called from one."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import children_of, wait_gone, wait_until
from older_kernel import NO_FILTER, on_older_kernel

pytest.importorskip("horovod._core")

import horovod
import horovod.runner
from horovod.runner import RankFailed
from horovod.runner._job import finds_hosts


def rank() -> int:
    return int(os.environ["HOROVOD_RANK"])


def test_results_come_in_the_order_of_ranks() -> None:
    base = 10

    def work(factor: int, *, plus: int) -> tuple[int, str]:
        return base + rank() * factor + plus, os.environ["HOROVOD_SIZE"]

    found = horovod.run(work, (100,), {"plus": 1}, num_proc=3)
    assert found == [(11, "3"), (111, "3"), (211, "3")]


def test_without_a_number_there_is_one_process() -> None:
    assert horovod.run(lambda: os.environ["HOROVOD_SIZE"]) == ["1"]


def test_ranks_reduce_and_large_results_arrive() -> None:
    def work() -> tuple[int, bytes]:
        from horovod import _core

        _core.init()
        size = _core.world().size
        _core.shutdown()
        return size, bytes(20 << 20)

    found = horovod.run(work, num_proc=2)
    assert [(size, len(data)) for size, data in found] == [(2, 20 << 20)] * 2


def test_what_ranks_write_comes_out_with_their_rank(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        print("to the left")
        print("to the right", file=sys.stderr)

    horovod.run(work, num_proc=2)
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["[0]<stdout>:to the left", "[1]<stdout>:to the left"]
    assert sorted(err.splitlines()) == ["[0]<stderr>:to the right", "[1]<stderr>:to the right"]


def test_modules_beside_the_callers_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_caller.py").write_text("def work():\n    return 'found'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import beside_the_caller  # type: ignore[import-not-found]

    assert horovod.run(beside_the_caller.work, num_proc=2) == ["found"] * 2


def test_an_exception_keeps_its_type_its_text_and_its_rank() -> None:
    def work() -> None:
        if rank() == 1:
            raise KeyError("not there")
        time.sleep(60)

    with pytest.raises(RuntimeError) as caught:
        horovod.run(work, num_proc=3)
    failed = caught.value
    assert isinstance(failed, RankFailed) and isinstance(failed.__cause__, KeyError)
    assert failed.__cause__.args == ("not there",)
    assert (failed.rank, failed.exit_code) == (1, 1)
    assert "rank 1 raised KeyError: 'not there'" in str(failed)
    assert "Process name: 1, Exit code: 1" in str(failed)
    assert "in work" in failed.traceback and "_worker.py" not in failed.traceback
    assert str(pickle.loads(pickle.dumps(failed))) == str(failed)


def test_the_rank_that_failed_first_is_named_not_those_that_followed() -> None:
    def work() -> None:
        from horovod import _core

        _core.init()
        if rank() == 1:
            raise ValueError("the first")
        _core.wait(_core.submit_tensors(_core.Operation(_core.BARRIER), "wait", [], None, None))

    with pytest.raises(RankFailed, match="rank 1 raised ValueError: the first"):
        horovod.run(work, num_proc=2)


def test_an_exception_that_cannot_be_pickled_is_told_as_text() -> None:
    def work() -> None:
        class Odd(Exception):
            def __reduce__(self) -> Any:
                raise TypeError("not this one")

        raise Odd("strange")

    with pytest.raises(RankFailed, match="Odd: strange") as caught:
        horovod.run(work)
    assert caught.value.__cause__ is None


def test_a_result_that_cannot_be_pickled_is_the_error_of_its_rank() -> None:
    with pytest.raises(RankFailed, match=r"rank 0 raised TypeError: .*lock"):
        horovod.run(threading.Lock)


def test_a_rank_that_dies_is_named_with_its_signal() -> None:
    def work() -> None:
        if rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RankFailed, match="rank 1 was killed by signal 9") as caught:
        horovod.run(work, num_proc=2)
    assert (caught.value.rank, caught.value.exit_code) == (1, 137)


def test_a_rank_that_leaves_without_a_result_is_an_error() -> None:
    with pytest.raises(RankFailed, match="only 1 results"):
        horovod.run(lambda: os._exit(0) if rank() == 1 else None, num_proc=2)


@pytest.mark.skipif(
    [name for _, name in socket.if_nameindex()] == ["lo"],
    reason="this machine has no network interface but the loopback",
)
@pytest.mark.parametrize("by", ["LSF", "an operator"])
def test_ranks_reach_the_caller_from_hosts_that_the_launcher_finds_itself(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host is this one, behind a stand-in for ssh that runs what it is told."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != away ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if by == "LSF":
        monkeypatch.setenv("LSB_JOBID", "1")
        monkeypatch.setenv("LSB_MCPU_HOSTS", "away 2")
    else:
        (tmp_path / "hostfile").write_text("away slots=2\n")
        monkeypatch.setenv("K_MPI_JOB_ROLE", "launcher")
        monkeypatch.setenv("OMPI_MCA_orte_default_hostfile", str(tmp_path / "hostfile"))
    found = horovod.run(lambda: os.environ["HOROVOD_HOSTNAME"], num_proc=2)
    assert found == ["away", "away"]


@pytest.mark.parametrize(
    ("environment", "finds"),
    [
        ({}, False),
        ({"LSB_JOBID": ""}, False),
        ({"LSB_JOBID": "7"}, True),
        ({"K_MPI_JOB_ROLE": "worker"}, False),
        ({"K_MPI_JOB_ROLE": "launcher"}, True),
        ({"OMPI_MCA_plm_rsh_agent": "ssh"}, False),
        ({"OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh"}, True),
    ],
)
def test_where_the_launcher_finds_hosts_itself(environment: dict[str, str], finds: bool) -> None:
    assert finds_hosts(environment) == finds


def test_what_the_launcher_refuses_is_told() -> None:
    with pytest.raises(RankFailed, match=r"asks for more processes[^$]*1 available") as caught:
        horovod.run(rank, num_proc=2, hosts="localhost:1")
    assert caught.value.rank is None


def test_a_python_that_is_not_there_is_told() -> None:
    with pytest.raises(RankFailed, match="/no/python"):
        horovod.run(rank, executable="/no/python")


@pytest.mark.parametrize(
    "both",
    [{"hosts": "localhost:1", "hostfile": "f"}, {"use_gloo": True, "use_mpi": True}],
)
def test_what_excludes_each_other_is_a_value_error(both: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give one"):
        horovod.run(rank, **both)


def test_old_names_of_parameters_are_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="np is deprecated; use num_proc"):
        assert horovod.run(rank, np=2) == [0, 1]
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(ValueError, match="num_proc=3 and np=2"),
    ):
        horovod.run(rank, num_proc=3, np=2)


def test_parameters_are_in_the_known_order() -> None:
    assert horovod.run is horovod.runner.run
    assert " ".join(inspect.signature(horovod.run).parameters) == (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range "
        "hosts hostfile host_discovery_script start_timeout ssh_port ssh_identity_file "
        "disable_cache output_filename verbose use_gloo use_mpi mpi_args network_interface "
        "network_interfaces executable np min_np max_np"
    )


def test_output_files_and_verbose_are_those_of_the_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    horovod.run(lambda: print("kept"), output_filename=str(tmp_path), verbose=True, use_gloo=True)
    assert (tmp_path / "rank.0" / "stdout").read_text() == "kept\n"
    assert "horovodrun: 1 processes on localhost" in capsys.readouterr().err


def test_the_key_is_neither_in_the_environment_nor_on_a_command_line() -> None:
    def work() -> tuple[bytes, bytes, str]:
        from horovod.runner._key import key_of_job

        key = key_of_job(os.environ)
        seen = b""
        pid = os.getpid()
        while pid > 1:
            process = Path(f"/proc/{pid}")
            seen += (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        return key, seen, key.hex()

    ((key, seen, text),) = horovod.run(work)
    assert len(key) == 32 and key not in seen and text.encode() not in seen
    assert b"--caller-key" in seen


SLEEPER = """
import os, time, horovod
def work():
    open(f"{os.environ['FOLDER']}/{os.environ['HOROVOD_RANK']}.pid", "w").write(f"{os.getpid()}\\n")
    time.sleep(600)
def main():
    horovod.run(work, num_proc=2)
main()
"""


@pytest.mark.parametrize(
    ("number", "through"),
    [
        (signal.SIGKILL, []),
        (signal.SIGTERM, []),
        (signal.SIGINT, []),
        (signal.SIGKILL, on_older_kernel("ENOSYS")),
        (signal.SIGKILL, on_older_kernel("EPERM")),
    ],
    ids=["SIGKILL", "SIGTERM", "SIGINT", "without pidfd", "with pidfd forbidden"],
)
def test_nothing_is_left_when_the_caller_is_ended(
    number: signal.Signals, through: list[str], tmp_path: Path
) -> None:
    if through and subprocess.run([*through, "true"]).returncode == NO_FILTER:
        pytest.skip("seccomp filters are not allowed here")
    caller = subprocess.Popen(
        [*through, sys.executable, "-c", SLEEPER],
        env={**os.environ, "FOLDER": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "two ranks")
        wait_until(
            lambda: all(path.read_text().endswith("\n") for path in tmp_path.glob("*.pid")),
            "their numbers",
        )
        pids = [int(path.read_text()) for path in tmp_path.glob("*.pid")] + children_of(caller.pid)
        assert len(pids) == 3
        caller.send_signal(number)
        wait_gone(pids)
        assert caller.wait(30) == -number
    finally:
        caller.kill()


def test_an_interrupt_reaches_the_caller_as_one(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import glob, os, signal, threading, time, horovod
        main = threading.main_thread().ident
        def interrupt():
            while len(glob.glob("*.on")) < 2:
                time.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)
        def work():
            try:
                open(f"{os.environ['HOROVOD_RANK']}.on", "w").close()
                time.sleep(600)
            finally:
                time.sleep(0.3)  # SIGTERM would end it meanwhile
                print("saved")
        def guarded():
            try:
                horovod.run(work, num_proc=2)
            except KeyboardInterrupt:
                print("interrupted")
        threading.Thread(target=interrupt, daemon=True).start()
        guarded()
        """)
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()[:2]) == [f"[{rank}]<stdout>:saved" for rank in (0, 1)]
    assert ended.stdout.endswith("interrupted\n")
