"""The CPU time of each test, with that of the processes it waited for. pytest's output ends with
the tests that took most, and its XML report has all. A `conftest.py` imports the two hooks."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import pytest

PROPERTY = "core_seconds"  #: in the report
SHOWN = 20

_used: dict[str, float] = {}
_elsewhere: list[float] = []


def so_far() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(_elsewhere)


def add_elsewhere(seconds: float) -> None:
    """What processes used for the test that runs, which it does not wait for itself."""
    _elsewhere.append(seconds)


def charge(item: pytest.Item, seconds: float) -> None:
    """For a test whose work was done while another one ran, in a job that they share: what of it
    was its own. What nobody is charged with is what it takes to start and to end such jobs."""
    item.user_properties.append((PROPERTY, round(seconds, 3)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = so_far()
    try:
        return (yield)
    finally:
        seconds = so_far() - before
        charged = dict(item.user_properties).get(PROPERTY)
        if isinstance(charged, float):
            _used[item.nodeid] = charged
            shared = "the start and the end of jobs that tests share"
            _used[shared] = _used.get(shared, 0.0) + seconds - charged
        else:
            _used[item.nodeid] = seconds
            charge(item, seconds)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _used:
        return
    terminalreporter.section(f"core seconds: {sum(_used.values()):.0f}, most of them")
    for name in sorted(_used, key=_used.__getitem__, reverse=True)[:SHOWN]:
        terminalreporter.write_line(f"{_used[name]:7.1f}  {name}")
