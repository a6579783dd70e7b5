"""Signals to the launcher: which of them end the job and how, and which belong to the ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from launcher import (
    Ended,
    Jobs,
    ended,
    horovodrun,
    inherited,
    pids_in,
    start_family,
    wait_gone,
    wait_until,
)

INTERRUPTING = "SIGINT: interrupting all ranks; SIGTERM follows in 10 s, or with another SIGINT"


def start_python(
    jobs: Jobs, size: int, text: str, pids: int, *flags: str
) -> subprocess.Popen[bytes]:
    """Ranks that write `pids` files of `<number>.pid` together when they are ready."""
    (jobs.folder / "rank.py").write_text(BEGIN + text)
    with inherited(signal.SIGINT, signal.SIG_DFL):
        process = jobs.start("-np", str(size), *flags, sys.executable, "rank.py")
    pids_in(jobs.folder, pids)
    return process


BEGIN = """
import os, signal, subprocess, sys, time
rank = int(os.environ["HOROVOD_RANK"])
def ready():
    with open(f"{os.getpid()}.part", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(f"{os.getpid()}.part", f"{os.getpid()}.pid")
def say(text):
    os.write(1, f"{text}\\n".encode())
"""


def by_rank(result: Ended) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in result.out_lines:
        head, _, text = line.partition("<stdout>:")
        found.setdefault(int(head.strip("[]")), []).append(text)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_all(jobs: Jobs, number: signal.Signals) -> None:
    with inherited(number, signal.SIG_DFL):
        process, pids = start_family(jobs)
    process.send_signal(number)
    result = ended(process)
    assert result.code == 128 + number
    assert result.said == [f"{number.name}: ending all ranks"]
    wait_gone(pids)


def test_a_launcher_started_with_nohup_ignores_the_hangup(jobs: Jobs) -> None:
    script = jobs.script("echo $$ > rank.pid; while [ ! -e go ]; do sleep 0.05; done")
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        process = jobs.start("-np", "1", script)
    pids_in(jobs.folder, 1)
    process.send_signal(signal.SIGHUP)
    (jobs.folder / "go").touch()
    assert ended(process).code == 0


# Rank 0 waits itself, rank 1 is a wrapper around the program that does. Each has a child in a
# session of its own, which a terminal does not interrupt.
INTERRUPTED = """
if rank == 1 and len(sys.argv) == 1:
    inner = subprocess.Popen([sys.executable, "rank.py", "inner"])
    try:
        inner.wait()
    except KeyboardInterrupt:
        say("wrapper")
    sys.exit(inner.wait())
subprocess.Popen(["sh", "-c", "trap 'echo INT' INT; trap 'echo TERM; exit' TERM; echo $$ > $$.part;"
                  "mv $$.part $$.pid; while :; do sleep 0.05; done"], start_new_session=True)
try:
    ready()
    time.sleep(1000)
except KeyboardInterrupt:
    time.sleep(0.3)  # SIGTERM would end it meanwhile
    say("saved")
finally:
    say("finally")
"""


def test_an_interrupt_lets_handlers_of_exceptions_run(jobs: Jobs) -> None:
    process = start_python(jobs, 2, INTERRUPTED, 4, "--grace-seconds", "0")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # a wrapper of the launcher hands it on
    result = ended(process)
    assert (result.code, result.said) == (130, [INTERRUPTING])
    assert by_rank(result)[0] == ["saved", "finally", "TERM"]
    assert sorted(by_rank(result)[1]) == sorted(["wrapper", "saved", "finally", "TERM"])


# Rank 1 waits in an operation for rank 0, which comes to no more than its handlers.
WAITING = """
import array
import horovod._core as core
import horovod.common.exceptions  # as bindings do
core.init()
try:
    if rank == 1:
        values = array.array("f", [1.0])
        at = values.buffer_info()[0]
        tensor = at, (1,), core.DTYPES["float32"], values
        handle = core.submit_tensors(core.Operation(core.ALLREDUCE), "x", tensor, tensor, None)
        ready()
        core.wait(handle)
    ready()
    time.sleep(1000)
except KeyboardInterrupt:
    say("saved")
finally:
    time.sleep(0)
    say("finally")
"""


def test_an_interrupted_rank_that_waits_for_another_one_sees_the_interrupt(jobs: Jobs) -> None:
    pytest.importorskip("horovod._core")
    process = start_python(jobs, 2, WAITING, 2)
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert by_rank(result) == {rank: ["saved", "finally"] for rank in range(2)}, result
    assert (result.code, result.err) == (130, f"horovodrun: {INTERRUPTING}\n")


# In a thread that has a handler of the process it would not interrupt what the script waits for.
THREADS = """
import pathlib
import horovod._core as core
core.init()
own = pathlib.Path("/proc/self/task")
def blocked(task):
    try:
        lines = (task / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return [signal.SIGINT]
    (mask,) = [line.split()[1] for line in lines if line.startswith("SigBlk:")]
    return [number for number in (signal.SIGINT, 32) if int(mask, 16) >> (number - 1) & 1]
for task in own.iterdir():
    while 32 in blocked(task):  # the C library has not started it yet
        time.sleep(0.01)
    if bool(blocked(task)) == (int(task.name) == os.getpid()):
        say((task / "comm").read_text())
core.shutdown()
"""


def test_no_thread_of_the_runtime_takes_a_signal(jobs: Jobs) -> None:
    pytest.importorskip("horovod._core")
    (jobs.folder / "rank.py").write_text(BEGIN + THREADS)
    env = {"HOROVOD_TIMELINE": "t.json"}  # by a thread of its own
    result = jobs.run("-np", "2", sys.executable, "rank.py", env=env)
    assert (result.code, result.out) == (0, ""), result


STUBBORN = """
def see(number, frame):
    say(signal.Signals(number).name)
    open(f"{number}.seen", "w").close()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, see)
ready()
while True:
    time.sleep(1)
"""


def test_each_further_interrupt_takes_the_next_step(jobs: Jobs) -> None:
    process = start_python(jobs, 1, STUBBORN, 1, "--grace-seconds", "60")
    process.send_signal(signal.SIGINT)
    wait_until((jobs.folder / "2.seen").exists, "SIGINT")
    time.sleep(0.6)  # so that it is not taken for the same one
    process.send_signal(signal.SIGINT)
    wait_until((jobs.folder / "15.seen").exists, "SIGTERM")
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert result.code == 130
    assert by_rank(result)[0] == ["SIGINT", "SIGTERM"]
    assert result.said == [
        INTERRUPTING.replace("10 s", "60 s"),  # none of the steps comes by itself meanwhile
        "SIGINT: ending all ranks",
        "SIGINT: killing all ranks",
        "rank 0 was stopped (SIGKILL)",
    ]


def test_another_signal_after_an_interrupt_is_the_next_step_at_once(jobs: Jobs) -> None:
    process, pids = start_family(jobs, argument="signal proof")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    time.sleep(2.1)  # so that it is not taken for the same one
    process.send_signal(signal.SIGTERM)
    assert ended(process).code in (130, 143)
    wait_gone(pids)


def test_what_is_stopped_is_continued_to_see_its_end(jobs: Jobs) -> None:
    script = jobs.script(
        "trap 'echo ended; exit' TERM; echo $$ > rank.pid; kill -STOP $$; while :; do sleep 1; done"
    )
    process = jobs.start("-np", "1", script)
    (pid,) = pids_in(jobs.folder, 1)
    wait_until(lambda: state(pid) == "T", "the rank to stop")
    process.terminate()
    assert ended(process).out_lines == ["[0]<stdout>:ended"]


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


# ---- Signals that belong to the ranks ----

# Who awaits the signal: rank 0, whose worker inherits the handler; a program below rank 1, below a
# shell too, and below one that ignores the signal; rank 2 from a queue.
HANDLERS = """
both = (signal.SIGUSR1, signal.SIGUSR2)
def take(number, frame=None):
    say(f"{who} {signal.Signals(number).name}")
    if number == signal.SIGUSR2:
        os._exit(0)
who = "rank"
if rank == 1 and len(sys.argv) == 1:
    sys.exit(subprocess.call(["sh", "-c", f"{sys.executable} rank.py shell; exit $?"]))
if sys.argv[1:] == ["shell"]:
    for number in both:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(subprocess.call([sys.executable, "rank.py", "inner"]))
if rank == 2:
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    ready()
    while True:
        take(signal.sigwait(both))
for number in both:
    signal.signal(number, take)
if rank == 0 and (worker := os.fork()) == 0:
    who = "worker"
ready()
if who == "rank" and rank == 0:
    os.waitpid(worker, 0)
time.sleep(1000)
"""


def test_a_signal_of_the_user_goes_to_who_awaits_it_on_each_rank(jobs: Jobs) -> None:
    process = start_python(jobs, 3, HANDLERS, 4)
    process.send_signal(signal.SIGUSR1)
    wait_for_lines(process, 3)
    process.send_signal(signal.SIGUSR2)
    result = ended(process)
    assert (result.code, result.err) == (0, "")
    assert by_rank(result) == {rank: ["rank SIGUSR2"] for rank in range(3)}


def wait_for_lines(process: subprocess.Popen[bytes], count: int) -> None:
    assert process.stdout is not None
    lines = sorted(process.stdout.readline().decode() for _ in range(count))
    if "" in lines:
        pytest.fail(f"the job ended: {ended(process)}, having written {lines}")
    assert lines == [f"[{rank}]<stdout>:rank SIGUSR1\n" for rank in range(count)]


def test_a_rank_without_a_handler_dies_of_it_and_that_is_told(jobs: Jobs) -> None:
    script = jobs.script("echo $$ > rank.pid; exec sleep 1000")
    process = jobs.start("-np", "1", script)
    pids_in(jobs.folder, 1)
    process.send_signal(signal.SIGUSR1)
    result = ended(process)
    assert result.code == 128 + signal.SIGUSR1
    assert result.said == ["rank 0 was killed by signal 10 (SIGUSR1); it wrote nothing"]


def test_before_the_ranks_are_started_there_is_nobody_to_take_a_signal(jobs: Jobs) -> None:
    silent = jobs.folder / "bin" / "ssh"
    silent.parent.mkdir()
    silent.write_text(f"#!/bin/sh\necho $$ > {jobs.folder}/ssh.pid\nexec sleep 1000\n")
    silent.chmod(0o755)
    env = {"PATH": f"{silent.parent}:{os.environ['PATH']}"}
    with inherited(signal.SIGINT, signal.SIG_DFL):
        process = jobs.start("-np", "1", "-H", "elsewhere:1", "true", env=env)
    pids = pids_in(jobs.folder, 1)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: not is_pending(process.pid, signal.SIGUSR1), "SIGUSR1 to be read")
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert result.code == 130
    assert result.said == [
        "SIGUSR1 is ignored: no rank has been started yet",
        "SIGINT: ending all ranks",
    ]
    wait_gone(pids)


def is_pending(pid: int, number: signal.Signals) -> bool:
    with open(f"/proc/{pid}/status") as file:
        (line,) = [line for line in file if line.startswith("ShdPnd:")]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


# ---- Terminals ----

TERMINAL = r"""
import fcntl, os, pathlib, signal, subprocess, sys, termios, time

keyboard, screen = os.openpty()
os.setsid()
fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as shells do
for number in (signal.SIGINT, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)  # which may be ignored where the tests run

def become_the_foreground():
    os.setpgrp()
    os.tcsetpgrp(screen, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)

def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

def until(true):
    while not true():
        time.sleep(0.01)

job = subprocess.Popen(sys.argv[1:], stdin=screen, preexec_fn=become_the_foreground)
until(lambda: list(pathlib.Path().glob("*.pid")))
rank = int(next(pathlib.Path().glob("*.pid")).stem)
os.write(keyboard, b"\x1a")  # Ctrl-Z
until(lambda: state(job.pid) == "T")
until(lambda: state(rank) == "T")
os.killpg(job.pid, signal.SIGCONT)
until(lambda: state(rank) != "T")
os.write(keyboard, b"\x03")  # Ctrl-C
print("ended with", job.wait())
"""


COUNTS_INTERRUPTS = """
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
ready()
while not seen:
    time.sleep(0.01)
time.sleep(0.2)  # for another one
say(f"interrupts: {len(seen)}")
"""


def test_keys_of_a_terminal_reach_the_ranks_once(jobs: Jobs) -> None:
    (jobs.folder / "terminal.py").write_text(TERMINAL)
    (jobs.folder / "rank.py").write_text(BEGIN + COUNTS_INTERRUPTS)
    rank = [sys.executable, "rank.py"]
    process = subprocess.Popen(
        [sys.executable, "terminal.py", horovodrun(), "-np", "1", *rank],
        cwd=jobs.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    jobs.started.append(process)
    result = ended(process)
    assert result.out_lines == ["[0]<stdout>:interrupts: 1", "ended with 130"]
    assert result.said == [INTERRUPTING]
