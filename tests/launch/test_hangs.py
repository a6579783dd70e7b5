"""horovodrun --dump names rank, operation, line and class of the cause of a hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from dead_files import dead_files_or_skip
from hang_causes import CAUSES, NOT_STARTED, right_in, right_in_start, write_training
from hanging import dump, dumped, explained, start_hanging
from launcher import (
    WATCHDOG_SECONDS,
    Jobs,
    ended,
    horovodrun,
    inherited,
    proc_number,
    wait_until,
)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_hang_is_explained(jobs: Jobs, cause: str) -> None:
    hang = CAUSES[cause]
    with ExitStack() as files:
        env = {}
        if hang.needs_dead_file:
            dead = files.enter_context(dead_files_or_skip(jobs.folder / "dead", reads=False))
            env = {"DEAD_FILE": str(dead.file)}
        found = explained(start_hanging(jobs, hang.code, env=env), [2])
        right = right_in(found, hang, jobs.folder / "train.py")
    if not hang.has_place:
        del right["line"]
    assert all(right.values()), (right, found)


def test_a_rank_that_has_not_called_init_is_named(jobs: Jobs) -> None:
    found = explained(start_hanging(jobs, NOT_STARTED), [2], starts=True)
    right = right_in_start(found, jobs.folder / "train.py")
    del right["line"]  # needs py-spy
    assert all(right.values()), (right, found)


def test_the_text_shows_what_each_rank_does(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["lock"].code)
    cause = explained(job, [2])["cause"]["text"]
    result = dump(job)
    first, *lines = result.stdout.splitlines()
    assert first.split(" for ")[0] == cause.split(" for ")[0]
    assert "lock.acquire()  # here" in [line.strip() for line in lines]
    assert [line for line in lines if line.startswith("Rank 2 on localhost, process ")]
    assert "  generation 1, step 3, 5 batches" in lines
    awaited = "  pending: grad.fc.weight (allreduce float32 [4]), "
    assert len([line for line in lines if line.startswith(awaited)]) == 2
    assert len([line for line in lines if line.startswith("  submitted last: loss (")]) == 1


SECOND_JOB = """
def main():
    for steps in 1, 5:
        _stack.prepare()
        core.init()
        train(steps)
        core.shutdown()
def hang():
    time.sleep(1000)  # here
def train(steps):
    for step in range(steps):
        reduce("loss")
        if step == 2 and RANK == core.world().size - 1:
            hang()
        reduce("grad.fc.weight")
main()
"""


def test_a_second_job_of_the_same_processes_is_explained(jobs: Jobs) -> None:
    found = explained(start_hanging(jobs, SECOND_JOB), [2])
    assert found["cause"]["operation"] == "grad.fc.weight"
    assert found["cause"]["text"].endswith("in hang")


def test_a_stopped_worker_of_an_elastic_job_is_named_by_its_rank(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["sigstop"].code, "--min-np", "2")
    found = explained(job, [2])
    assert (found["cause"]["class"], found["cause"]["operation"]) == ("stopped", "grad.fc.weight")
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2]


def test_a_quit_signal_shows_the_dump_and_the_job_goes_on(jobs: Jobs) -> None:
    with inherited(signal.SIGQUIT, signal.SIG_DFL):
        job = start_hanging(jobs, CAUSES["lock"].code)
    explained(job, [2])
    assert job.stderr is not None
    for _ in range(2):
        job.send_signal(signal.SIGQUIT)
        line = job.stderr.readline().decode()
        assert line.startswith("horovodrun: rank 2 has not submitted grad.fc.weight, which ranks ")
        rank, begin = -1, "horovodrun: Rank "
        while rank != 2 or not line.endswith(" train(5)\n"):  # the last one
            line = job.stderr.readline().decode()
            rank = int(line[len(begin)]) if line.startswith(begin) else rank
    assert job.poll() is None


def test_a_stall_report_is_followed_by_the_cause_and_the_stack(jobs: Jobs) -> None:
    stall = ["--stall-check-warning-time-seconds", "1"]
    job = start_hanging(jobs, CAUSES["lock"].code, *stall)
    assert job.stderr is not None
    lines: list[str] = []
    while not lines or lines[-1] != "horovodrun:       lock.acquire()  # here":
        lines.append(job.stderr.readline().decode().rstrip())
    report = next(index for index, line in enumerate(lines) if line.endswith("Missing ranks:"))
    begin = (
        "horovodrun: rank 2 has not submitted grad.fc.weight, which ranks 0, 1 have awaited for "
    )
    assert [line for line in lines[report:] if line.startswith(begin)]
    assert not [line for line in lines if line.startswith("horovodrun: Rank 0")]


def test_the_ranks_of_a_stopped_launcher_are_asked_without_it(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["lock"].code)
    explained(job, [2])
    job.send_signal(signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{job.pid}/status").read_text(), "the stop")
    found = dumped(job)
    assert found["cause"]["class"] == "lock"
    remark = f"horovodrun (process {job.pid}) does not answer: only ranks on this host are shown"
    assert found["remarks"] == [remark]


HEALTHY = """
def hang(): pass
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
def reduce(name):
    values = array.array("f", [1.0])
    tensor = values.buffer_info()[0], (1,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), name, tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
    assert values[0] == core.world().size
    time.sleep(0.001)
"""


def test_a_healthy_job_is_not_accused_and_goes_on(jobs: Jobs) -> None:
    script = write_training(jobs.folder, HEALTHY, steps=1500)
    job = jobs.start("-np", "2", sys.executable, str(script))
    causes: list[str] = []

    def has_seen_some() -> bool:
        found = dumped(job)
        if found is not None and all(one["state"] for one in found["ranks"]):
            causes.append(found["cause"]["class"])
        return len(causes) == 10

    wait_until(has_seen_some, "ten dumps")
    job.send_signal(signal.SIGUSR1)  # the script's own
    result = ended(job)
    assert (result.code, result.out_lines.count("[0]<stdout>:end")) == (0, 1), result.err
    assert set(causes) == {"none"}


def test_a_signal_that_has_a_handler_is_left_alone(jobs: Jobs) -> None:
    mine = "signal.signal(59, lambda *_: os._exit(9))\n" + CAUSES["sleep"].code
    job = start_hanging(jobs, mine)
    texts: list[str] = []

    def has_dumped_all() -> bool:
        found = dumped(job)
        if found is None or {one["stage"] for one in found["ranks"]} != {"running"}:
            return False
        assert not any(one["answers"] or one["state"] for one in found["ranks"])
        texts.append(found["cause"]["text"])
        return True

    wait_until(has_dumped_all, "a dump")
    assert texts[-1] == "no rank has told what it waits for"
    assert job.poll() is None


def test_without_a_job_the_dump_says_so(jobs: Jobs) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        result = jobs.run("--dump", str(other.pid))
        other.kill()
    assert result.code == 2
    begin = f"process {other.pid} is not a horovodrun of this user that has started ranks, nor "
    assert result.said[0].startswith(begin)


# ---- Which process is meant ----------------------------------------------------------------------

#: The job ends with the shell.
WRAPPER = ["sh", "-c", 'setpriv --pdeathsig KILL "$@"; exit $?', "sh"]


def ranks_named_by(process: int) -> Any:
    command = [horovodrun(), "--dump-json", str(process)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["cause"]["ranks"]


def test_a_rank_its_supervisor_and_a_wrapper_name_the_job(jobs: Jobs) -> None:
    """Another job runs as well."""
    jobs.start("-np", "1", "sleep", "1000")
    jobs.through = WRAPPER
    wrapper = start_hanging(jobs, CAUSES["lock"].code)
    rank = explained(wrapper, [2])["ranks"][1]["process"]
    supervisor = proc_number(rank, "status", "PPid")
    for process in (rank, supervisor, proc_number(supervisor, "status", "PPid")):
        assert ranks_named_by(process) == [2]
    jobs.through = []
    result = jobs.run("--dump", str(os.getpid()))
    assert result.code == 2
    assert result.said[0].startswith(f"several jobs run below process {os.getpid()}; name the ")
