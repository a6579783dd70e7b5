"""The batch script: under a Slurm that the tests start, and with stand-ins for its programs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import launcher
import pytest
import slurm_lab
from slurm_lab import Lab
from state_training import entries, training, written_step

from devtool.paths import ROOT

SCRIPT = ROOT / "deploy" / "slurm" / "train.sbatch"
EXAMPLE = ROOT / "examples" / "pytorch" / "fashion_mnist.py"
SECONDS = 300  # a limit for hangs: on a busy machine, importing torch takes minutes


def wait_until(true: Callable[[], bool], what: str) -> None:
    launcher.wait_until(true, what, SECONDS)


def await_text(file: Path, text: str) -> str:
    def seen() -> str:
        return file.read_text() if file.exists() else ""

    try:
        wait_until(lambda: text in seen(), repr(text))
    except pytest.fail.Exception as failure:
        pytest.fail(f"{failure}:\n{seen()}")
    return seen()


class Stand:
    """Programs in the place of Slurm's. srun runs what it is given, scancel sends it a signal, and
    scontrol shows the job as a test has it and notes what else it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        self.launching = folder / "launching"
        step = folder / "step"
        lines = [
            'while [ "${1#-}" != "$1" ]; do shift; done',
            'trap "exit 1" USR1',  # as srun does until it has a step
            f"touch {self.launching}",
            f'while [ "$HELD" ] && [ -e {self.launching} ]; do sleep 0.01; done',
            '"$@" &',
            f"echo $! > {step}",
            'trap "kill -KILL $!" TERM',  # as srun does
            'trap "kill -USR1 $!" USR1',
            "while wait $!; status=$?; kill -0 $! 2> /dev/null; do :; done",
            "exit $status",
        ]
        self.program("srun", "\n".join(lines))
        tell = f'kill "-${{1#--signal=}}" "$(cat {step})"'
        self.program("scancel", f'[ "$2" = 17 ] || exit 1\n[ ! -e {step} ] || {tell}')
        show = 'if [ "$2" = show ]; then echo "$JOB"; exit; fi'
        self.program("scontrol", f'{show}\necho "$@" >> {self.asked}')

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def start(self, step: str, **more: str) -> subprocess.Popen[str]:
        path = f"{self.folder}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", str(SCRIPT), "bash", "-c", step],
            env={**os.environ, "PATH": path, "SLURM_JOB_ID": "17", **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


#: A step that saves for a while when it is told to stop.
SAVES = 'sleep 1000 & trap "sleep 0.3; echo saved; kill $!; exit 0" USR1; echo there; wait'


def signalled(stand: Stand, step: str, **more: str) -> tuple[int, str]:
    job = stand.start(step, **more)
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=SECONDS)
    return job.returncode, output


def test_a_job_that_was_told_to_stop_saves_and_is_queued_again(stand: Stand) -> None:
    code, output = signalled(stand, SAVES)
    assert code == 0
    assert output.index("told to save") < output.index("saved") < output.index("queued again")
    assert stand.asked.read_text() == "requeue 17\n"


def test_a_job_that_does_not_know_the_signal_is_queued_again_too(stand: Stand) -> None:
    code, _ = signalled(stand, "echo there; exec sleep 60")
    assert code == 138
    assert stand.asked.read_text() == "requeue 17\n"


def test_ranks_with_a_state_folder_get_sigterm_and_the_job_is_queued_again(stand: Stand) -> None:
    step = SAVES.replace("exit 0", "exit 143").replace("USR1", "TERM")
    code, output = signalled(stand, step, HOROVOD_STATE_DIR="state")
    assert code == 143
    assert output.index("saved") < output.index("queued again")
    assert stand.asked.read_text() == "requeue 17\n"


#: By which signal ranks end, and what makes it that one.
BY_SIGNAL = pytest.mark.parametrize(
    ("number", "more"),
    [(signal.SIGUSR1, {}), (signal.SIGTERM, {"HOROVOD_STATE_DIR": "state"})],
    ids=["usr1", "state"],
)


@BY_SIGNAL
def test_a_signal_before_the_ranks_run_is_kept_for_them(
    stand: Stand, number: signal.Signals, more: dict[str, str]
) -> None:
    job = stand.start("echo trained; exit 5", HELD="yes", **more)
    assert job.stdout is not None
    wait_until(stand.launching.exists, "srun to be started")
    job.send_signal(signal.SIGUSR1)
    assert "told to save" in job.stdout.readline()
    stand.launching.unlink()
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 128 + number, output
    assert "trained" not in output
    assert stand.asked.read_text() == "requeue 17\n"


@BY_SIGNAL
def test_a_signal_before_srun_is_kept_for_the_ranks(
    stand: Stand, number: signal.Signals, more: dict[str, str]
) -> None:
    real = shutil.which("mktemp")
    stand.program("mktemp", f'kill -USR1 $PPID\nexec {real} "$@"')
    job = stand.start("echo trained; exit 5", **more)
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 128 + number, output
    assert "trained" not in output
    assert stand.asked.read_text() == "requeue 17\n"


def test_a_training_continues_from_its_state_folder_when_it_is_queued_again(stand: Stand) -> None:
    """One rank, which no launcher started."""
    pytest.importorskip("horovod._core")
    state, ready = stand.folder / "state", stand.folder / "ready"
    deed = f"if state.step == 10: touch({str(ready)!r})"
    _, program, *arguments = training(stand.folder, deed, "False")
    command = [sys.executable, str(stand.folder / program)]
    job = stand.start(shlex.join([*command, *arguments]), HOROVOD_STATE_DIR=str(state))
    wait_until(ready.exists, "the training to begin")
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 143, output
    assert stand.asked.read_text() == "requeue 17\n"
    step = written_step(state)
    assert step >= 10
    again = shlex.join([*command, "pass", f"state.step >= {step + 5}"])
    job = stand.start(again, HOROVOD_STATE_DIR=str(state), SLURM_RESTART_COUNT="1")
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 0, output
    assert [one.step for one in entries(output)] == [step]
    assert written_step(state) == step + 5


def test_a_job_that_ends_by_itself_is_not_queued_again(stand: Stand) -> None:
    job = stand.start("exit 0")
    job.communicate(timeout=SECONDS)
    assert job.returncode == 0
    assert not stand.asked.exists()


def test_a_job_that_is_cancelled_does_not_come_back(stand: Stand) -> None:
    """scancel sends SIGTERM."""
    job = stand.start(SAVES)
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    job.send_signal(signal.SIGTERM)
    job.wait(timeout=SECONDS)
    os.killpg(job.pid, signal.SIGKILL)  # as Slurm does with what is left
    job.communicate(timeout=SECONDS)
    assert not stand.asked.exists()


@pytest.mark.parametrize(
    ("state", "preempted", "asked"),
    [
        ("RUNNING", "2026-01-01T00:00:00", "requeue 17\n"),
        ("RUNNING", "None", ""),
        ("CANCELLED", "2026-01-01T00:00:00", ""),  # it was preempted before, and is cancelled now
    ],
)
def test_a_job_whose_ranks_were_ended_comes_back_if_its_nodes_were_taken(
    stand: Stand, state: str, preempted: str, asked: str
) -> None:
    said = f"JobId=17 JobState={state} Reason=None PreemptTime={preempted} SuspendTime=None"
    job = stand.start("kill -TERM $$", JOB=said)
    job.communicate(timeout=SECONDS)
    assert job.returncode == 143
    assert (stand.asked.read_text() if asked else "") == asked
    assert stand.asked.exists() == bool(asked)


def test_a_job_that_fails_while_it_saves_has_failed(stand: Stand) -> None:
    code, _ = signalled(stand, SAVES.replace("exit 0", "exit 5"))
    assert code == 5
    assert not stand.asked.exists()


def test_a_job_does_not_go_round_for_ever(stand: Stand) -> None:
    code, output = signalled(stand, SAVES, SLURM_RESTART_COUNT="3", MOST_RESTARTS="3")
    assert code == 1
    assert "MOST_RESTARTS" in output
    assert not stand.asked.exists()


def test_without_a_program_the_usage_is_told() -> None:
    ended = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "usage: sbatch train.sbatch" in ended.stderr


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if why := slurm_lab.why_not():
        pytest.skip(why)
    with slurm_lab.running() as one:
        yield one


@pytest.mark.slow
def test_under_slurm_a_training_is_stopped_and_goes_on_where_it_was(
    lab: Lab, tmp_path: Path
) -> None:
    """By a signal as Slurm sends it, which --signal only decides the time of."""
    environment = {**os.environ, **lab.variables, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(EXAMPLE), "--train-images", "512", "--epochs", "1000"]
    program += ["--checkpoint-dir", str(tmp_path / "run")]
    with submitted(environment, tmp_path, program) as (job, out):
        await_text(out, "epoch 2: ")
        stop(environment, job)
        seen = await_text(out, "queued again")
        assert "stopped after epoch" in seen
        start_soon(environment, job, out)
        await_text(out, "going on after epoch")


@pytest.mark.slow
def test_under_slurm_ranks_continue_from_their_state_folder(lab: Lab, tmp_path: Path) -> None:
    state = tmp_path / "state"
    environment = {**os.environ, **lab.variables, "HOROVOD_STATE_DIR": str(state)}
    end = "'SLURM_RESTART_COUNT' in os.environ and state.step % 50 == 0"
    deed = "if state.step == 10: print('ten steps', flush=True)"
    with submitted(environment, tmp_path, training(tmp_path, deed, end)) as (job, out):
        await_text(out, "ten steps")
        stop(environment, job)
        await_text(out, "queued again")
        step = written_step(state)
        assert step >= 10
        start_soon(environment, job, out)
        wait_until(lambda: out.read_text().count("ended\n") == 2, "both ranks to end")
        text = out.read_text()
    assert [(one.size, one.step) for one in entries(text)] == [(2, 0)] * 2 + [(2, step)] * 2


@pytest.mark.slow
@BY_SIGNAL
def test_under_slurm_a_signal_before_the_ranks_run_is_kept_for_them(
    lab: Lab, tmp_path: Path, number: signal.Signals, more: dict[str, str]
) -> None:
    """srun has a step, and is held up before it starts the ranks."""
    launching, go = tmp_path / "launching", tmp_path / "go"
    prolog = tmp_path / "prolog"
    prolog.write_text(f"#!/bin/sh\ntouch {launching}\nuntil [ -e {go} ]; do sleep 0.05; done\n")
    prolog.chmod(0o755)
    environment = {**os.environ, **lab.variables, "SLURM_PROLOG": str(prolog), **more}
    with submitted(environment, tmp_path, ["bash", "-c", "echo trained; exit 5"]) as (job, out):
        wait_until(launching.exists, "srun to be started")
        stop(environment, job)
        await_text(out, "told to save")
        go.touch()
        seen = await_text(out, "queued again")
        assert "trained" not in seen
        if number == signal.SIGTERM:
            assert "Terminated" in seen


@contextlib.contextmanager
def submitted(
    environment: dict[str, str], folder: Path, program: list[str]
) -> Iterator[tuple[str, Path]]:
    """A job of the batch script: its number, and where its output goes."""
    out = folder / "out"
    command = ["sbatch", "--parsable", f"--output={out}", str(SCRIPT), *program]
    told = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=folder, check=True
    )
    job = told.stdout.strip()
    try:
        yield job, out
    finally:
        subprocess.run(["scancel", job], env=environment)


def stop(environment: dict[str, str], job: str) -> None:
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], env=environment, check=True)


def start_soon(environment: dict[str, str], job: str, out: Path) -> None:
    """Slurm lets two minutes pass before it starts a job again, unless it is told otherwise. Nodes
    refuse what was granted in the second in which they have ended the last start, or before. The
    job would fail without a word (Job credential revoked), so a whole second has to pass."""

    def ask(*command: str) -> str:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        return ended.stdout.strip()

    def state() -> str:
        shown = ask("scontrol", "show", "job", job)
        found = re.search(r"JobState=(\w+)", shown)
        assert found and found[1] not in ("FAILED", "CANCELLED", "NODE_FAIL"), (
            f"{shown}\n{out.read_text()}"
        )
        return found[1] if "Restarts=1" in shown else "still the first start"

    wait_until(lambda: state() == "PENDING", "the job to be queued")  # no node has it any more
    ask("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    wait_until(lambda: state() in ("RUNNING", "COMPLETED"), "the job to be started again")
