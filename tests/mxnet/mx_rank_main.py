"""What a rank runs: the tests that mx_ranks.py asks for. A hang ends with all threads' stacks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import mx_ranks
import rank_jobs
import slim
import warm_jobs


def run_all(wanted: list[str]) -> None:
    import horovod.mxnet as hvd

    hvd.init(process_sets="dynamic")
    tests = [tuple(one.split(":")) for one in wanted]
    for module in dict.fromkeys(module for module, _ in tests):
        importlib.import_module(module)
    for module, name in tests:
        rank_jobs.tell_outcome(mx_ranks.bodies[module, name], mx_ranks.WATCHDOG_SECONDS)
    hvd.shutdown()


def run(folder: str, what: str, arguments: list[str]) -> None:
    rank_jobs.begin_telling(folder)
    rank_jobs.watch(mx_ranks.WATCHDOG_SECONDS)
    if what == "all":
        run_all(arguments)
    else:
        getattr(importlib.import_module(arguments[0]), arguments[1])()


if __name__ == "__main__":
    with slim.lasting():
        import mxnet  # noqa: F401
    folder, (what, *arguments) = warm_jobs.serve(Path(sys.argv[1]))
    run(folder, what, arguments)
