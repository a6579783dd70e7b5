"""Base class of data loaders, and the mixin that loads batches in a background thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from horovod.data._prefetch import Prefetch


class BaseDataLoader:
    """A source of batches. Subclasses implement `__len__`, `_iterate` and optionally
    `_process_batch`.

    Each iteration is a new pass over the data.
    """

    def __len__(self) -> int:
        """The number of batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many batches it has")

    def _iterate(self) -> Iterator[Any]:
        """A generator of the batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} has no _iterate()")

    def _process_batch(self, batch: Any) -> Any:
        """What is handed out for `batch`; runs in the thread that iterates."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


if TYPE_CHECKING:
    _Base = BaseDataLoader
else:
    _Base = object


class AsyncDataLoaderMixin(_Base):
    """Loads batches in a background thread. Put it before a BaseDataLoader in the list of bases.

    Each pass has its own thread, which runs `_iterate`. The thread ends with the pass: at its end,
    at an early `break`, or by `close_async_loader`. The iteration raises errors of the thread.

    Args:
        async_loader_queue_size: number of batches to load in advance; 0 loads each batch on demand,
            without a thread.
        debug_data_loader: prints to stderr, after each pass, how often training had to wait for
            data.

    Other arguments are passed to the next class.
    """

    def __init__(
        self,
        async_loader_queue_size: int = 64,
        debug_data_loader: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(
                f"async_loader_queue_size must not be negative, got {async_loader_queue_size}"
            )
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._passes: list[Prefetch] = []
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size == 0:
            return super().__iter__()
        return self._iterate_ahead()

    def _iterate_ahead(self) -> Iterator[Any]:
        current = Prefetch(self._iterate, self.async_loader_queue_size)
        self._passes.append(current)
        try:
            for batch in current:
                yield self._process_batch(batch)
        finally:
            current.close()
            self._passes.remove(current)
            if self.debug_data_loader:
                print(
                    f"{type(self).__name__}: {current.count} batches, training waited for data "
                    f"{current.waits} times",
                    file=sys.stderr,
                )

    def close_async_loader(self) -> None:
        """Ends the passes under way: waits for their threads, drops the batches they have made."""
        for current in list(self._passes):
            current.close()
