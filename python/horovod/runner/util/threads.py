"""Runs functions in new threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts `target(*args)` in a thread and returns the thread. `silent` suppresses its
    exceptions."""

    def run() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread
