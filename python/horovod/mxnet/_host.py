"""Operations whose results have shapes that other ranks determine: the caller waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from horovod.common import _unnamed
from horovod.common._extension import core
from horovod.common._submission import Described
from horovod.mxnet import _library
from horovod.mxnet._engine import How
from horovod.mxnet._errors import as_mxnet_errors
from horovod.mxnet._types import from_memory, on_host, type_of


def allgather(arrays: Sequence[Any], how: How) -> list[Any]:
    """The rows of all ranks. Raises: MXNetError."""
    with as_mxnet_errors():
        handle = _submit(how.operation(), arrays, how)
        try:
            core.wait(handle)
            return [_output(handle, i, array.dtype, array) for i, array in enumerate(arrays)]
        finally:
            core.free(handle)


def alltoall(array: Any, splits: Sequence[int] | None, how: How) -> tuple[Any, Any]:
    """The rows of all ranks for this one, and how many each has sent. Raises: MXNetError."""
    told = core.Operation(core.ALLTOALL, process_set=how.process_set, splits=splits)
    with as_mxnet_errors():
        handle = _submit(told, [array], how)
        try:
            core.wait(handle)
            rows = _output(handle, 0, array.dtype, array)
            return rows, _output(handle, 1, np.int32, array)
        finally:
            core.free(handle)


def _submit(told: Any, arrays: Sequence[Any], how: How) -> int:
    inputs = [_described(array if on_host(array) else array.copyto(mx.cpu())) for array in arrays]

    def submit(chosen: str) -> int:
        return core.submit_tensors(told, f"{how.label}.{chosen}", inputs, None, None)

    if how.name is None:
        return _unnamed.submit(how.process_set, submit)[1]
    return submit(how.name)


def _described(array: Any) -> Described:
    """As the runtime takes memory."""
    return _library.memory_of(array), array.shape, core.DTYPES[type_of(array)], array


def _output(handle: int, index: int, dtype: Any, like: Any) -> Any:
    memory, shape = core.output(handle, index)
    return from_memory(memory, shape, dtype, like)
