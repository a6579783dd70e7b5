"""Errors of operations of torch.distributed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed

from horovod.common.exceptions import HorovodInternalError, HorovodMismatchError

_Base: Any = getattr(torch.distributed, "DistBackendError", RuntimeError)


class DistributedError(_Base, HorovodInternalError):  # type: ignore[misc]
    """A rank was lost, or the job has ended. The text names the rank.

    It is a `torch.distributed.DistBackendError`, as of other backends, and a HorovodInternalError,
    from which elastic training recovers.
    """


@contextmanager
def as_of_torch() -> Iterator[None]:
    """Converts the errors of the runtime to those that scripts of torch.distributed expect. Ranks
    that disagree stay a HorovodMismatchError."""
    try:
        yield
    except HorovodMismatchError:
        raise
    except HorovodInternalError as error:
        if isinstance(error, DistributedError):
            raise
        raise DistributedError(str(error)) from error
