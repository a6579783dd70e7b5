"""Tests that share jobs: one job runs all tests that need the same number of ranks and the same
settings, and is started when the first of them needs its outcome."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import pytest
from core_seconds import charge
from rank_jobs import Outcome

Kind = TypeVar("Kind", bound=Hashable)  #: what tests of a job have in common
Case = TypeVar("Case", bound=Hashable)  #: names a test


class SharedJobs(Generic[Kind, Case]):
    """The outcomes of tests. `run`: runs tests in one job until the job ends, and returns the
    outcomes of at least one of them. `skips`: tests may be skipped on all ranks."""

    def __init__(
        self,
        run: Callable[[Kind, Sequence[Case]], Mapping[Case, Outcome]],
        *,
        skips: bool = False,
    ) -> None:
        self._run = run
        self._skips = skips
        self._selected: dict[Kind, list[Case]] = {}
        self._outcomes: dict[tuple[Kind, Case], Outcome] = {}

    def select(self, kind: Kind, case: Case) -> None:
        """Called for each test that is wanted, so that one job can run them all."""
        self._selected.setdefault(kind, []).append(case)

    def outcome(self, kind: Kind, case: Case) -> Outcome:
        """Runs all tests of its job, where none has run it yet."""
        wanted = self._selected.get(kind, [case])
        while (kind, case) not in self._outcomes:
            left = [one for one in wanted if (kind, one) not in self._outcomes]
            found = self._run(kind, left)
            self._outcomes.update({(kind, one): outcome for one, outcome in found.items()})
        return self._outcomes[kind, case]

    def report(self, kind: Kind, case: Case, request: pytest.FixtureRequest) -> None:
        """The test of pytest: ends as on the ranks."""
        found = self.outcome(kind, case)
        charge(request.node, found.core_seconds)
        if self._skips and found.problem == "skipped":
            pytest.skip("not with these versions")
        if found.problem is not None:
            pytest.fail(found.problem, pytrace=False)


def name_as(body: Callable[[], None], test: Callable[..., None]) -> None:
    """Gives the test of pytest the names of what the ranks run."""
    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    test.__module__ = body.__module__
