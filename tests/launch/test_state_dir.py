"""--state-dir on one host: what a job leaves when it ends before it is done, and how it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from launcher import Jobs, ended, pids_in, wait_gone, wait_until
from state_training import (
    EACH_COMMIT,
    SELDOM,
    committed_step,
    counting,
    entries,
    expect_goes_on,
    parts_of_newest,
    training,
    written_step,
)

from horovod.common._departure import EXIT_CODE

pytest.importorskip("horovod._core")

#: At step 20, all ranks have committed 20 steps, and the others may have saved the next one.
KILL_ONE = "if (rank(), state.step) == (1, 20): os.kill(os.getpid(), signal.SIGKILL)"
TELL = "if state.step == 10: tell_pid()"
STATE = ("--state-dir", "state")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_job_that_is_started_again_continues(ranks: int, jobs: Jobs) -> None:
    command = training(jobs.folder, KILL_ONE, "state.step >= 30")
    first = jobs.run("-np", "3", *STATE, *EACH_COMMIT, *command)
    assert first.code == 137, first.err
    step = written_step(jobs.folder / "state")
    assert step in (20, 21)
    command = training(jobs.folder, "pass", "state.step >= 30")
    second = jobs.run("-np", str(ranks), *STATE, *EACH_COMMIT, *command)
    assert second.code == 0, second.err
    assert [(one.size, one.step) for one in entries(second.out)] == [(ranks, step)] * ranks
    assert written_step(jobs.folder / "state") == 30


def test_an_elastic_job_that_has_lost_a_rank_continues_from_its_folder(jobs: Jobs) -> None:
    """The rank that replaces it has the state of the others, not that of the folder."""
    deed = (
        "if (generation, rank(), state.step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if generation >= 2 and state.step == 100: touch('joined')"
    )
    command = training(jobs.folder, deed, "False")
    process = jobs.start("-np", "3", "--min-np", "2", *STATE, *EACH_COMMIT, *command)
    wait_until((jobs.folder / "joined").exists, "the third rank")
    process.send_signal(signal.SIGTERM)
    first = ended(process)
    assert first.code == 143, first.err
    steps = {(one.generation, one.step) for one in entries(first.out)}
    generations = sorted(generation for generation, _ in steps)
    assert generations == sorted(set(generations)), "ranks of one generation began at one step"
    assert all(step >= 10 for generation, step in steps if generation > 0)
    written = written_step(jobs.folder / "state")
    assert written >= 100 and parts_of_newest(jobs.folder / "state") == 3
    again = training(jobs.folder, "pass", "state.step >= 500")
    second = jobs.run("-np", "2", *STATE, "--state-seconds", "0", *again)
    assert second.code == 0, second.err
    assert [(one.size, one.step) for one in entries(second.out)] == [(2, written)] * 2


def test_a_job_that_was_done_ends_at_once(jobs: Jobs) -> None:
    command = training(jobs.folder, "pass", "state.step >= 7")
    for step in (0, 7):
        result = jobs.run("-np", "2", *STATE, *SELDOM, *command)
        assert result.code == 0, result.err
        assert [one.step for one in entries(result.out)] == [step, step]


@pytest.mark.parametrize("elastic", [(), ("--min-np", "1")])
def test_if_the_launcher_is_killed_the_ranks_write_their_state(
    elastic: tuple[str, ...], jobs: Jobs
) -> None:
    command = training(jobs.folder, TELL, "False")
    process = jobs.start("-np", "2", *elastic, *STATE, *SELDOM, "--grace-seconds", "50", *command)
    pids = pids_in(jobs.folder, 2)
    process.kill()
    wait_gone(pids)
    assert written_step(jobs.folder / "state") >= 10
    assert parts_of_newest(jobs.folder / "state") == 2
    command = training(jobs.folder, "pass", "state.step >= 500")
    again = jobs.run("-np", "1", *STATE, "--state-seconds", "0", *command)
    assert again.code == 0, again.err
    assert entries(again.out)[0].step >= 10


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("first", ["the launcher", "the rank"])
def test_if_a_rank_is_killed_with_the_launcher_the_others_write_the_last_commit(
    victim: int, first: str, jobs: Jobs
) -> None:
    command = counting(jobs.folder, 0.02)
    flags = ("--min-np", "1", *STATE, *SELDOM, "--grace-seconds", "50")
    process = jobs.start("-np", "3", *flags, *command)
    pids = pids_in(jobs.folder, 3)
    lost = int((jobs.folder / f"{victim}.pid").read_text())
    for pid in (process.pid, lost) if first == "the launcher" else (lost, process.pid):
        os.kill(pid, signal.SIGKILL)
    wait_gone(pids)
    step = max(committed_step(jobs.folder, pid) for pid in pids if pid != lost)
    assert step >= 10 and step <= written_step(jobs.folder / "state") <= step + 1
    again = jobs.run("-np", "2", *flags, *counting(jobs.folder, 0))
    assert again.code == 0, again.err
    expect_goes_on(jobs.folder, again.out, step, ranks=2)


@pytest.mark.parametrize("elastic", [(), ("--min-np", "3", "--reset-limit", "0")])
def test_if_a_job_ends_since_a_rank_is_killed_the_others_write_the_last_commit(
    elastic: tuple[str, ...], jobs: Jobs
) -> None:
    flags = ("-np", "3", *elastic, *STATE, *SELDOM)
    process = jobs.start(*flags, *counting(jobs.folder, 0.02))
    pids = pids_in(jobs.folder, 3)
    lost = int((jobs.folder / "1.pid").read_text())
    os.kill(lost, signal.SIGKILL)
    first = ended(process)
    assert first.code == 137, first.err
    written = re.findall(r"its last commit was written to (.*/state/commit-\S+)", first.err)
    assert written and all(Path(path).name in os.listdir(jobs.folder / "state") for path in written)
    step = max(committed_step(jobs.folder, pid) for pid in pids if pid != lost)
    assert step >= 10 and step <= written_step(jobs.folder / "state") <= step + 1
    again = jobs.run("-np", "2", *STATE, *SELDOM, *counting(jobs.folder, 0))
    assert again.code == 0, again.err
    expect_goes_on(jobs.folder, again.out, step, ranks=2)


def test_ranks_that_go_on_without_a_lost_one_write_no_more_than_before(jobs: Jobs) -> None:
    deed = (
        "if (generation, rank(), state.step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if generation >= 1 and state.step == 20: print('has', os.listdir('state'), flush=True)"
    )
    command = training(jobs.folder, deed, "generation >= 1 and state.step >= 30")
    flags = ("--min-np", "2", "--reset-limit", "1", *STATE, *SELDOM)
    result = jobs.run("-np", "3", *flags, *command)
    assert result.code == 0, result.err
    listed = re.findall(r"has \[(.*)\]", result.out)
    written = [re.findall(r"commit-\d+", one) for one in listed]
    assert written and all(one == ["commit-000000000002"] for one in written)


def test_ranks_that_reach_no_commit_end_all_the_same(jobs: Jobs) -> None:
    deed = f"{TELL}\nif state.step == 10: time.sleep(1000)"
    command = training(jobs.folder, deed, "False")
    process = jobs.start("-np", "2", *STATE, "--grace-seconds", "0.5", *command)
    pids = pids_in(jobs.folder, 2)
    process.kill()
    wait_gone(pids)


def test_the_state_is_written_when_the_job_is_asked_to_end(jobs: Jobs) -> None:
    command = training(jobs.folder, TELL, "False")
    process = jobs.start("-np", "2", *STATE, *SELDOM, "--grace-seconds", "50", *command)
    pids_in(jobs.folder, 2)
    process.send_signal(signal.SIGTERM)
    assert ended(process).code == 143
    assert written_step(jobs.folder / "state") >= 10


def test_a_data_loader_of_a_rank_is_there_until_it_commits(jobs: Jobs) -> None:
    """SIGTERM is for the rank: without its children it could not reach its commit."""
    deed = (
        "import subprocess\n"
        "if state.step == 0: global loader; loader = subprocess.Popen(['sleep', '1000'])\n"
        f"assert loader.poll() is None\n{TELL}"
    )
    command = training(jobs.folder, f"exec({deed!r}, globals())", "False")
    process = jobs.start("-np", "2", *STATE, *SELDOM, "--grace-seconds", "50", *command)
    pids_in(jobs.folder, 2)
    process.send_signal(signal.SIGTERM)
    result = ended(process)
    assert result.code == 143, result.err
    assert written_step(jobs.folder / "state") >= 10


def test_a_rank_with_sigterm_leaves_and_the_others_go_on(jobs: Jobs) -> None:
    deed = (
        "if (generation, rank(), state.step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGTERM)\n"
        "if generation == 0: assert state.step < 20"
    )
    command = training(jobs.folder, deed, "generation >= 1 and state.step >= 40")
    flags = ("-np", "3", "--min-np", "2", "--reset-limit", "1")
    result = jobs.run(*flags, *command)
    assert result.code == 0, result.err
    found = {one.rank: one for one in entries(result.out) if one.generation == 0}
    later = {one.rank: one for one in entries(result.out) if one.generation == 1}
    assert [later[rank].pid for rank in range(2)] == [found[rank].pid for rank in (0, 2)]
    assert {one.step for one in later.values()} == {11}  # the commit at which it left
    (left,) = [line for line in result.said if "rank 1 in slot 1 of " in line]
    assert left.endswith(" leaves at a commit; the job goes on without it")


#: The end of a rank takes long, as Python with a framework does: here, until the others have made
#: steps of the next generation.
LONG_END = """
import atexit, os, time
def linger():
    give_up = time.monotonic() + 20
    while not os.path.exists("went_on") and time.monotonic() < give_up: time.sleep(0.01)
    print("ended", "second" if os.path.exists("went_on") else "first", flush=True)
"""


def test_the_others_do_not_wait_until_a_rank_that_leaves_has_ended(jobs: Jobs) -> None:
    deed = (
        "if (generation, rank(), state.step) == (0, 0, 10):\n"
        "    atexit.register(linger)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "if (generation, rank(), state.step) == (1, 0, 20): touch('went_on')"
    )
    command = training(jobs.folder, deed, "generation >= 1 and state.step >= 40", LONG_END)
    result = jobs.run("-np", "3", "--min-np", "2", "--reset-limit", "1", *command)
    assert result.code == 0, result.err
    assert "ended second" in result.out and "ended first" not in result.out


#: A framework, which a process that is started later has in another version.
OTHER_VERSION = """
import sys, types
from horovod.common import elastic_job
version = "3.1" if elastic_job.generation() < 0 else "3.0"
sys.modules["tf_keras"] = types.SimpleNamespace(__version__=version)
"""


def test_a_joiner_with_another_version_is_rejected_and_the_others_go_on(jobs: Jobs) -> None:
    deed = "if (generation, rank(), state.step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "generation >= 3 and state.step >= 40", OTHER_VERSION)
    result = jobs.run("-np", "3", "--min-np", "2", *command)
    assert result.code == 0, result.err
    rejected = "rank 2 on .* was rejected .* it has tf_keras 3.1, and rank 0 on .* tf_keras 3.0;"
    assert re.search(f"RuntimeError: {rejected}", result.err), result.err
    found = entries(result.out)
    assert {one.size for one in found if one.generation > 0} == {2}
    survivors = {one.pid for one in found if one.generation == 0 and one.rank != 1}
    assert {one.pid for one in found if one.generation > 0} == survivors


#: A function with `run` that ends before the one that trains begins.
FIRST_CALL = """
from horovod.common._elastic_loop import run

@run
def prepare(state):
    pass
"""


def test_a_joiner_in_another_function_is_rejected_and_the_others_go_on(jobs: Jobs) -> None:
    deed = "if (generation, rank(), state.step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "generation >= 3 and state.step >= 40", FIRST_CALL)
    script = jobs.folder / "train.py"
    script.write_text(script.read_text().replace("\ntrain(", "\nprepare(state)\ntrain("))
    result = jobs.run("-np", "3", "--min-np", "2", *command)
    assert result.code == 0, result.err
    rejected = (
        r"rank 2 on .* has entered prepare\(\) .*, and rank 0 on .* is in train\(\) \(call 2 of"
    )
    assert re.search(f"RuntimeError: {rejected}", result.err), result.err
    assert {one.size for one in entries(result.out) if one.generation > 0} == {2}


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_gives_one_warning_and_training_continues(jobs: Jobs, full_disk: Path) -> None:
    command = training(jobs.folder, "pass", "state.step >= 20")
    result = jobs.run("-np", "2", "--state-dir", str(full_disk), *EACH_COMMIT, *command)
    assert result.code == 0, result.err
    lines = [line for line in result.err.splitlines() if "could not be written" in line]
    assert len(lines) == 1
    assert re.search("rank [01]: No space left on device. Training continues", lines[0])


@pytest.mark.parametrize("victim", [0, 1])
def test_if_one_rank_gets_sigterm_all_leave_at_its_commit(victim: int, jobs: Jobs) -> None:
    """Without an elastic job, the others could not go on."""
    flags = ("-np", "3", *STATE, *SELDOM, "--grace-seconds", "10")
    process = jobs.start(*flags, *counting(jobs.folder, 0.02))
    pids = pids_in(jobs.folder, 3)
    os.kill(int((jobs.folder / f"{victim}.pid").read_text()), signal.SIGTERM)
    first = ended(process)
    assert first.code == EXIT_CODE, first.err
    assert "Error" not in first.err, "the others have left, too"
    step = left_at(jobs.folder, pids)
    again = jobs.run(*flags, *counting(jobs.folder, 0))
    assert again.code == 0, again.err
    assert f"begins at {step}\n" in again.out
    expect_goes_on(jobs.folder, again.out, step, ranks=3)


def left_at(folder: Path, pids: list[int]) -> int:
    """The step of the commit at which all of these ranks have left, and which they have written."""
    (step,) = {committed_step(folder, pid) + 1 for pid in pids}  # noted after the commit
    assert step > 10 and written_step(folder / "state") == step
    assert parts_of_newest(folder / "state") == len(pids)
    return step


def under_torchrun(jobs: Jobs, command: list[str], *flags: str, seconds: str) -> Popen[bytes]:
    """Two ranks with a state folder. `seconds`: HOROVOD_STATE_SECONDS."""
    pytest.importorskip("torch")
    _, program, *arguments = command
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    environment = {"HOROVOD_STATE_DIR": "state", "HOROVOD_STATE_SECONDS": seconds}
    process = Popen(
        [*torchrun, *flags, program, *arguments],
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=jobs.folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    jobs.started.append(process)
    return process


def test_torchrun_restarts_all_ranks_from_the_folder(jobs: Jobs) -> None:
    deed = (
        "if (rank(), state.step) == (1, 20) and not os.path.exists('killed'):\n"
        "  touch('killed')\n  os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = training(jobs.folder, deed, "state.step >= 30")
    result = ended(under_torchrun(jobs, command, "--max-restarts=1", seconds="0.001"))
    assert result.code == 0, result.out + result.err
    assert sorted(one.step for one in entries(result.out)) in ([0, 0, 20, 20], [0, 0, 21, 21])
    assert written_step(jobs.folder / "state") == 30


def test_ranks_of_torchrun_leave_when_it_gets_sigterm(jobs: Jobs) -> None:
    """As at the end of a pod. It passes the signal to all its ranks."""
    process = under_torchrun(jobs, counting(jobs.folder, 0.02), seconds="1000")
    pids = pids_in(jobs.folder, 2)
    process.send_signal(signal.SIGTERM)
    first = ended(process)
    assert first.code != 0
    step = left_at(jobs.folder, pids)
    again = ended(under_torchrun(jobs, counting(jobs.folder, 0), seconds="1000"))
    assert again.code == 0, again.err
    assert f"begins at {step}\n" in again.out
    expect_goes_on(jobs.folder, again.out, step, ranks=2)


def test_torchrun_kills_ranks_that_reach_no_commit_in_its_time(jobs: Jobs) -> None:
    """docs/deploy.md names this option."""
    command = training(jobs.folder, f"{TELL}\nif state.step == 10: time.sleep(1000)", "False")
    process = under_torchrun(jobs, command, "--shutdown-timeout=1", seconds="1000")
    pids = pids_in(jobs.folder, 2)
    process.send_signal(signal.SIGTERM)
    result = ended(process)
    assert result.code != 0 and "via 15, forcefully exiting via 9" in result.err, result.err
    wait_gone(pids)
