"""A small training job, of which rank 1 ends in the middle in the way that a test asks for."""

from __future__ import annotations

import sys

from launcher import Ended, Jobs

#: So that ranks come to their own end on a busy machine too, before the launcher ends them.
GRACE_SECONDS = "40"

# Every rank reduces a small array again and again; rank 1 ends in the middle.
TRAINING = """
import array, os, signal, sys
import horovod._core as core
core.init()
rank = core.world().rank
values = array.array("f", [1.0] * 1000)
address = values.buffer_info()[0]
for step in range(20):
    if step == 10 and rank == 1:
        exec(sys.argv[1])
    tensor = address, (1000,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), f"x{step}", tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
core.shutdown()
print("end", flush=True)
"""


def train(jobs: Jobs, what_rank_1_does: str, processes: int = 4) -> Ended:
    (jobs.folder / "train.py").write_text(TRAINING)
    command = [sys.executable, "train.py", what_rank_1_does]
    return jobs.run("-np", str(processes), "--grace-seconds", GRACE_SECONDS, *command)
