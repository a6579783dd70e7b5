"""A process that got SIGTERM leaves its job at the next commit.

Schedulers send it some time before they end the process: to a pod that is deleted, to a job that is
preempted. Used by the main thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from horovod.common.exceptions import HorovodInternalError

#: As shells report the end by this signal.
EXIT_CODE = 128 + signal.SIGTERM

#: A scheduler may send the signal to the process and to its launcher, which passes it on. Later
#: than this, the signal means that there is no time left.
_SAME_SIGNAL_SECONDS = 2.0


class Departure:
    """`is_requested`: this process got SIGTERM, and leaves at the next commit. `is_alone`: it has
    left, and the launcher is lost.

    `announce` is called before the process ends, which may take seconds: the launcher of an elastic
    job then lets the other ranks go on at once.
    """

    def __init__(self, announce: Callable[[], None] = lambda: None) -> None:
        self.is_requested = False
        self.is_alone = False
        self._announce = announce
        self._requested_at = 0.0
        self._is_between = False
        self._is_watching = False

    def request(self) -> None:
        if not self.is_requested:
            self._requested_at = time.monotonic()
        self.is_requested = True

    def leave(self) -> NoReturn:
        try:
            self._announce()
        except HorovodInternalError:
            self.is_alone = True
        raise SystemExit(EXIT_CODE)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Handles SIGTERM meanwhile, unless the script does, or this is not the main thread."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, self._take)
        self._is_watching = True
        os.register_at_fork(after_in_child=self._forget)
        try:
            yield
        finally:
            self._forget()

    @contextlib.contextmanager
    def between_generations(self) -> Iterator[None]:
        """The state is that of a commit meanwhile, so the process can leave at once."""
        if self.is_requested:
            self.leave()
        self._is_between = True
        try:
            yield
        finally:
            self._is_between = False

    def _take(self, number: int, frame: Any) -> None:
        is_again = self.is_requested and (
            time.monotonic() >= self._requested_at + _SAME_SIGNAL_SECONDS
        )
        self.request()
        if is_again:
            raise SystemExit(EXIT_CODE)
        if self._is_between:
            self.leave()

    def _forget(self) -> None:
        """Children, such as those of a data loader, end by the signal as usual."""
        if self._is_watching:
            self._is_watching = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
