"""Small jobs that commit to a state folder, and what a test reads of them. They need no
framework."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from horovod.common._state_files import commits, read_newest
from horovod.common._state_parts import joined

# `deed` is run before each step, by each rank; `end` is when all of them end. Each rank writes more
# than its pipe holds if nobody reads.
TRAINING = """
import os, signal, sys, time
from horovod.common import elastic_job
from horovod.common._elastic_loop import run
from horovod.common._objects import broadcast_object
from horovod.common.elastic import ObjectState
from horovod.common.front import init, rank, size

deed, end = sys.argv[1:3]
init()
state = ObjectState(broadcast_object, rank, step=0, ballast=os.urandom(200_000))

def tell_pid():
    with open(f"{rank()}.part", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(f"{rank()}.part", f"{rank()}.pid")

def touch(name):
    open(name, "w").close()

@run
def train(state):
    generation = elastic_job.generation() if elastic_job.is_elastic() else 0
    print(f"generation={generation} rank={rank()} size={size()} pid={os.getpid()} "
          f"step={state.step}", flush=True)
    while not eval(end):
        exec(deed)
        print("x" * 2000, flush=True)
        state.step += 1
        time.sleep(0.005)
        state.commit()

train(state)
print("ended", flush=True)
"""
# An epoch of so many samples, one per rank and step, in steps of so many seconds. After each
# commit, each rank notes its step; what all had used by then is in the state.
COUNTING = """
import json, os, sys, time
from horovod.common._elastic_handlers import SAMPLERS, HandledState
from horovod.common._elastic_loop import run
from horovod.common._objects import allgather_object, broadcast_object
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.front import init, rank

samples, seconds = int(sys.argv[1]), float(sys.argv[2])
init()
sampler = ElasticSampler(samples)
state = HandledState(broadcast_object, rank, SAMPLERS, sampler=sampler, used=[], step=0)
noted = os.open(f"{os.getpid()}.step", os.O_WRONLY | os.O_CREAT)

@run
def train(state):
    print(f"begins at {state.step}", flush=True)
    sampler.set_epoch(0)
    for index in sampler:
        time.sleep(seconds)
        state.used = [*state.used, *allgather_object(index)]
        state.step += 1
        sampler.record_batch(0, 1)
        state.commit()
        os.pwrite(noted, f"{state.step:09}".encode(), 0)
        if state.step == 10:
            with open(f"{rank()}.part", "w") as file:
                file.write(f"{os.getpid()}\\n")
            os.rename(f"{rank()}.part", f"{rank()}.pid")

train(state)
if rank() == 0:
    with open("used.json", "w") as file:
        json.dump(state.used, file)
"""
SAMPLES = 1600
EACH_COMMIT = ("--state-seconds", "0.001")
SELDOM = ("--state-seconds", "1000")


@dataclass(frozen=True)
class Entry:
    """A rank has entered the training function, at this step."""

    generation: int
    rank: int
    size: int
    pid: int
    step: int


def training(folder: Path, deed: str, end: str, first: str = "") -> list[str]:
    """The command of such a job. `first` is run at the start."""
    (folder / "train.py").write_text(first + TRAINING)
    return [sys.executable, "train.py", deed, end]


def counting(folder: Path, seconds: float) -> list[str]:
    """The command of the job that counts its samples."""
    (folder / "count.py").write_text(COUNTING)
    return [sys.executable, "count.py", str(SAMPLES), str(seconds)]


def committed_step(folder: Path, pid: int) -> int:
    """At the end of this process, which counted samples, by its own account."""
    return int((folder / f"{pid}.step").read_text())


def expect_goes_on(folder: Path, out: str, step: int, ranks: int) -> None:
    """A job that was started again had `step` or the one after it, and used the other samples."""
    begins = {int(found) for found in re.findall(r"begins at (\d+)", out)}
    assert len(begins) == 1 and begins <= {step, step + 1}, (begins, step)
    counts = Counter(json.loads((folder / "used.json").read_text()))
    assert set(counts) == set(range(SAMPLES))
    assert counts.total() - SAMPLES < ranks, "only the end of the epoch is filled up"


def entries(text: str) -> list[Entry]:
    found = re.findall(r"generation=(\d+) rank=(\d+) size=(\d+) pid=(\d+) step=(\d+)", text)
    return [Entry(*map(int, numbers)) for numbers in found]


def written_step(folder: Path) -> int:
    """Of the newest commit that can be used."""
    _, stored = read_newest(folder, joined) or (None, None)
    assert stored is not None, f"{folder} has no commit"
    return int(stored.own["attributes"]["step"])


def parts_of_newest(folder: Path) -> int:
    return len(list(commits(folder)[0].path.iterdir()))
