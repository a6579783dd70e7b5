"""A small job that commits to a state folder, and what a test reads of it. Needs no framework."""

from __future__ import annotations

import re
import sys
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


def entries(text: str) -> list[Entry]:
    found = re.findall(r"generation=(\d+) rank=(\d+) size=(\d+) pid=(\d+) step=(\d+)", text)
    return [Entry(*map(int, numbers)) for numbers in found]


def written_step(folder: Path) -> int:
    """Of the newest commit that can be used."""
    stored = read_newest(folder, joined)
    assert stored is not None, f"{folder} has no commit"
    return int(stored.own["attributes"]["step"])


def parts_of_newest(folder: Path) -> int:
    return len(list(commits(folder)[0].path.iterdir()))
