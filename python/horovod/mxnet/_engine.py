"""Operations whose results have known shapes: pushed to MXNet's engine, in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mxnet as mx

from horovod.common import _unnamed
from horovod.common._arguments import check_name, is_number
from horovod.common._extension import core
from horovod.common._submission import operation
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.mxnet import _library
from horovod.mxnet._types import empty, host_of, on_host


class How(NamedTuple):
    """All that an operation is told beside its arrays. `rank`, `size`: within the process set."""

    label: str  #: the public function, which begins the name of the operation
    kind: int
    name: str | None
    priority: int
    process_set: int
    size: int
    rank: int
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0  #: global rank

    def operation(self) -> Any:
        return operation(
            self.kind, self.op, self.prescale, self.postscale, self.root, self.process_set
        )


def make(
    label: str, kind: int, name: str | None, priority: int, process_set: ProcessSet, **rest: Any
) -> How:
    """Checks the arguments that all operations have.

    Raises: ValueError; also before `init`, for an unregistered set, and on a rank outside the set.
    """
    check_name(label, name)
    if not is_number(priority):
        raise ValueError(f"{label}: priority must be an int, got {priority!r}")
    number = process_set_id(process_set)
    size, rank = core.process_set(number)
    if rank < 0:
        raise ValueError(
            f"{label}: rank {core.world().rank} is not part of {process_set!r}; only its ranks may "
            "call operations on it"
        )
    return How(label, kind, name, int(priority), number, size, rank, **rest)


def private(array: Any) -> Any:
    """A copy in host memory. It is asynchronous; nothing else uses it, and it is not recorded."""
    with mx.autograd.pause(), mx.util.np_shape(True):  # a shape may have a zero
        return array.copyto(host_of(array))


def run_in_place(arrays: Sequence[Any], how: How) -> None:
    """Overwrites the arrays."""
    hosts = [array if on_host(array) else private(array) for array in arrays]
    run(hosts, hosts, how)
    with mx.autograd.pause():
        for host, array in zip(hosts, arrays, strict=True):
            if host is not array:
                host.copyto(array)


def run(inputs: Sequence[Any], outputs: Sequence[Any], how: How) -> None:
    """On arrays in host memory. `outputs`: the inputs, or others that overlap none of them."""

    def push(chosen: str) -> None:
        name = f"{how.label}.{chosen}"
        _library.push(how.operation(), name, inputs, outputs, how.priority)

    if how.name is None:
        _unnamed.submit(how.process_set, push)
    else:
        push(how.name)


def moved_back(results: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """The results on the devices of the arrays that they were made of."""
    with mx.autograd.pause():
        return [
            result if on_host(array) else result.as_in_context(array.context)
            for result, array in zip(results, like, strict=True)
        ]


def root_or_empty(array: Any, how: How) -> Any:
    """What a rank passes to a broadcast that is not in place."""
    return private(array) if core.world().rank == how.root else empty(array.shape, array)
