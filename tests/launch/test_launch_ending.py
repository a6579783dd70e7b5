"""How jobs end: exit codes, the report of the first failure, and that nothing is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from launcher import (
    FAMILY,
    Jobs,
    children_of,
    ended,
    horovodrun,
    pids_in,
    start_family,
    wait_gone,
    wait_until,
)


def test_the_exit_code_is_that_of_the_failed_rank(jobs: Jobs) -> None:
    result = jobs.run("-np", "3", jobs.script("[ $HOROVOD_RANK = 1 ] && exit 7; exec sleep 100"))
    assert result.code == 7
    assert result.said[0] == "rank 1 exited with code 7; it wrote nothing"


def test_a_death_by_signal_gives_128_plus_the_signal(jobs: Jobs) -> None:
    script = jobs.script("[ $HOROVOD_RANK = 0 ] && kill -KILL $$; exec sleep 100")
    result = jobs.run("-np", "2", script)
    assert result.code == 137
    assert result.said[0] == "rank 0 was killed by signal 9 (SIGKILL); it wrote nothing"


def test_a_rank_may_end_well_while_others_run(jobs: Jobs) -> None:
    script = jobs.script("[ $HOROVOD_RANK = 0 ] && exit 0; sleep 0.3; echo late")
    result = jobs.run("-np", "3", script)
    assert result.code == 0 and result.err == ""
    assert sorted(result.out_lines) == ["[1]<stdout>:late", "[2]<stdout>:late"]


def test_the_last_lines_of_the_failed_rank_are_shown(jobs: Jobs) -> None:
    script = jobs.script(
        "[ $HOROVOD_RANK = 1 ] || exec sleep 100\nseq 1000; echo 'Error: bad luck' >&2; exit 1"
    )
    result = jobs.run("-np", "2", script)
    assert result.said[0] == "rank 1 exited with code 1; its last lines:"
    shown = [line.strip() for line in result.said[1:21]]
    assert "Error: bad luck" in shown and "1000" in shown and "900" not in shown
    assert len([line for line in result.out_lines if line.startswith("[1]<stdout>:")]) == 1000


def test_the_others_get_time_to_end_by_themselves(jobs: Jobs) -> None:
    script = jobs.script("[ $HOROVOD_RANK = 0 ] && exit 3\nsleep 0.3; echo mine > own; exit 5")
    result = jobs.run("-np", "2", "--grace-seconds", "20", script)
    assert result.code == 3
    assert result.said == [
        "rank 0 exited with code 3; it wrote nothing",
        "rank 1 exited with code 5 after the first failure",
    ]
    assert (jobs.folder / "own").exists()


def test_the_time_may_be_a_variable(jobs: Jobs) -> None:
    script = jobs.script(
        "[ $HOROVOD_RANK = 0 ] && exit 3\ntrap 'echo told; exit 0' TERM; sleep 100"
    )
    result = jobs.run("-np", "2", script, env={"HOROVOD_GRACE_SECONDS": "0"})
    assert result.code == 3


def test_what_ignores_sigterm_is_killed(jobs: Jobs) -> None:
    script = jobs.script(
        "if [ $HOROVOD_RANK = 0 ]; then until [ -e rank.pid ]; do sleep 0.05; done; exit 3; fi\n"
        "trap '' TERM; echo $$ > rank.part; mv rank.part rank.pid; while true; do sleep 1; done"
    )
    process = jobs.start("-np", "2", "--grace-seconds", "0", script)
    pids = pids_in(jobs.folder, 1)
    result = ended(process)
    assert result.code == 3
    assert "rank 1 was stopped (SIGKILL)" in result.said
    wait_gone(pids)


def test_a_job_that_ends_well_leaves_no_daemon(jobs: Jobs) -> None:
    (jobs.folder / "family.py").write_text(FAMILY.replace('live(f"rank{rank}")', ""))
    process = jobs.start("-np", "2", "--grace-seconds", "0", "python3", "family.py")
    pids = pids_in(jobs.folder, 4)
    assert ended(process).code == 0
    wait_gone(pids)


def test_nothing_survives_a_launcher_that_is_killed(jobs: Jobs) -> None:
    process, pids = start_family(jobs, argument="signal proof")
    process.kill()
    wait_gone(pids)


def test_nothing_survives_a_supervisor_that_is_killed(jobs: Jobs) -> None:
    process, pids = start_family(jobs, argument="signal proof")
    supervisor = children_of(process.pid)
    assert len(supervisor) == 1
    os.kill(supervisor[0], signal.SIGKILL)
    result = ended(process)
    assert result.code == 137
    assert "supervisor" in result.said[0]
    wait_gone(pids)


def test_a_rank_that_signals_its_process_group_hits_only_itself(jobs: Jobs) -> None:
    script = jobs.script(
        "[ $HOROVOD_RANK = 1 ] || { sleep 0.3; exit 0; }\ntrap 'exit 0' TERM; kill 0"
    )
    result = jobs.run("-np", "3", script)
    assert result.code == 0 and result.err == ""


def test_sixty_four_processes(jobs: Jobs) -> None:
    result = jobs.run("-np", "64", "sh", "-c", "echo $HOROVOD_RANK/$HOROVOD_SIZE")
    assert result.code == 0
    assert sorted(result.out_lines) == sorted(f"[{rank}]<stdout>:{rank}/64" for rank in range(64))


def test_more_ranks_than_the_shell_allows_descriptors(jobs: Jobs) -> None:
    command = f"ulimit -S -n 150; exec {horovodrun()} -np 100 sh -c 'ulimit -S -n'"
    (jobs.folder / "limited.sh").write_text(command)
    process = jobs.start("-np", "1", "sh", "limited.sh")
    result = ended(process)
    assert result.code == 0
    assert sorted(set(line.rpartition(":")[2] for line in result.out_lines)) == ["150"]


def test_a_broken_pipe_kills_ranks_as_it_does_everywhere(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "sh", "-c", "(yes; echo $? >&2) | head -1")
    assert "[0]<stderr>:141" in result.err.splitlines()


def test_the_key_is_in_no_file_variable_or_argument_of_a_rank(jobs: Jobs) -> None:
    pytest.importorskip("horovod.runner")
    code = (
        "import os, pathlib\n"
        "from horovod.runner._key import key_of_job\n"
        "key, own = key_of_job(os.environ), pathlib.Path('/proc/self')\n"
        "seen = (own / 'environ').read_bytes() + (own / 'cmdline').read_bytes()\n"
        "files = [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3, 200)\n"
        "         if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "print(key in seen or key.hex().encode() in seen, files, key.hex())\n"
    )
    result = jobs.run("-np", "2", sys.executable, "-c", code)
    lines = [line.partition(":")[2] for line in result.out_lines]
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith("False [] ")
    again = jobs.run("-np", "1", sys.executable, "-c", code)
    assert again.out_lines[0].partition(":")[2] != lines[0]


def test_a_stranger_gets_nothing_from_the_store(jobs: Jobs, tmp_path: Path) -> None:
    script = jobs.script(
        "echo $HOROVOD_GLOO_RENDEZVOUS_PORT > port.tmp; mv port.tmp port; sleep 100"
    )
    process = jobs.start("-np", "1", script)
    wait_until((tmp_path / "port").exists, "the port")
    import socket

    port = int((tmp_path / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(os.urandom(4096))
        received = b""
        try:
            while data := stranger.recv(4096):
                received += data
        except ConnectionResetError:
            pass
    assert len(received) < 256  # its half of the handshake at most
    assert process.poll() is None
    process.terminate()
    ended(process)
