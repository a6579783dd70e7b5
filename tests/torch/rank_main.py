"""What a rank runs: the tests that ranks.py asks for. A hang ends with all threads' stacks."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import rank_jobs
import ranks
import slim
import warm_jobs


def run_all(wanted: list[str], fresh: bool) -> None:
    tests = [tuple(one.split(":")) for one in wanted]
    with slim.lasting():
        import horovod.torch as hvd

        for module in dict.fromkeys(module for module, _ in tests):
            importlib.import_module(module)

    def run_and_shut_down(body: Callable[[], None]) -> None:
        try:
            body()
            if hvd.is_initialized():
                hvd.barrier()  # the first to shut down would be too early for the others
        finally:
            hvd.shutdown()

    if not fresh:
        hvd.init(process_sets="dynamic")
    for module, name in tests:
        body = ranks.bodies[module, name]
        whole = functools.partial(run_and_shut_down, body) if fresh else body
        rank_jobs.tell_outcome(whole, ranks.WATCHDOG_SECONDS)
    hvd.shutdown()


def run(folder: str, what: str, arguments: list[str]) -> None:
    rank_jobs.begin_telling(folder)
    rank_jobs.watch(ranks.WATCHDOG_SECONDS)
    if what in ("all", "fresh"):
        run_all(arguments, what == "fresh")
    else:
        with slim.uncollected():
            module = importlib.import_module(arguments[0])
        getattr(module, arguments[1])()


if __name__ == "__main__":
    folder, what, *arguments = sys.argv[1:]
    if what == "warm":
        with slim.uncollected():
            import torch  # noqa: F401
        folder, (what, *arguments) = warm_jobs.serve(Path(folder))
    run(folder, what, arguments)
