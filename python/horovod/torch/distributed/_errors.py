"""Errors of operations of torch.distributed."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch.distributed

from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError, HorovodMismatchError

_Base: Any = getattr(torch.distributed, "DistBackendError", RuntimeError)


class DistributedError(_Base, HorovodInternalError):  # type: ignore[misc]
    """A rank was lost, or the job has ended. The text names the rank.

    It is a `torch.distributed.DistBackendError`, as of other backends, and a HorovodInternalError,
    from which elastic training recovers.
    """


class _AsOfTorch:
    """A class, which is entered and left faster than a generator: every operation does it twice."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or isinstance(error, (HorovodMismatchError, DistributedError)):
            return
        if isinstance(error, HorovodInternalError):
            raise DistributedError(str(error)) from error
        if isinstance(error, ValueError) and not core.is_initialized():
            raise DistributedError(
                "this rank has ended the job, by abort() or hvd.shutdown(): destroy the process "
                "group, and create a new one"
            ) from error


_as_of_torch = _AsOfTorch()


def as_of_torch() -> _AsOfTorch:
    """A context that converts the errors of the runtime to those that scripts of torch.distributed
    expect. Ranks that disagree stay a HorovodMismatchError."""
    return _as_of_torch
