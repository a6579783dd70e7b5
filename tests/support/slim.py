"""Frameworks started in less CPU time: ranks that share few cores start one after another.

TensorFlow Lite imports jax, and Keras matplotlib, where they are installed: a third of the time in
which `import tensorflow` ends. Of what is left, a third (of torch's, a quarter) goes to the search
for garbage among hundreds of thousands of objects that stay."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

ABSENT = Path(__file__).parent / "absent"


def slim(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` (beside that of this process), so that Python finds neither of the two."""
    if environment.get("KERAS_BACKEND") == "jax":
        return dict(environment)
    before = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": os.pathsep.join([str(ABSENT), *filter(None, [before])])}


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """What is made meanwhile, as by imports, stays to the end: garbage is not searched for in it,
    now, later or at exit. So it is not for tests that ask how a process exits."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Garbage is searched for only afterwards; the process exits as any other does."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
