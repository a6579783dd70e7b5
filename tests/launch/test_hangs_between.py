"""horovodrun --dump explains hangs between operations: in init, between two generations of an
elastic job, and at the end of the processes."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hang_causes import REDUCE, line_of
from hanging import dump, dumped
from launcher import WATCHDOG_SECONDS, Jobs, wait_until

#: Three ranks reduce a number for ever. `deed` says what happens. `# here` marks where one hangs.
TRAINING = """
import array, atexit, os, signal, sys, threading, time
import horovod._core as core
from horovod.common import _stack, basics, elastic_job
from horovod.common.exceptions import HorovodInternalError

{reduce}
def hang():
    time.sleep(1000)  # a hang

def before_init(): pass
def in_step(step): pass
def after_loss(): pass
def is_over(step): return False
def at_end(): pass

RANK = int(os.environ.get("HOROVOD_RANK", -1))
{deed}

def run():
    _stack.prepare()
    core.init()
    step = 0
    while not is_over(step):
        in_step(step)
        reduce("loss")
        step += 1

def reset():
    core.shutdown()
    elastic_job.next_generation()

before_init()
while True:
    try:
        run()
        break
    except HorovodInternalError:
        after_loss()
        reset()
at_end()
core.shutdown()
"""

LOSES_RANK_0 = """
def in_step(step):
    if step == 5 and RANK == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def explained(jobs: Jobs, deed: str, *flags: str, ranks: list[int], awaited: str) -> Any:
    """The dump of a job of three ranks, as soon as it names these ranks, awaited there."""
    script = jobs.folder / "train.py"
    script.write_text(TRAINING.replace("{reduce}", REDUCE).replace("{deed}", deed))
    job = jobs.start("-np", "3", *flags, sys.executable, str(script))
    found = None
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while time.monotonic() < deadline:
        found = dumped(job)
        if found is not None:
            cause = found["cause"]
            if (cause["ranks"], cause["operation"]) == (ranks, awaited):
                found["text"] = dump(job).stdout
                return found
        assert job.poll() is None, "the job has ended"
        time.sleep(0.1)
    pytest.fail(f"no dump names the cause; the last one: {json.dumps(found)}")


def text_of(found: Any, jobs: Jobs, function: str, mark: str = "# here") -> str:
    """The cause, if it ends at the marked line."""
    text: str = found["cause"]["text"]
    line = line_of(jobs.folder / "train.py", mark)
    assert text.endswith(f"its main thread is at train.py:{line} in {function}"), text
    return text


ELASTIC = "--min-np", "2"


def test_a_survivor_that_swallows_the_error(jobs: Jobs) -> None:
    deed = LOSES_RANK_0 + "def after_loss():\n    if RANK == 2: time.sleep(1000)  # here\n"
    found = explained(jobs, deed, *ELASTIC, ranks=[2], awaited="the next generation")
    text = text_of(found, jobs, "after_loss")
    assert text.startswith(
        "rank 2 has not asked for its place in the next generation, which rank 1 has awaited for "
    )
    assert "; an error ended its generation " in text
    assert found["cause"]["class"] == "failed"
    stages = {one["rank"]: one["stage"] for one in found["ranks"]}
    assert (stages[1], stages[2]) == ("next_generation", "failed")
    assert "\n  has asked for its place in the next generation " in found["text"]


def test_a_survivor_that_waits_for_a_lock(jobs: Jobs) -> None:
    deed = """
def after_loss():
    lock = threading.Lock()
    lock.acquire()
    if RANK == 1: lock.acquire()  # here
"""
    found = explained(jobs, LOSES_RANK_0 + deed, *ELASTIC, ranks=[1], awaited="the next generation")
    text_of(found, jobs, "after_loss")
    assert found["cause"]["class"] == "lock"


def test_a_survivor_that_is_stopped(jobs: Jobs) -> None:
    deed = """
def after_loss():
    if RANK == 1: os.kill(os.getpid(), signal.SIGSTOP)
"""
    flags = *ELASTIC, "--heartbeat-seconds", "0"  # it would be given up
    found = explained(jobs, LOSES_RANK_0 + deed, *flags, ranks=[1], awaited="the next generation")
    assert found["cause"]["class"] == "stopped"


@pytest.mark.parametrize("flags", [(), ELASTIC], ids=["plain", "elastic"])
def test_a_rank_that_hangs_before_init_shows_where(jobs: Jobs, flags: tuple[str, ...]) -> None:
    deed = "def before_init():\n    if RANK == 2: hang()\n"
    found = explained(jobs, deed, *flags, ranks=[2], awaited="hvd.init()")
    text = text_of(found, jobs, "hang", mark="# a hang")
    begin = "rank 2 has not called hvd.init(), in which ranks 0, 1 have waited for "
    assert text.startswith(begin)
    assert found["cause"]["class"] == "start"


def test_a_rank_that_runs_on_after_the_job_has_ended(jobs: Jobs) -> None:
    deed = """
def is_over(step): return step == 3
def at_end():
    if RANK == 2: time.sleep(1000)  # here
"""
    found = explained(jobs, deed, ranks=[2], awaited="the end")
    text = text_of(found, jobs, "at_end")
    assert text.startswith("rank 2 has not ended, as ranks 0, 1 have, ")
    assert "\n  hvd.shutdown() of another rank ended the job here " in found["text"]


def test_a_rank_whose_process_does_not_end(jobs: Jobs) -> None:
    deed = """
def is_over(step): return step == 3
if RANK == 1:
    atexit.register(lambda: time.sleep(1000))  # here
"""
    found = explained(jobs, deed, ranks=[1], awaited="the end")
    text = text_of(found, jobs, "<lambda>")
    assert text.startswith("rank 1 has not ended, as ranks 0, 2 have, ")
    assert " s after hvd.shutdown(); " in text
    assert [one["process"] > 0 for one in found["ranks"]] == [False, True, False]


def test_a_replacement_that_hangs_before_init(jobs: Jobs) -> None:
    deed = LOSES_RANK_0 + "def before_init():\n    if RANK < 0: time.sleep(1000)  # here\n"
    found = explained(jobs, deed, "--min-np", "3", ranks=[], awaited="the next generation")
    text = text_of(found, jobs, "before_init")
    assert text.startswith("ranks 1, 2 have waited for the next generation for ")
    part = ": the job waits for more workers (--min-np); the worker without a rank in slot 0 of "
    assert part + "localhost has not called hvd.init(); " in text
    assert (found["cause"]["class"], found["cause"]["workers"]) == ("start", ["0/0/1"])


def test_a_signal_that_the_script_takes_before_init_is_left_alone(jobs: Jobs) -> None:
    deed = """
signal.signal(59, lambda *_: os._exit(9))
def in_step(step):
    if RANK == 2 and step == 5: os.kill(os.getpid(), signal.SIGSTOP)
"""
    script = jobs.folder / "train.py"
    script.write_text(TRAINING.replace("{reduce}", REDUCE).replace("{deed}", deed))
    job = jobs.start("-np", "3", sys.executable, str(script))
    found = None

    def is_stopped_in_a_step() -> bool:
        nonlocal found
        found = dumped(job)
        stages = {one["stage"] for one in found["ranks"]} if found is not None else set()
        return found is not None and found["cause"]["class"] == "stopped" and stages == {"running"}

    wait_until(is_stopped_in_a_step, "a dump of the stopped rank")
    assert found is not None and not any(one["answers"] for one in found["ranks"])
    assert job.poll() is None
