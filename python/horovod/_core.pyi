"""The runtime, as Python sees it: a thin layer over the C interface (include/horovod/horovod.h).

Tensors are plain integers here (address, shape, dtype number), so this module knows no framework.
Blocking calls release the GIL. Errors: ValueError for misuse on this rank and for calls before
`init`; `horovod.common.exceptions.HorovodInternalError` when the job is lost or has ended;
`HorovodMismatchError` (a subclass, also a ValueError) when ranks disagree about one operation.
"""

from collections.abc import Callable, Sequence
from typing import Any

# kinds of operation
ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
ALLTOALL: int
REDUCESCATTER: int
BARRIER: int
JOIN: int

class World:
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: bool
    generation: int

def version() -> str: ...
def init(
    process_sets: Sequence[Sequence[int]] = (),
    dynamic: bool = False,
    members: Sequence[int] = (),
    rank: int = 0,
    size: int = 0,
    introduce: Callable[[str, str | None], str] | None = None,
) -> None:
    """Starts the runtime. `process_sets`: lists of global ranks, which get the ids 1, 2, ...

    `members`: the launcher's ranks that are the job; none: all. `rank`, `size`: of this process,
    where the environment does not say it. `introduce`: called on every rank with a name that is
    equal on all and new at every init, and a text on rank 0, None elsewhere; returns that text on
    all. Only where the launcher does not help.
    """

def shutdown() -> None: ...
def shutdown_at_exit() -> None:
    """The same for a process that is about to exit. Does not wait for an `init` that another thread
    is in.
    """

def is_initialized() -> bool: ...
def uses_mpi() -> bool:
    """Whether MPI moves the tensors. False when no job runs."""

def derive_key(purpose: str) -> bytes:
    """A key of 32 bytes, derived from the job's key: equal on all ranks, one for each purpose."""

def world() -> World: ...
def add_process_set(ranks: Sequence[int]) -> int:
    """Collective over all ranks, blocks; returns the id of the new set."""

def remove_process_set(id: int) -> None:
    """Collective over all ranks, blocks."""

def process_set(id: int) -> tuple[int, int]:
    """The size of a set, and this process' rank in it or -1. ValueError for an unknown id."""

def process_set_ranks(id: int) -> list[int]: ...
def submit(
    kind: int,
    name: str,
    inputs: Sequence[tuple[int, tuple[int, ...], int]],
    outputs: Sequence[int] | None,
    owners: Any,
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
    splits: Sequence[int] | None = None,
) -> int:
    """Queues an operation and returns a handle (to be given to `free` in the end).

    `inputs`: (address, shape, dtype number) a tensor, contiguous host memory. `outputs`: addresses:
    for allreduce and broadcast as large as the inputs, which they may equal; for reducescatter as
    large as this rank's rows; None for allgather and alltoall. `splits`: alltoall's rows for each
    rank of the set, None for equal parts. `root`: a global rank. `owners` keep the memory alive,
    one object or a tuple of them: they are referenced until the engine is done with it, and
    released by a later call from Python.
    """

def reader(
    types: tuple[type, ...],
    owner_of: Callable[[Any], Any],
    is_negated: Callable[[Any], bool],
) -> Any:
    """What `reduce` looks into tensors by: DLPack's exchange interface for C, where a type has it.

    `types`: of the tensors, exactly; subclasses are not read. `owner_of`: returns the object that
    owns the memory of a tensor, such as its storage. `is_negated`: whether the memory holds the
    negative values; such a tensor is not read.
    """

def borrower_of(owner: Any) -> str | None:
    """The name of an operation that uses the memory of `owner`, which is one of the `owners` that
    `submit` got, or that `owner_of` returned for a tensor. None when no operation does."""

def reduce(
    reader: Any,
    name: str,
    inputs: Any,
    outputs: Any,
    op: int,
    prescale: float,
    postscale: float,
    process_set: int,
) -> int:
    """Queues an allreduce as `submit` does, of tensors and not of numbers.

    `inputs`, `outputs`: a tensor, or a list of them; the same object to reduce in place. Their
    owners are kept alive as in `submit`. Returns 0, and nothing is queued, when one of them cannot
    be read, is not contiguous host memory with its values, or has a type that not every `op` takes:
    `submit` is for the rest.
    """

def reduce_all(
    reader: Any,
    names: list[str],
    tensors: list[Any],
    op: int,
    prescale: float,
    postscale: float,
    process_set: int,
) -> list[int] | None:
    """Queues several allreduces in place in one step, all or none; each has its own handle.

    `names`: in full. `tensors`: for each a tensor, or a list of them. Returns None, and nothing is
    queued, where `reduce` would return 0 for one of them.
    """

def addresses(reader: Any, items: list[Any]) -> bytes:
    """Where the memory of each tensor begins, 8 bytes for each in the order of the machine.

    `items`: tensors, or lists of them.
    """

class GradientNotes:
    """Counts the backward passes of parameters, and notes the gradients that are complete.

    `begin()` is called before the first gradient of a pass; `enough()` when what is noted has
    `enough_bytes`, or when all parameters are complete; `too_often(index)` for a parameter that
    needs no more passes. They must not keep alive what holds the notes.
    """

    def __init__(
        self,
        reader: Any,
        begin: Callable[[], object],
        enough: Callable[[], object],
        too_often: Callable[[int], object],
        enough_bytes: int,
    ) -> None: ...
    def hook(self, bytes: int, passes: int) -> Callable[[Any], None]:
        """What autograd is to call with the next parameter, when its gradient has grown.

        Parameters are numbered in the order of these calls. `bytes`: of its gradient.
        """

    def restart(self, passes: int) -> None:
        """From now on each parameter needs `passes`, and a pass begins. What is noted stays."""

    def begin_pass(self) -> None: ...
    def take(self) -> tuple[list[int], list[Any], list[int], bool]:
        """Indices, gradients and their versions; and whether `reduce_all` can take all of them."""

    def has_noted(self) -> bool: ...
    def stop(self) -> None:
        """Notes nothing any more, for whoever would take it is gone."""

def poll(handle: int) -> bool: ...
def wait(handle: int) -> None: ...
def finish(handle: int) -> None:
    """`wait`, then `free` whether it raises or not."""

def finish_all(handles: Sequence[int]) -> None:
    """`finish` for several: waits for all of them, then raises the first error."""

def free_all(handles: Sequence[int]) -> None: ...
def output(handle: int, index: int) -> tuple[Any, tuple[int, ...]]:
    """Allgather and alltoall, after `wait`, once an output: its bytes and its shape.

    Alltoall: 0 is the tensor, 1 the received splits, int32. The bytes are an object with the buffer
    protocol that owns the memory.
    """

def last_joined(handle: int) -> int:
    """Join, after `wait`: the rank that joined last."""

def free(handle: int) -> None: ...
def knobs() -> list[dict[str, Any]]:
    """The configuration table: env, flag, default, help, ... of each row."""

def start_timeline(path: str, mark_cycles: bool = False) -> None: ...
def stop_timeline() -> None: ...
