"""What a rank runs: the tests that tf_ranks.py asks for. A hang ends with all threads' stacks."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import rank_jobs
import slim
import tf_ranks
import warm_jobs


def run_all(wanted: list[str]) -> None:
    from horovod.common.basics import HorovodBasics

    basics = HorovodBasics(__file__)
    basics.init(process_sets=None if os.environ.get("HOROVOD_TEST_FIXED_SETS") else "dynamic")
    tests = [tuple(one.split(":")) for one in wanted]
    with slim.lasting():
        for module in dict.fromkeys(module for module, _ in tests):
            importlib.import_module(module)
    for module, name in tests:
        rank_jobs.tell_outcome(tf_ranks.bodies[module, name], tf_ranks.WATCHDOG_SECONDS)
    basics.shutdown()


def run(folder: str, what: str, arguments: list[str]) -> None:
    rank_jobs.begin_telling(folder)
    rank_jobs.watch(tf_ranks.WATCHDOG_SECONDS)
    if what == "all":
        run_all(arguments)
    else:
        with slim.uncollected():
            module = importlib.import_module(arguments[0])
        getattr(module, arguments[1])()


if __name__ == "__main__":
    folder, what, *arguments = sys.argv[1:]
    if what == "warm":
        with slim.lasting():
            import tensorflow  # noqa: F401
        folder, (what, *arguments) = warm_jobs.serve(Path(folder))
    run(folder, what, arguments)
