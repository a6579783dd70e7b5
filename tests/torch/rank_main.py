"""What a rank runs: the tests that ranks.py asks for. A hang ends with all threads' stacks."""

from __future__ import annotations

import faulthandler
import importlib
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import rank_jobs
import ranks


def run_all(wanted: list[str]) -> None:
    import horovod.torch as hvd

    hvd.init(process_sets="dynamic")
    for one in wanted:
        module, name = one.split(":")
        importlib.import_module(module)
        faulthandler.dump_traceback_later(ranks.WATCHDOG_SECONDS, exit=True)
        try:
            ranks.bodies[module, name]()
            problem = None
        except BaseException:
            problem = traceback.format_exc()
        rank_jobs.tell(problem)
        faulthandler.cancel_dump_traceback_later()
    hvd.shutdown()


if __name__ == "__main__":
    folder, what, *arguments = sys.argv[1:]
    rank_jobs.begin_telling(folder)
    if what == "all":
        run_all(arguments)
    else:
        faulthandler.dump_traceback_later(ranks.WATCHDOG_SECONDS, exit=True)
        getattr(importlib.import_module(arguments[0]), arguments[1])()
