"""From tensors to the native module and back: checks, names, handles; for any operation."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common import _unnamed
from horovod.common._extension import core
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id

_NAMED_DTYPES = {  # numbers of the C interface (hvd_dtype)
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
}
#: Is moved, and not reduced. It exists from torch 2.3 on.
UINT16 = _NAMED_DTYPES["uint16"]
DTYPES: dict[torch.dtype, int] = {
    getattr(torch, name): number for name, number in _NAMED_DTYPES.items() if hasattr(torch, name)
}


#: What `synchronize` gives.
Result = torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...] | None


#: Makes the result of an operation of its outputs; None: the one output is the result.
Form = Callable[[list[torch.Tensor]], Result] | None

#: What `synchronize` needs, by handle: the outputs (the one itself where there is no form), the
#: dtypes of those that the runtime allocates instead, the form; and the name of the operation.
#: A tuple and nothing else: each object that Python's collector must look at costs 0.5 us here.
_pending: dict[int, tuple[Any, Sequence[torch.dtype], Form, str]] = {}

#: The native module looks into tensors of these types by itself.
READER = core.reader(
    (torch.Tensor, torch.nn.Parameter), torch.Tensor.untyped_storage, torch.Tensor.is_neg
)


def nothing(outputs: list[torch.Tensor]) -> None:
    """The result of an operation that has none."""


_increment_version: Callable[[Any], None] = getattr(
    torch.autograd.graph, "increment_version", lambda tensor: None
)  # older torch cannot be told

#: The same without a call in Python, 0.3 us of the 2 that a submission takes.
_increment_versions: Callable[[Any], None] = getattr(
    torch._C, "_increment_version", _increment_version
)


class Handle(int):
    """An operation under way: an int. Dropping it frees the handle, the operation goes on.

    Keep the object that the operation returned: a copy made by `int(handle)` does not keep it.
    """

    __slots__ = ()  # one is made with every operation, and a dictionary in it is 0.1 us

    def __del__(self, pending: dict[int, Any] = _pending) -> None:
        if pending.pop(self, None) is not None:
            core.free(self)


class Batch:
    """Operations that were queued in one step and end in one step. Dropping it frees them."""

    def __init__(self, natives: list[int]) -> None:
        self._natives = natives

    def is_over(self) -> bool:
        """Whether all of them have ended, well or not."""
        return all(map(core.poll, self._natives))

    def finish(self) -> None:
        """Waits for all of them. Raises the first error, as `synchronize` does."""
        natives, self._natives = self._natives, []
        core.finish_all(natives)

    def __del__(self) -> None:
        if self._natives:
            core.free_all(self._natives)


def drop_handles() -> None:
    """At `init` and `shutdown`: no handle outlives the job but those of bundles, which their
    optimizers hold.

    The native module never uses a number again, so an old one never stands for a new operation.
    """
    while _pending:
        core.free(_pending.popitem()[0])


atexit.register(drop_handles)


def refuse(tensor: torch.Tensor, doing: str) -> ValueError:
    """Says what is wrong with a tensor that cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        return ValueError(f"{doing}: a torch.Tensor is needed, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        return ValueError(
            f"{doing}: tensors of layout {tensor.layout} are not supported, only dense ones; "
            "convert it by to_dense(), or use sparse_allreduce_async for sparse_coo"
        )
    if tensor.is_nested:
        return ValueError(f"{doing}: nested tensors are not supported; send their values()")
    if not tensor.is_cpu:
        return ValueError(
            f"{doing}: a tensor on device {tensor.device} is not supported, only CPU tensors; "
            "not in this version: GPU tensors"
        )
    supported = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
    advice = "; send torch.view_as_real(tensor)" if tensor.dtype.is_complex else ""
    return ValueError(
        f"{doing}: type {tensor.dtype} is not supported; supported types are {supported}{advice}"
    )


def check(tensor: torch.Tensor, doing: str) -> None:
    """Raises ValueError for a tensor that the native module cannot take."""
    if (
        not isinstance(tensor, torch.Tensor)
        or tensor.dtype not in DTYPES
        or not tensor.is_cpu
        or tensor.layout is not torch.strided
        or tensor.is_nested
    ):
        raise refuse(tensor, doing)


def has_memory(tensor: torch.Tensor) -> bool:
    """False for a tensor without memory of its own: inside a function transform such as vmap, a
    fake one, or one whose storage was resized to 0."""
    try:
        return tensor.data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:
        return False


def _without_memory(tensor: torch.Tensor, doing: str) -> ValueError:
    return ValueError(
        f"{doing}: this {type(tensor).__name__} of shape {tuple(tensor.shape)} has no memory that "
        "could be sent: its storage was resized to 0, or it stands for another tensor (in a "
        "torch.func transform, FakeTensorMode or a wrapper subclass); use an ordinary tensor"
    )


def readable(tensor: torch.Tensor, doing: str) -> torch.Tensor:
    """A checked tensor as contiguous memory that holds its values, copied where it does not."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if has_memory(tensor):
        return tensor
    if tensor._is_zerotensor():
        return tensor.clone()
    raise _without_memory(tensor, doing)


def writable(tensor: torch.Tensor, doing: str) -> torch.Tensor:
    """A checked tensor itself, if it can be written in place; autograd learns that it changes."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"{doing}: the tensor must be contiguous to be changed in place, its shape is "
            f"{tuple(tensor.shape)} and its strides are {tensor.stride()}"
        )
    if tensor.is_neg():
        raise ValueError(
            f"{doing}: the memory of this tensor holds its negative values (is_neg()), so it "
            "cannot be changed in place; use resolve_neg() or the operation that returns a new one"
        )
    if not has_memory(tensor):
        raise _without_memory(tensor, doing)
    changes([tensor])
    return tensor


def changes(tensors: list[torch.Tensor]) -> None:
    """Tells autograd that `tensors` change in place."""
    try:
        _increment_versions(tensors)
    except (RuntimeError, TypeError):  # an inference tensor counts no changes, and stops the rest;
        # older torch takes one at a time
        for tensor in tensors:
            if not tensor.is_inference():
                _increment_version(tensor)


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for a result like `tensor`."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def name_of(handle: int) -> str:
    """The name that an operation under way has got, without its kind; the automatic one if the
    user gave none."""
    return _pending[handle][3]


def start(
    kind: int,
    label: str,
    name: str | None,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    *,
    allocated: Sequence[torch.dtype] = (),
    form: Form = None,
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: ProcessSet = global_process_set,
    splits: list[int] | None = None,
) -> Handle:
    """Queues an operation on checked, contiguous tensors. The engine keeps them alive till its end.

    `label`: the operation, which begins its name among ranks. `allocated`: dtypes of the outputs,
    when the runtime allocates them.
    """
    set_id = 0 if process_set is global_process_set else process_set_id(process_set)

    def submit(chosen: str) -> int:
        full_name = f"{label}.{chosen}"
        if kind == core.ALLREDUCE:
            arguments = (full_name, inputs, outputs, op, prescale, postscale, set_id)
            native = core.reduce(READER, *arguments)
            if native:
                return native
        return core.submit(
            kind,
            full_name,
            [(t.data_ptr(), tuple(t.shape), DTYPES[t.dtype]) for t in inputs],
            None if allocated else [t.data_ptr() for t in outputs],
            tuple([tensor.untyped_storage() for tensor in (*inputs, *outputs)]),
            op,
            prescale,
            postscale,
            root,
            set_id,
            splits,
        )

    name, native = (name, submit(name)) if name else _unnamed.submit(set_id, submit)
    is_bare = form is None and not allocated
    return under_way(native, name, outputs[0] if is_bare else outputs, allocated, form)


def under_way(
    native: int,
    name: str,
    outputs: torch.Tensor | list[torch.Tensor],
    allocated: Sequence[torch.dtype] = (),
    form: Form = None,
) -> Handle:
    """The handle of an operation that the native module has taken."""
    handle = Handle(native)
    _pending[native] = (outputs, allocated, form, name)
    return handle


def poll(handle: int) -> bool:
    """True when the operation has ended, well or not; also for a handle that is not known."""
    return handle not in _pending or core.poll(handle)


def synchronize(handle: int) -> Result:
    """Waits until an operation has ended and returns its result; the handle is used up.

    Returns: a tensor; a list of them for a grouped operation; output and received splits for
    alltoall; None for a handle that is not known or was already synchronised.
    Raises: HorovodMismatchError (also a ValueError) when ranks disagree, HorovodInternalError
    when a rank was lost or the job has ended.
    """
    pending = _pending.pop(handle, None)
    if pending is None:
        return None
    outputs, allocated, form, _ = pending
    if not allocated:
        core.finish(handle)
        return outputs if form is None else form(outputs)
    taken = _take_outputs(handle, allocated)
    return taken[0] if form is None else form(taken)


def _take_outputs(handle: int, allocated: Sequence[torch.dtype]) -> list[torch.Tensor]:
    try:
        core.wait(handle)
        return [_output(handle, i, dtype) for i, dtype in enumerate(allocated)]
    finally:
        core.free(handle)


def _output(native: int, index: int, dtype: torch.dtype) -> torch.Tensor:
    memory, shape = core.output(native, index)
    if 0 in shape:  # frombuffer refuses empty memory
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def result(handle: int) -> torch.Tensor:
    """`synchronize` for an operation on one tensor."""
    output = synchronize(handle)
    assert isinstance(output, torch.Tensor)
    return output


def results(handle: int) -> list[torch.Tensor]:
    """`synchronize` for a grouped operation."""
    outputs = synchronize(handle)
    assert isinstance(outputs, list)
    return outputs


def same_dtype(tensors: Sequence[torch.Tensor], doing: str) -> None:
    """Raises ValueError for an empty group, and for one of several dtypes."""
    if not tensors:
        raise ValueError(f"{doing}: a group needs at least one tensor")
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1:
        listed = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise ValueError(f"{doing}: the tensors of a group must have one type, got {listed}")


def apply(function: Any, *arguments: Any) -> Any:
    """The untyped `apply` of an autograd function."""
    return function.apply(*arguments)


def needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether autograd must remember an operation on `tensors`, or refuse it in forward mode."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    if torch.autograd.forward_ad._current_level < 0:
        return False
    unpack: Callable[[torch.Tensor], Any] = torch.autograd.forward_ad.unpack_dual
    return any(unpack(tensor).tangent is not None for tensor in tensors)
