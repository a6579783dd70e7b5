"""Submission of tensors to the native module: checks, names, handles; for all operations."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common import _unnamed
from horovod.common._arguments import check_handle, check_name, factor, refused_type
from horovod.common._backend import Backend, types_of
from horovod.common._extension import core
from horovod.common._submission import Described, operation, rows_of
from horovod.common.basics import on_change_of_job
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._devices import DEVICES, Allocated, device_of, finish_on

#: The number of each dtype in the runtime. torch has uint16 from version 2.3 on.
DTYPES: dict[torch.dtype, int] = {
    getattr(torch, name): core.DTYPES[name] for name in types_of(torch)
}

BACKEND = Backend(
    types=types_of(torch),
    type_of=lambda tensor: str(tensor.dtype).removeprefix("torch."),
    advice=lambda t: "; send torch.view_as_real(tensor)" if t.dtype.is_complex else "",
)


#: The result of `synchronize`.
Result = torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...] | None


#: Converts the outputs of an operation to its result. None: the only output is the result.
Form = Callable[[list[torch.Tensor]], Result] | None

#: Outputs that are allocated when their size is known: their dtypes, and who allocates those in
#: device memory.
Later = tuple[Sequence[torch.dtype], Allocated | None]
_NOTHING_LATER: Later = ((), None)

#: The arguments of `under_way`, by handle: outputs (without a form, the only output itself), later
#: outputs, form, name of the operation. A plain tuple, since Python's garbage collector has to
#: visit fewer objects then.
_pending: dict[int, tuple[Any, Later, Form, str]] = {}

#: Of an operation that is not a message.
NO_RECEIVER = -1

#: The native module reads tensors of these types directly.
READER = core.reader(
    (torch.Tensor, torch.nn.Parameter), torch.Tensor.untyped_storage, torch.Tensor.is_neg
)


def nothing(outputs: list[torch.Tensor]) -> None:
    """The form of an operation without a result."""


_increment_version: Callable[[Any], None] = getattr(
    torch.autograd.graph, "increment_version", lambda tensor: None
)  # not in older torch

#: The native function of torch, if it has one, since it saves a call in Python.
_increment_versions: Callable[[Any], None] = getattr(
    torch._C, "_increment_version", _increment_version
)


class Handle(int):
    """The handle of an operation in flight, an int. Dropping it frees the handle. The operation
    continues.

    Keep the object that the operation returned: a copy made by `int(handle)` does not keep it
    alive.
    """

    __slots__ = ()  # without a dictionary it is created faster

    def __del__(self, pending: dict[int, Any] = _pending) -> None:
        if pending.pop(self, None) is not None:
            core.free(self)


class Batch:
    """Operations that are queued by one call and completed by one call. Dropping it frees them.

    `device`: of their tensors; None: the host.
    """

    def __init__(self, natives: list[int], device: torch.device | None) -> None:
        self._natives = natives
        self._device = device

    def is_over(self) -> bool:
        """Returns whether all of them have ended, successfully or not."""
        return all(map(core.poll, self._natives))

    def wait(self, at: int) -> None:
        """Waits for one of them. Raises its error. `finish` raises it again."""
        core.wait(self._natives[at])

    def finish(self) -> None:
        """Waits for all of them. Raises the first error, as `synchronize` does."""
        device, natives, self._natives = self._device, self._natives, []
        core.finish_all(natives, None if device is None else DEVICES[device.type].stream_of(device))

    def __del__(self) -> None:
        if self._natives:
            core.free_all(self._natives)


def drop_handles() -> None:
    """Called at `init` and `shutdown`: drops all handles, except those of bundles, which their
    optimizers hold.

    The native module never reuses a number, so an old one never refers to a new operation.
    """
    while _pending:
        core.free(_pending.popitem()[0])


on_change_of_job(drop_handles)
atexit.register(drop_handles)


def refuse(tensor: torch.Tensor, doing: str) -> ValueError:
    """Returns the error for a tensor that cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        return ValueError(f"{doing}: a torch.Tensor is needed, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        return ValueError(
            f"{doing}: tensors of layout {tensor.layout} are not supported, only dense ones; "
            "convert it by to_dense(), or use sparse_allreduce_async for sparse_coo"
        )
    if tensor.is_nested:
        return ValueError(f"{doing}: nested tensors are not supported; send their values()")
    if not (tensor.is_cpu or tensor.device.type in DEVICES):
        return ValueError(
            f"{doing}: a tensor on device {tensor.device} is not supported, only tensors in host "
            "memory and on CUDA devices; copy it there by cpu()"
        )
    return refused_type(doing, BACKEND, tensor)


def check(tensor: torch.Tensor, doing: str) -> None:
    """Raises ValueError for a tensor that the native module cannot take."""
    if (
        not isinstance(tensor, torch.Tensor)
        or tensor.dtype not in DTYPES
        or not (tensor.is_cpu or tensor.device.type in DEVICES)
        or tensor.layout is not torch.strided
        or tensor.is_nested
    ):
        raise refuse(tensor, doing)


def has_memory(tensor: torch.Tensor) -> bool:
    """Returns False for a tensor without its own memory: inside a function transform such as vmap,
    a fake tensor, or one whose storage was resized to 0.
    """
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
    """Returns a checked tensor as contiguous memory that holds its values, as a copy if needed."""
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
    """Returns a checked tensor that can be written in place, and marks it as changed for
    autograd."""
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
    """Reports to autograd that `tensors` change in place."""
    try:
        _increment_versions(tensors)
    except (RuntimeError, TypeError):
        # One of them is an inference tensor, which has no version, or torch is older and takes only
        # one tensor.
        for tensor in tensors:
            if not tensor.is_inference():
                _increment_version(tensor)


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """Returns memory for a result like `tensor`."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def rows_for(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Returns memory for the rows of `tensor` that a reducescatter gives to `rank` of `size`."""
    rows, *row = tensor.shape
    return tensor.new_empty((rows_of(rows, rank, size), *row))


def name_of(handle: int) -> str:
    """Returns the name of an operation in flight, without its label. Unnamed operations have an
    automatic name.
    """
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
    receiver: int = NO_RECEIVER,
    timeout: float = 0.0,
    sent_as: int | None = None,
) -> Handle:
    """Queues an operation on checked, contiguous tensors. The engine keeps them alive until it
    ends.

    `label`: the kind of operation, a prefix of the name by which ranks match it. `allocated`:
    dtypes of the outputs, if the runtime allocates them. `timeout`: how many seconds it waits for
    ranks that do not submit it, 0: without limit; then the job ends.
    """
    set_id = 0 if process_set is global_process_set else process_set_id(process_set)
    check_name(label, name)
    if type(prescale) is not float or type(postscale) is not float:
        prescale = factor(label, "prescale_factor", prescale)
        postscale = factor(label, "postscale_factor", postscale)

    how = (
        operation(kind, op, prescale, postscale, root, set_id, receiver, timeout, sent_as)
        if splits is None
        else core.Operation(kind, process_set=set_id, splits=splits, timeout=timeout)
    )

    targets = None if allocated else outputs
    device = device_of(inputs) if allocated else None
    allocate = None if device is None else Allocated(device, allocated)

    def submit(chosen: str) -> int:
        full_name = f"{label}.{chosen}"
        native = core.submit_tensors(how, full_name, inputs, targets, READER, allocate)
        return native or _submit_described(how, full_name, inputs, targets, allocate)

    name, native = (name, submit(name)) if name else _unnamed.submit(set_id, submit)
    is_bare = form is None and not allocated
    return under_way(native, name, outputs[0] if is_bare else outputs, (allocated, allocate), form)


def _submit_described(
    how: Any,
    name: str,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor] | None,
    allocate: Allocated | None,
) -> int:
    """Queues an operation on tensors that the native module cannot read. Returns its native
    handle."""
    sent = described(inputs)
    written = sent if outputs is inputs or outputs is None else described(outputs)
    targets = None if outputs is None else written
    return core.submit_tensors(how, name, sent, targets, None, allocate)


def described(tensors: Sequence[torch.Tensor]) -> list[Described]:
    """Describes checked, contiguous tensors by numbers."""
    return [_described(tensor) for tensor in tensors]


def described_all(items: Sequence[Any]) -> list[Any] | None:
    """Describes the tensors of several operations, of which each has a tensor or a list of them.
    None unless all are plain ones that can be reduced in place: dense, contiguous, and of one dtype
    per operation."""
    found: list[Any] = []
    for item in items:
        tensors = item if isinstance(item, list) else [item]
        if not all(map(_is_plain, tensors)) or len({tensor.dtype for tensor in tensors}) != 1:
            return None
        each = described(tensors)
        found.append(each if isinstance(item, list) else each[0])
    return found


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and (tensor.is_cpu or tensor.device.type in DEVICES)
        and tensor.dtype in DTYPES
        and tensor.dtype not in (torch.bool, getattr(torch, "uint16", None))
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and has_memory(tensor)
    )


def _described(tensor: torch.Tensor) -> Described:
    plain = (tensor.data_ptr(), tuple(tensor.shape), DTYPES[tensor.dtype], tensor.untyped_storage())
    if tensor.is_cpu:
        return plain
    device = tensor.device
    kind = DEVICES[device.type]
    return (*plain, kind.number, device.index or 0, kind.stream_of(device))


def under_way(
    native: int,
    name: str,
    outputs: torch.Tensor | list[torch.Tensor],
    later: Later = _NOTHING_LATER,
    form: Form = None,
) -> Handle:
    """Returns the handle of an operation that the native module has accepted."""
    handle = Handle(native)
    _pending[native] = (outputs, later, form, name)
    return handle


def poll(handle: int) -> bool:
    """Returns whether `synchronize` would return without blocking: the operation has ended,
    successfully or not, or is queued on the device of its tensors. True for an unknown handle.

    Raises: ValueError if `handle` is not a handle.
    """
    if handle in _pending:
        return core.poll(handle)
    check_handle("poll", handle)
    return True


def synchronize(handle: int) -> Result:
    """Blocks until an operation has ended and returns its result. The handle is then invalid.

    For tensors on a GPU it blocks until the operation is queued there, and makes the current stream
    of this thread wait for the result. The host does not wait for the GPU.

    Returns:
        A tensor; for a grouped operation a list of tensors; for alltoall a tuple of the output and
            the received splits. None for an unknown handle or one that was synchronized already.

    Raises:
        HorovodMismatchError: ranks disagree (also a ValueError).
        HorovodInternalError: a rank was lost or the job has ended.
        ValueError: `handle` is not a handle.
    """
    pending = _pending.pop(handle, None)
    if pending is None:
        check_handle("synchronize", handle)
        return None
    outputs, later, form, _ = pending
    if later is not _NOTHING_LATER and later[0]:
        taken = _take_outputs(handle, *later)
        return taken[0] if form is None else form(taken)
    device = device_of(outputs)
    if device is None:
        core.finish(handle)
    else:
        finish_on(device, handle)
    return outputs if form is None else form(outputs)


def _take_outputs(
    handle: int, dtypes: Sequence[torch.dtype], allocated: Allocated | None
) -> list[torch.Tensor]:
    try:
        core.wait(handle)
        if allocated is not None:
            allocated.wait_on_stream(handle)
        made = [None if allocated is None else allocated.output(i) for i in range(len(dtypes))]
        return [
            _output(handle, i, dtype) if output is None else output
            for i, (dtype, output) in enumerate(zip(dtypes, made, strict=True))
        ]
    finally:
        core.free(handle)


def _output(native: int, index: int, dtype: torch.dtype) -> torch.Tensor:
    memory, shape = core.output(native, index)
    if 0 in shape:  # frombuffer rejects empty memory
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def result(handle: int) -> torch.Tensor:
    """Returns the result of `synchronize` for an operation on one tensor."""
    output = synchronize(handle)
    assert isinstance(output, torch.Tensor)
    return output


def results(handle: int) -> list[torch.Tensor]:
    """Returns the result of `synchronize` for a grouped operation."""
    outputs = synchronize(handle)
    assert isinstance(outputs, list)
    return outputs


def apply(function: Any, *arguments: Any) -> Any:
    """Calls `apply` of an autograd function, which has no type hints."""
    return function.apply(*arguments)


def needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether autograd must record an operation on `tensors`, or reject it in forward
    mode."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    if torch.autograd.forward_ad._current_level < 0:
        return False
    unpack: Callable[[torch.Tensor], Any] = torch.autograd.forward_ad.unpack_dual
    return any(unpack(tensor).tangent is not None for tensor in tensors)
