"""Operations on arrays that have values: no program is compiled, and the caller waits.

NumPy's views of the arrays go to the runtime. Arrays on other devices are copied to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from horovod.common import _unnamed
from horovod.common._extension import core
from horovod.common._submission import Described, operation
from horovod.jax import _internals
from horovod.jax._how import How


def run(arrays: Sequence[Any], how: How) -> list[Any]:
    """The results, on the devices of the arrays. Raises: see `_core.pyi`."""
    _internals.wait_for_operations()
    inputs = [np.asarray(array, order="C") for array in arrays]
    if how.kind == core.BARRIER:
        core.finish(core.submit_tensors(_operation(how), how.name, [], None, None))
        return []
    moved = how.kind in (core.ALLGATHER, core.ALLTOALL)
    results = (_gathered if moved else _reduced)(inputs, how, _operation(how))
    return list(jax.device_put(results, [array.sharding for array in arrays]))


def alltoall(array: Any, splits: Sequence[int], how: How) -> tuple[Any, Any]:
    """With `splits`; also returns the rows received from each rank."""
    _internals.wait_for_operations()
    told = core.Operation(core.ALLTOALL, process_set=how.process_set, splits=splits)
    host = np.asarray(array, order="C")
    handle = core.submit_tensors(told, how.name, described(host), None, None)
    try:
        core.wait(handle)
        result, received = _output(handle, 0, host.dtype), _output(handle, 1, np.int32)
    finally:
        core.free(handle)
    return jax.device_put(result, array.sharding), jax.device_put(received, array.sharding)


def join() -> int:
    """The rank that joined last."""
    _internals.wait_for_operations()
    handle = core.submit_tensors(core.Operation(core.JOIN), "join.noname", [], None, None)
    try:
        core.wait(handle)
        _unnamed.go_on_after_join()
        return int(core.last_joined(handle))
    finally:
        core.free(handle)


def described(array: Any) -> Described:
    """As the runtime takes memory."""
    return array.ctypes.data, array.shape, core.DTYPES[str(array.dtype)], array


def _operation(how: How) -> Any:
    return operation(how.kind, how.op, how.prescale, how.postscale, how.root, how.process_set)


def _groups(arrays: Sequence[Any], how: How) -> list[list[int]]:
    """The places of arrays that go as one operation: as in adapters/jax/call.cc."""
    if how.kind == core.ALLTOALL:
        return [[place] for place in range(len(arrays))]
    places: dict[str, list[int]] = {}
    for place, array in enumerate(arrays):
        places.setdefault(str(array.dtype), []).append(place)
    return list(places.values())


def _names(how: How, count: int) -> list[str]:
    return [f"{how.name}.{index}" if index else how.name for index in range(count)]


def _reduced(inputs: Sequence[Any], how: How, told: Any) -> list[Any]:
    outputs = [
        np.empty(how.result_shape(array.shape, place), array.dtype)
        for place, array in enumerate(inputs)
    ]
    groups = _groups(inputs, how)
    core.finish_all(_submit(groups, how, told, inputs, outputs))
    return outputs


def _gathered(inputs: Sequence[Any], how: How, told: Any) -> list[Any]:
    groups = _groups(inputs, how)
    handles = _submit(groups, how, told, inputs, None)
    outputs: list[Any] = [None] * len(inputs)
    try:
        for group, handle in zip(groups, handles, strict=True):
            core.wait(handle)
            for index, place in enumerate(group):
                outputs[place] = _output(handle, index, inputs[place].dtype)
    finally:
        core.free_all(handles)
    return outputs


def _submit(
    groups: Sequence[Sequence[int]],
    how: How,
    told: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
) -> list[int]:
    """Submits all groups, or none. Returns their handles."""

    def listed(arrays: Sequence[Any]) -> list[Any]:
        return [[described(arrays[place]) for place in group] for group in groups]

    results = None if outputs is None else listed(outputs)
    names = _names(how, len(groups))
    return core.submit_tensors(told, names, listed(inputs), results, None) or []


def _output(handle: int, index: int, dtype: Any) -> Any:
    memory, shape = core.output(handle, index)
    return np.frombuffer(memory, dtype).reshape(shape)
