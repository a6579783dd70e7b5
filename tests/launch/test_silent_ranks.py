"""Ranks that stop, but do not end: the others give them up and say what they have seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_training import entries
from elastic_training import training as elastic_training
from launcher import Jobs, ended, wait_until

pytest.importorskip("horovod._core")

#: Every rank reduces an array again and again, tells its process in a file, and its step by the
#: file's size. `deed` is run before each step, by each rank.
TRAINING = """
import array, os, signal, sys, time
import horovod._core as core
from horovod.common.exceptions import HorovodInternalError
core.init()
rank = core.world().rank
deed, count, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
values = array.array("f", [1.0]) * count
address = values.buffer_info()[0]
progress = open(f"{rank}.steps", "w", buffering=1)
with open(f"{rank}.part", "w") as file:
    file.write(f"{os.getpid()}\\n")
os.rename(f"{rank}.part", f"{rank}.pid")
try:
    for step in range(steps):
        exec(deed)
        tensor = address, (count,), core.DTYPES["float32"], values
        handle = core.submit_tensors(core.Operation(core.ALLREDUCE), f"x{step}", tensor, tensor,
                                     None)
        core.wait(handle)
        core.free(handle)
        print(step, file=progress)
    core.shutdown()
except HorovodInternalError as error:
    print(f"error={error}", flush=True)
    with open(f"{rank}.part", "w") as file:
        file.write(str(error))
    os.rename(f"{rank}.part", f"{rank}.error")
    sys.exit(3)
print("end", flush=True)
"""
SMALL, LARGE = 1000, 30_000_000
FOREVER = 1_000_000
STOP_ONE = "if (rank, step) == (1, 10): os.kill(os.getpid(), signal.SIGSTOP)"
BEAT = ("--heartbeat-seconds", "2")
GRACE = ("--grace-seconds", "40")
SEEN = "has sent nothing for 2 s: it is stopped"


def training(folder: Path, deed: str, count: int = SMALL, steps: int = FOREVER) -> list[str]:
    (folder / "train.py").write_text(TRAINING)
    return [sys.executable, "train.py", deed, str(count), str(steps)]


def pid_of(folder: Path, rank: int) -> int:
    wait_until((folder / f"{rank}.pid").exists, f"rank {rank}")
    return int((folder / f"{rank}.pid").read_text())


def errors(out: str) -> dict[int, str]:
    """By rank."""
    found = {}
    for line in out.splitlines():
        head, _, text = line.partition("<stdout>:")
        if text.startswith("error="):
            found[int(head.strip("[]"))] = text.removeprefix("error=")
    return found


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("stopped", [0, 1, 2])
def test_a_stopped_rank_is_named_on_all_others(jobs: Jobs, transport: str, stopped: int) -> None:
    """Rank 0 runs the Root."""
    deed = STOP_ONE.replace("(1, 10)", f"({stopped}, 10)")
    command = training(jobs.folder, deed)
    result = jobs.run("-np", "3", "--transport", transport, *BEAT, *command)
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [rank for rank in range(3) if rank != stopped]
    for text in found.values():
        assert text.startswith('allreduce "x'), text
        assert f"rank {stopped} is lost: its process on host " in text
        assert SEEN in text
        assert ("(SIGSTOP)" in text) == (transport == "shm")
        assert " has given it up" in text
    assert any(f"rank {stopped} as the cause" in line for line in result.said), result.err


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_that_stops_before_it_has_sent_anything_has_no_longer_than_others(
    jobs: Jobs, transport: str
) -> None:
    command = training(jobs.folder, STOP_ONE.replace("(1, 10)", "(1, 0)"))
    found = errors(jobs.run("-np", "3", "--transport", transport, *BEAT, *command).out)
    assert sorted(found) == [0, 2]
    assert all(SEEN in text for text in found.values()), found


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_that_stops_in_the_middle_of_a_transfer_is_named(jobs: Jobs, transport: str) -> None:
    command = training(jobs.folder, "pass", LARGE)
    process = jobs.start("-np", "3", "--transport", transport, *BEAT, *command)
    pid = pid_of(jobs.folder, 1)
    wait_until(lambda: (jobs.folder / "1.steps").stat().st_size > 0, "a step")
    os.kill(pid, signal.SIGSTOP)
    found = errors(ended(process).out)
    assert sorted(found) == [0, 2]
    assert all("rank 1 is lost: its process" in text and SEEN in text for text in found.values())


#: At the end of the job rank STOPPED stops. The others do not ask for the end before that: it would
#: say goodbye, and nobody would miss it.
STOP_AT_THE_END = """
if step == 9:
    end_job = core.shutdown
    def stop_or_end():
        if rank == STOPPED:
            os.kill(os.getpid(), signal.SIGSTOP)
        with open("STOPPED.pid") as file:
            process = f"/proc/{file.read().strip()}/stat"
        while open(process).read().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        end_job()
    core.shutdown = stop_or_end
"""


def stop_at_the_end(stopped: int) -> str:
    return STOP_AT_THE_END.replace("STOPPED", str(stopped))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_without_which_the_job_cannot_end_is_named_by_shutdown(
    jobs: Jobs, transport: str
) -> None:
    """Rank 0 runs the Root."""
    command = training(jobs.folder, stop_at_the_end(0), steps=10)
    result = jobs.run("-np", "3", "--transport", transport, *BEAT, *command)
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [1, 2]
    for text in found.values():
        assert text.startswith("rank 0 is lost: its process on host "), text
        assert SEEN in text
    assert any("rank 0 as the cause" in line for line in result.said), result.err


def test_a_rank_that_stops_before_it_hears_of_the_end_is_named_by_the_leader_of_its_host(
    jobs: Jobs,
) -> None:
    """The job can end without it. Its leader has done its part, and waits only for its goodbye."""
    result = jobs.run("-np", "3", *BEAT, *training(jobs.folder, stop_at_the_end(1), steps=10))
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [0]
    assert found[0].startswith("rank 1 is lost: its process on host ")
    assert SEEN in found[0] and "(SIGSTOP)" in found[0]
    assert any("rank 1 as the cause" in line for line in result.said), result.err


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("replaced", [0, 1])
def test_a_rank_that_replaces_itself_by_another_program_is_named(
    jobs: Jobs, count: int, replaced: int
) -> None:
    """Its process runs on, and is not stopped."""
    deed = f"if (rank, step) == ({replaced}, 3): os.execv('/bin/sleep', ['sleep', '1000'])"
    result = jobs.run("-np", "3", *BEAT, *training(jobs.folder, deed, count))
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [rank for rank in range(3) if rank != replaced]
    for text in found.values():
        assert text.startswith('allreduce "x3": '), text
        assert f"rank {replaced} is lost: its process on host " in text
        assert " has replaced itself by another program (exec); " in text
    assert any(f"rank {replaced} as the cause" in line for line in result.said), result.err


def test_a_rank_that_stops_while_all_others_exit_ends_the_job(jobs: Jobs) -> None:
    at_exit = """
if step == 9:
    import atexit
    end_job = lambda: atexit.register(core.shutdown_at_exit)
"""
    command = training(jobs.folder, stop_at_the_end(0) + at_exit, steps=10)
    result = jobs.run("-np", "3", *BEAT, *command)
    assert result.code == 1
    assert result.out.count("end") == 2
    (said,) = [line for line in result.said if "was given up" in line]
    assert said.startswith("rank 0 was given up: its process on host ")
    assert SEEN in said


def test_of_two_ranks_that_stop_one_is_named(jobs: Jobs) -> None:
    deed = "if rank in (1, 2) and step == 10: os.kill(os.getpid(), signal.SIGSTOP)"
    result = jobs.run("-np", "4", *BEAT, *training(jobs.folder, deed))
    found = errors(result.out)
    assert sorted(found) == [0, 3]
    assert all(SEEN in text for text in found.values())


HOLD_THE_GIL = "import ctypes\nhold = ctypes.PyDLL(None).sleep\n"


@pytest.mark.parametrize(
    "deed",
    [
        "if (rank, step) == (1, 10): time.sleep(3)",
        HOLD_THE_GIL + "if (rank, step) == (1, 10): hold(3)",
        HOLD_THE_GIL
        + "import threading\n"
        + "if (rank, step) == (1, 10): threading.Thread(target=hold, args=(3,)).start()",
    ],
    ids=["slow", "GIL", "GIL in a thread"],
)
def test_a_rank_whose_script_is_busy_is_not_given_up(jobs: Jobs, deed: str) -> None:
    """As one whose data loader is slow, or whose C code holds the lock of Python."""
    command = training(jobs.folder, deed, steps=20)
    result = jobs.run("-np", "3", "--heartbeat-seconds", "0.5", *command)
    assert (result.code, result.err) == (0, "")
    assert result.out.count("end") == 3


def test_a_rank_that_is_stopped_shortly_goes_on(jobs: Jobs) -> None:
    command = training(jobs.folder, STOP_ONE, steps=20)
    process = jobs.start("-np", "3", "--heartbeat-seconds", "30", *command)
    pid = pid_of(jobs.folder, 1)
    wait_until(lambda: state_of(pid) == "T", "the stop")
    os.kill(pid, signal.SIGCONT)
    result = ended(process)
    assert (result.code, result.err) == (0, "")


def test_without_a_heartbeat_a_stopped_rank_is_waited_for(jobs: Jobs) -> None:
    command = training(jobs.folder, STOP_ONE, steps=20)
    process = jobs.start("-np", "3", "--heartbeat-seconds", "0", *command)
    pid = pid_of(jobs.folder, 1)
    wait_until(lambda: state_of(pid) == "T", "the stop")
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=3)
    os.kill(pid, signal.SIGCONT)
    result = ended(process)
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_that_wakes_up_says_who_has_given_it_up(jobs: Jobs, transport: str) -> None:
    command = training(jobs.folder, STOP_ONE)
    process = jobs.start("-np", "3", "--transport", transport, *BEAT, *GRACE, *command)
    pids = [pid_of(jobs.folder, rank) for rank in range(3)]
    wait_until(lambda: not is_running(pids[0]) and not is_running(pids[2]), "the other ranks")
    os.kill(pids[1], signal.SIGCONT)
    found = errors(ended(process).out)
    assert sorted(found) == [0, 1, 2]
    assert "this process, rank 1, has lost its place in the job" in found[1]
    assert SEEN in found[1]
    assert "; rank 0 on host " in found[1] and found[1].endswith(" has given it up")


@pytest.mark.parametrize("stopped", [0, 1])
def test_an_elastic_job_goes_on_without_a_stopped_rank(jobs: Jobs, stopped: int) -> None:
    """It is killed, and its slot is used again. The others need not wait for --survivor-timeout."""
    deed = f"""
if (generation, rank, step) == (0, {stopped}, 10):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    command = elastic_training(jobs.folder, deed, "generation >= 2")
    flags = ("-np", "3", "--min-np", "2", "--survivor-timeout", "1000")
    result = jobs.run(*flags, *BEAT, *command)
    assert result.code == 0, result.err
    found = entries(result)
    survivors = [found[0][rank].pid for rank in range(3) if rank != stopped]
    assert [found[1][rank].pid for rank in range(2)] == survivors
    assert len(found[2]) == 3
    (given_up,) = [line for line in result.said if "was given up: " in line]
    assert given_up.startswith(f"rank {stopped} in slot {stopped} of ")
    assert SEEN in given_up


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("stopped", [0, 2])
def test_an_elastic_job_goes_on_without_a_rank_that_stops_before_it_connects(
    jobs: Jobs, transport: str, stopped: int
) -> None:
    """It has a place in the generation after a loss, and the others wait in `init`."""
    deed = f"""
if generation == 0 and step == 9:
    connect = core.init
    def stop_first():
        if rank == {stopped}: os.kill(os.getpid(), signal.SIGSTOP)
        connect()
        elastic_job.adopt_place()  # of a still later generation
    core.init = stop_first
if (generation, rank, step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)
"""
    command = elastic_training(jobs.folder, deed, "generation >= 2 and step >= 20")
    flags = ("-np", "4", "--min-np", "1", "--start-timeout", "1000", "--transport", transport)
    result = jobs.run(*flags, *BEAT, *command)
    assert result.code == 0, result.err
    found = entries(result)
    survivors = [found[0][rank].pid for rank in (0, 2, 3) if rank != stopped]
    assert [found[2][rank].pid for rank in range(2)] == survivors
    (given_up,) = [line for line in result.said if "was given up: " in line]
    assert f" in slot {stopped} of " in given_up and "its process is stopped" in given_up


#: Every rank makes the same calls on a group. `deed` is run before each call, by each rank.
ON_A_GROUP = """
import array, os, signal, sys, time
import horovod._core as core
from horovod.common.exceptions import HorovodInternalError
core.init()
rank = core.world().rank
values = array.array("f", [1.0]) * int(sys.argv[2])
tensor = values.buffer_info()[0], (len(values),), core.DTYPES["float32"], values
group = core.Group([0, 1], "") if rank < 2 else None
try:
    for step in range(int(sys.argv[3])):
        exec(sys.argv[1])
        if group: group.run(core.Operation(core.ALLREDUCE), tensor, tensor, None)
        else: time.sleep(0.01)
    if group: group.close()
    core.shutdown()
    print("end", flush=True)
except HorovodInternalError as error:
    print(f"error={error}", flush=True)
    sys.exit(3)
"""


def calls_on_a_group(folder: Path, deed: str, count: int, steps: int = FOREVER) -> list[str]:
    (folder / "train.py").write_text(ON_A_GROUP)
    return [sys.executable, "train.py", deed, str(count), str(steps)]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("stopped", [0, 1])
def test_calls_on_a_group_find_a_stopped_rank(
    jobs: Jobs, transport: str, count: int, stopped: int
) -> None:
    """The progress engines of the job look for it. Rank 2 is not in the group."""
    deed = STOP_ONE.replace("(1, 10)", f"({stopped}, 3)")
    command = calls_on_a_group(jobs.folder, deed, count)
    result = jobs.run("-np", "3", "--transport", transport, *BEAT, *command)
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [1 - stopped]
    assert found[1 - stopped].startswith(f"a call on a group: rank {stopped} is lost: its process")
    assert SEEN in found[1 - stopped]
    assert any(f"rank {stopped} as the cause" in line for line in result.said), result.err


def test_a_call_on_a_group_waits_for_a_rank_whose_script_is_busy(jobs: Jobs) -> None:
    deed = "if (rank, step) == (1, 10): time.sleep(3)"
    command = calls_on_a_group(jobs.folder, deed, SMALL, steps=20)
    result = jobs.run("-np", "3", "--heartbeat-seconds", "0.5", *command)
    assert (result.code, result.err) == (0, "")
    assert result.out.count("end") == 3


#: Rank 1 does not create the group that the others wait for.
WITHOUT_ONE = """
import os, signal, sys, time
import horovod._core as core
from horovod.common.exceptions import HorovodInternalError
core.init()
if core.world().rank == 1:
    exec(sys.argv[1])
try:
    core.Group([0, 1, 2], "")
except HorovodInternalError as error:
    print(f"error={error}", flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (
            "time.sleep(1000)",
            "rank 1 has not created the group of ranks 0, 1 and 2 within 5 s "
            "(HOROVOD_START_TIMEOUT)",
        ),
        (
            "time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)",
            "rank 1 is lost: its process was killed by signal 9 (SIGKILL)",
        ),
    ],
    ids=["late", "lost"],
)
def test_a_rank_that_does_not_create_a_group_is_named(
    jobs: Jobs, transport: str, deed: str, said: str
) -> None:
    (jobs.folder / "train.py").write_text(WITHOUT_ONE)
    timeout = "5" if "sleep(1000)" in deed else "30"
    flags = ("-np", "3", "--transport", transport, "--start-timeout", timeout)
    result = jobs.run(*flags, sys.executable, "train.py", deed)
    assert result.code != 0
    found = errors(result.out)
    assert sorted(found) == [0, 2]
    assert all(text.startswith(said) for text in found.values()), found


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_running(pid: int) -> bool:
    try:
        return state_of(pid) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
