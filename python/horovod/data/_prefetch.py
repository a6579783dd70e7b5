"""One pass over batches that a thread makes in advance. Owned by the iteration that reads it.

The thread and its reader share a bounded queue under one condition. Either side may end the pass,
the thread (no more batches, or an error) or the reader (`close`); all resources are then released.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Prefetch:
    """An iterator over what `make()` yields; `make` and its iterator run in a thread of their own.

    `capacity`: so many batches wait at most; the thread holds one more in its hands.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], capacity: int) -> None:
        self._make = make
        self._capacity = capacity
        self._changed = threading.Condition()
        self._batches: collections.deque[Any] = collections.deque()
        self._error: BaseException | None = None
        self._is_closed = False  # the reader wants no more
        self._is_over = False  # the thread brings no more
        #: How often the reader found nothing, and how many batches it got.
        self.waits = 0
        self.count = 0
        # A daemon, so that a script may end in the middle of a pass.
        self._thread = threading.Thread(target=self._fill, name="horovod-data", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._changed:
            if not self._batches and not self._is_over:
                self.waits += 1
            self._changed.wait_for(lambda: self._batches or self._is_over)
            if self._batches:
                self.count += 1
                self._changed.notify_all()
                return self._batches.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Drops what is waiting, and waits until the thread has ended. May be called again."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()
        self._thread.join()

    def _fill(self) -> None:
        try:
            for batch in self._make():
                if not self._put(batch):
                    break
        # Any: what ends this thread must end the reader too, or it would wait for ever.
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _put(self, batch: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._batches) < self._capacity)
            if not self._is_closed:
                self._batches.append(batch)
                self._changed.notify_all()
            return not self._is_closed
