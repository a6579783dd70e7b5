"""Tests that run on every rank of a real job. Their processes are forked from ranks that have
imported a framework.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All tests of one size share processes.
`run_alone` runs a single function in processes of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import slim
import warm_jobs
from rank_jobs import Job, Outcome, launcher, outcomes_of
from shared_jobs import SharedJobs, name_as
from warm_jobs import Kind, run_warm

WATCHDOG_SECONDS = 120
JOB_SECONDS = 900
EVERYWHERE = (1, 2, 3)

Key = tuple[str, str]  # module, function


class ForkedRanks:
    """The tests of one framework.

    `script`: what a rank runs, which calls `serve`. `package`: the one that has `init`.
    `at_import`: variables that the framework reads when it is imported.
    """

    def __init__(
        self, script: Path, package: str, at_import: Mapping[str, str] | None = None
    ) -> None:
        self._script = script
        self._package = package
        self._at_import = dict(at_import or {})
        self._bodies: dict[Key, Callable[[], None]] = {}
        self._jobs: SharedJobs[Any, Any] = SharedJobs(self._run_bodies)

    # ---- in the process of the tests

    def on_ranks(self, *sizes: int) -> Callable[[Callable[[], None]], Callable[..., None]]:
        """See the top of this file."""

        def decorate(body: Callable[[], None]) -> Callable[..., None]:
            key = (body.__module__, body.__name__)
            self._bodies[key] = body

            @pytest.mark.skipif(launcher() is None, reason="not built")
            @pytest.mark.parametrize("np", sizes)
            def test(np: int, request: pytest.FixtureRequest) -> None:
                self._jobs.report(np, key, request)

            name_as(body, test)
            test.on_ranks = key  # type: ignore[attr-defined]
            return test

        return decorate

    def run_alone(self, size: int, body: Callable[[], None], **at_import: str) -> Job:
        """Runs one function of a test module on `size` ranks. It is up to it to call `init`.
        `at_import`: more variables."""
        return self._fork(size, ["only", body.__module__, body.__name__], at_import)

    def select(self, items: list[pytest.Item]) -> None:
        """Remembers which tests are wanted, so that one job can run them all."""
        for item in items:
            key = getattr(getattr(item, "function", None), "on_ranks", None)
            if key is not None:
                self._jobs.select(item.callspec.params["np"], key)  # type: ignore[attr-defined]

    def _run_bodies(self, size: int, wanted: Sequence[Key]) -> dict[Key, Outcome]:
        """Runs tests in the same processes until these end."""
        job = self._fork(size, ["all", *(f"{module}:{name}" for module, name in wanted)], {})
        return outcomes_of(job, wanted)

    def _fork(self, size: int, arguments: list[str], at_import: Mapping[str, str]) -> Job:
        variables = tuple({**self._at_import, **at_import}.items())
        return run_warm(Kind(self._script, size, variables), arguments, JOB_SECONDS, {})

    # ---- in the process of a rank

    def serve(self, imported: str) -> None:
        """Imports the module `imported`, and runs in a fork what tests ask for. A hang ends with
        the stacks of all threads."""
        with slim.lasting():
            importlib.import_module(imported)
        folder, (what, *arguments) = warm_jobs.serve(Path(sys.argv[1]))
        rank_jobs.begin_telling(folder)
        rank_jobs.watch(WATCHDOG_SECONDS)
        if what == "all":
            self._run_all(arguments)
        else:
            getattr(importlib.import_module(arguments[0]), arguments[1])()

    def _run_all(self, wanted: list[str]) -> None:
        hvd = importlib.import_module(self._package)
        hvd.init(process_sets="dynamic")
        tests = [tuple(one.split(":")) for one in wanted]
        for module in dict.fromkeys(module for module, _ in tests):
            importlib.import_module(module)
        for module, name in tests:
            rank_jobs.tell_outcome(self._bodies[module, name], WATCHDOG_SECONDS)
        hvd.shutdown()
