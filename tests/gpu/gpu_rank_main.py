"""What a rank runs: the tests that gpu_ranks.py asks for. A hang ends with all threads' stacks."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import gpu_ranks
import rank_jobs
import slim
import warm_jobs


def run_all_of_tensorflow(wanted: list[str]) -> None:
    tests = [tuple(one.split(":")) for one in wanted]
    with slim.lasting():
        import stand_in_tensorflow

        _, hvd = stand_in_tensorflow.load()
        for module in dict.fromkeys(module for module, _ in tests):
            importlib.import_module(module)
    hvd.init(process_sets="dynamic")
    stand_in_tensorflow.select_gpu(hvd.local_rank())
    for module, name in tests:
        rank_jobs.tell_outcome(gpu_ranks.bodies[module, name], gpu_ranks.WATCHDOG_SECONDS)
    hvd.shutdown()


def run_all(wanted: list[str]) -> None:
    tests = [tuple(one.split(":")) for one in wanted]
    with slim.lasting():
        import stand_in_device
        import torch

        import horovod.torch as hvd

        for module in dict.fromkeys(module for module, _ in tests):
            importlib.import_module(module)
    stand_in_device.load()
    stand_in_device.announce()
    hvd.init(process_sets="dynamic")
    torch.accelerator.set_device_index(hvd.local_rank() % torch.accelerator.device_count())
    for module, name in tests:
        rank_jobs.tell_outcome(gpu_ranks.bodies[module, name], gpu_ranks.WATCHDOG_SECONDS)
    hvd.shutdown()


def run(folder: str, what: str, arguments: list[str]) -> None:
    rank_jobs.begin_telling(folder)
    rank_jobs.watch(gpu_ranks.WATCHDOG_SECONDS)
    if what == "all" and os.environ.get(gpu_ranks.FRAMEWORK) == "tensorflow":
        run_all_of_tensorflow(arguments)
    elif what == "all":
        run_all(arguments)
    else:
        with slim.uncollected():
            module = importlib.import_module(arguments[0])
        getattr(module, arguments[1])()


if __name__ == "__main__":
    folder, what, *arguments = sys.argv[1:]
    if what == "warm":
        with slim.uncollected():
            importlib.import_module(os.environ.get(gpu_ranks.FRAMEWORK, "torch"))
        folder, (what, *arguments) = warm_jobs.serve(Path(folder))
    run(folder, what, arguments)
