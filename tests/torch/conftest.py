"""Fixtures of the PyTorch tests. Those that need processes are in ranks.py."""

from __future__ import annotations

import atexit
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_seconds import pytest_runtest_call as pytest_runtest_call
from core_seconds import pytest_terminal_summary as pytest_terminal_summary

if importlib.util.find_spec("horovod._core") is None:
    # Not built: what needs only the double can still be tested, the rest is skipped (ranks.py).
    stub: Any = types.ModuleType("horovod._core")
    stub.reader = lambda *arguments: None
    stub.meet_before_init = lambda meets: None
    stub.borrower_of = lambda owner, identity: None
    stub.DTYPES = {
        name: number
        for number, name in enumerate(
            [
                "uint8",
                "int8",
                "uint16",
                "int16",
                "int32",
                "int64",
                "float16",
                "float32",
                "float64",
                "bool",
                "bfloat16",
            ]
        )
    }
    sys.modules["horovod._core"] = stub

import ranks
from core_double import Double, GradientNotes, Operation

import horovod.torch as hvd
from horovod.common import basics
from horovod.common._extension import core

if not hasattr(core, "GradientNotes"):
    core.GradientNotes = GradientNotes
    core.Operation = Operation


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes or many GiB; run by `./dev test --all`")


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Double]]:
    """Puts the double in the place of the native module and starts it with the given size."""

    def begin(size: int) -> Double:
        fake = Double(size)
        for name in dir(fake):
            if not name.startswith("_"):
                monkeypatch.setattr(core, name, getattr(fake, name), raising=False)
        hvd.init()
        return fake

    yield begin
    if core.is_initialized():
        hvd.shutdown()
    atexit.unregister(basics._shutdown_at_exit)  # the double is gone by then


def pytest_collection_finish(session: pytest.Session) -> None:
    ranks.select(session.items)
