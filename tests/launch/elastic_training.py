"""A small elastic job, whose ranks tell of every generation, and what a test reads of it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from launcher import Ended

# Every rank reduces a number again and again. `deed` is run before each step, by each rank; `end`
# is when rank 0 lets all of them end.
TRAINING = """
import array, os, signal, sys, time
import horovod._core as core
from horovod.common import elastic_job
from horovod.common.exceptions import HorovodInternalError

MAX = 4
deed, end = sys.argv[1:3]
step = rank = size = generation = 0

def largest(name, value):
    values = array.array("d", [value])
    tensor = values.buffer_info()[0], (1,), core.DTYPES["float64"], values
    operation = core.Operation(core.ALLREDUCE, MAX)
    handle = core.submit_tensors(operation, name, tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
    return values[0]

def enter():
    global step, rank, size, generation
    rank, size, generation = core.world().rank, core.world().size, elastic_job.generation()
    local = core.world().local_rank, core.world().local_size
    variables = tuple(int(os.environ.get(f"HOROVOD_{name}", -1)) for name in ("RANK", "SIZE"))
    before, step = step, int(largest("sync", step))
    print(f"generation={generation} rank={rank} size={size} pid={os.getpid()} before={before} "
          f"step={step} local={local[0]}/{local[1]} named={variables[0]}/{variables[1]}",
          flush=True)

def reset():
    core.shutdown()
    elastic_job.next_generation()
    core.init()

if elastic_job.generation() < 0:
    time.sleep(1)  # a framework takes longer to import, so the survivors do not meet it at once
core.init()
elastic_job.adopt_place()
is_new = True
while True:
    try:
        if is_new:
            enter()
            is_new = False
        exec(deed)
        update = elastic_job.pending_update() if rank == 0 else None
        if largest(f"update{step}", update is not None):
            reset()
            is_new = True
            continue
        if largest(f"end{step}", rank == 0 and bool(eval(end))):
            break
        step += 1
        time.sleep(0.005)
    except HorovodInternalError as error:
        print(f"lost={error}", flush=True)
        reset()
        is_new = True
core.shutdown()
print("ended", flush=True)
"""


@dataclass(frozen=True)
class Entry:
    """A rank has entered a generation. `before`: the step that it had reached itself."""

    generation: int
    rank: int
    size: int
    pid: int
    before: int
    step: int
    local: str
    named: str


def training(folder: Path, deed: str, end: str) -> list[str]:
    """The command of such a job."""
    (folder / "train.py").write_text(TRAINING)
    return [sys.executable, "train.py", deed, end]


def entries(result: Ended) -> dict[int, dict[int, Entry]]:
    """By generation and rank."""
    found: dict[int, dict[int, Entry]] = {}
    for line in result.out_lines:
        match = re.search(
            r"generation=(\d+) rank=(\d+) size=(\d+) pid=(\d+) before=(\d+) step=(\d+) "
            r"local=(\S+) named=(\S+)",
            line,
        )
        if match is None:
            continue
        numbers = [int(text) for text in match.groups()[:6]]
        entry = Entry(*numbers, *match.groups()[6:])
        found.setdefault(entry.generation, {})[entry.rank] = entry
    for generation, ranks in found.items():
        sizes = {entry.size for entry in ranks.values()}
        assert sizes == {len(ranks)}, f"generation {generation}: {ranks}"
        assert sorted(ranks) == list(range(len(ranks)))
        assert all(entry.named == f"{entry.rank}/{entry.size}" for entry in ranks.values())
    return found
