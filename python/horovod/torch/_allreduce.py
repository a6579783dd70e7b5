"""allreduce and its forms: blocking, asynchronous, in place; and the gradient."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common import _arguments
from horovod.common._arguments import (
    check_average,
    check_compression,
)
from horovod.common._extension import core
from horovod.common._reductions import check_ranks
from horovod.common._submission import operation
from horovod.common.basics import Adasum, Average, Max, Min, Product, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._devices import device_of
from horovod.torch._library import is_compiling, operators
from horovod.torch._submission import (
    BACKEND,
    DTYPES,
    READER,
    Batch,
    apply,
    changes,
    check,
    described_all,
    fresh,
    name_of,
    needs_gradient,
    readable,
    result,
    start,
    synchronize,
    under_way,
    writable,
)
from horovod.torch.compression import Compression, Compressor

#: By which every op can reduce, but Adasum, which is for floating types.
_FOR_EVERY_OP = frozenset(DTYPES) - {torch.bool, getattr(torch, "uint16", torch.bool)}


def reduce_op(op: int | None, average: bool | None) -> int:
    """The reduction that the arguments ask for; ValueError when there is no such."""
    if op is None and average is not None and is_compiling():  # which knows no warnings
        check_average(average)
        return Average if average else Sum
    return _arguments.reduce_op(op, average)


def check_reducible(tensor: torch.Tensor, op: int, doing: str) -> None:
    """Raises ValueError for a tensor that `op` cannot reduce."""
    check(tensor, doing)
    if tensor.dtype not in _FOR_EVERY_OP or op == Adasum:
        _arguments.check_reducible(doing, BACKEND, tensor, op)


#: What every dtype but bool and uint16 can be reduced by, on any ranks; None stands for Average.
_USUAL_OPS = {None: Average, Average: Average, Sum: Sum, Min: Min, Max: Max, Product: Product}

#: What most calls ask for: no factors. Looked up, since a factor may be anything that a user gives.
_USUAL = {(op, 1.0, 1.0): operation(core.ALLREDUCE, number) for op, number in _USUAL_OPS.items()}


def allreduce_all_async_(
    names: list[str],
    tensors: list[Any],
    op: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    sent_as: int | None = None,
) -> Batch | None:
    """Queues several in-place operations in one step. Returns None and queues nothing for other
    ops.

    `names`: in full, with the label in front. `tensors`: for each name a tensor or a list of
    tensors. Cheaper than as many calls of allreduce_async_: ranks agree on all of them at once.
    `sent_as`: as what the runtime sends float32 tensors in device memory.
    """
    if op not in _USUAL_OPS:
        return None
    set_id = 0 if process_set is global_process_set else process_set_id(process_set)
    how = operation(
        core.ALLREDUCE, op, prescale_factor, postscale_factor, 0, set_id, sent_as=sent_as
    )
    natives = core.submit_tensors(how, names, tensors, tensors, READER)
    if natives is None and (sent := described_all(tensors)) is not None:
        natives = core.submit_tensors(how, names, sent, sent, None)
    if natives is None:
        return None
    changes([t for item in tensors for t in (item if isinstance(item, list) else (item,))])
    devices = [device for device in map(device_of, tensors) if device is not None]
    return Batch(natives, devices[0] if devices else None)


def reduced_at_once(
    label: str, name: str, tensors: Any, op: Any, prescale_factor: Any, postscale_factor: Any
) -> int:
    """Queues an operation in place. Returns 0 and queues nothing if the general path is needed."""
    if op is not None and type(op) is not int:
        return 0
    try:
        how = _USUAL.get((op, prescale_factor, postscale_factor))
        if how is None:
            if type(prescale_factor) is not float or type(postscale_factor) is not float:
                return 0
            if op not in _USUAL_OPS:
                return 0
            how = operation(core.ALLREDUCE, _USUAL_OPS[op], prescale_factor, postscale_factor)
        return core.submit_tensors(how, label + name, tensors, tensors, READER)
    except TypeError:  # of the name or a factor: the full way says what is wrong
        return 0


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` without blocking and returns a handle.

    `synchronize(handle)` returns the new tensor.
    """
    op = reduce_op(op, average)
    check_reducible(tensor, op, "allreduce")
    check_ranks(op, process_set)
    source = readable(tensor, "allreduce")
    return start(
        core.ALLREDUCE,
        "allreduce",
        name,
        [source],
        [fresh(source)],
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` in place, without blocking, and returns a handle.

    `synchronize(handle)` returns `tensor`, which must not be read or changed before. Operations in
    flight may share memory: it is undefined which of them see results of the others, but it is the
    same on every rank.
    Raises: ValueError if `tensor` is not contiguous.
    """
    if name and average is None and process_set is global_process_set:
        native = reduced_at_once("allreduce.", name, tensor, op, prescale_factor, postscale_factor)
        if native:  # a plain tensor: a third of the time of the full way
            changes([tensor])
            return under_way(native, name, tensor)
    op = reduce_op(op, average)
    check_reducible(tensor, op, "allreduce_")
    check_ranks(op, process_set)
    tensors = [writable(tensor, "allreduce_")]
    return start(
        core.ALLREDUCE,
        "allreduce",
        name,
        tensors,
        tensors,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks in place and returns it. Not differentiable. See `allreduce`.

    Raises: ValueError if `tensor` is not contiguous.
    """
    handle = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )
    synchronize(handle)
    return tensor


class HorovodAllreduce(torch.autograd.Function):
    """allreduce; its gradient is the allreduce of the gradient with the same op and factors."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.op = reduce_op(op, average)
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = allreduce_async(
            tensor, None, name, ctx.op, prescale_factor, postscale_factor, process_set
        )
        ctx.name = name_of(handle)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = allreduce(
            gradients[0],
            None,
            f"{ctx.name}.gradient",
            Compression.none,
            ctx.op,
            ctx.factors[0],
            ctx.factors[1],
            ctx.process_set,
        )
        return reduced, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns postscale_factor * REDUCE(prescale_factor * tensor) over all ranks, as a new tensor.

    Args:
        tensor: any shape and dtype, the same on every rank; the result has them too.
        average: deprecated, use `op`.
        name: matches the operation between ranks; unnamed ones are matched by the order of calls.
        compression: compresses the tensor before sending, e.g. `hvd.Compression.fp16`.
        op: Average (default), Sum, Adasum, Min, Max or Product. Adasum: floating-point dtypes only.
        process_set: the ranks that take part.

    float16 and bfloat16 are scaled and added in float32. Average of equal floating-point numbers is
    that number. Average of integers truncates the exact quotient toward zero; factors on integers
    multiply in double and truncate toward zero. Integer sums wrap. bool: Max is any, Min is all.
    Gradient: the allreduce of the gradient with the same op and factors.
    Raises: ValueError for tensors that cannot be sent; HorovodMismatchError if ranks disagree on
    dtype, shape, op or factors; HorovodInternalError if a rank is lost; NotImplementedError for
    Adasum if the number of ranks is not a power of two.
    """
    op = reduce_op(op, average)
    check(tensor, "allreduce")
    check_compression("allreduce", compression)
    compressed, context = compression.compress(tensor)
    if is_compiling():
        reduced = operators().allreduce(
            compressed, name, op, prescale_factor, postscale_factor, process_set_id(process_set)
        )
    elif needs_gradient([compressed]):
        reduced = apply(
            HorovodAllreduce,
            compressed,
            None,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
        )
    else:
        handle = allreduce_async(
            compressed, None, name, op, prescale_factor, postscale_factor, process_set
        )
        reduced = synchronize(handle)
    decompressed: torch.Tensor = compression.decompress(reduced, context)
    return decompressed
