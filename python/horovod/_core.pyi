"""The native module: a thin layer over the C interface (include/horovod/horovod.h).

Tensors are described by integers (see Described), so this module depends on no framework.
Blocking calls release the GIL. Errors: ValueError for misuse on this rank and for calls before
`init`; `horovod.common.exceptions.HorovodInternalError` if the job is lost or has ended;
`HorovodMismatchError` (a subclass, also a ValueError) if ranks disagree about one operation.
"""

from collections.abc import Callable, Sequence
from typing import Any, overload

# kinds of operation
ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
ALLTOALL: int
REDUCESCATTER: int
BARRIER: int
JOIN: int
MESSAGE: int
# types of devices
HOST: int
CUDA: int
ROCM: int

#: The number of each element type that the runtime knows, by its name in NumPy.
DTYPES: dict[str, int]

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
    rendezvous: Callable[[str, str | None], str] | None = None,
    nccl_library: str = "",
) -> None:
    """Starts the runtime. `process_sets`: lists of global ranks, which get the ids 1, 2, ...

    `members`: the launcher's ranks that form the job; empty: all. `rank`, `size`: of this process,
    if the environment does not have them. `rendezvous`: broadcasts the root address, if the
    launcher does not. It is called on every rank with a name, which is equal on all ranks and new
    at every init, and with the root address on rank 0 (None on other ranks). It returns the root
    address on all ranks. `nccl_library`: a libnccl.so.2 to load at the first CUDA tensor, unless
    the process has loaded one by then or HOROVOD_NCCL_LIBRARY names one; "": the loader's default.
    """

def prepare_dump() -> tuple[int, int]:
    """Returns the signal by which horovodrun --dump asks (0: it cannot), and the descriptor for
    stacks."""

def take_stack_handler(signal: int, descriptor: int) -> None:
    """The present handler of `signal` writes the stack of its thread to `descriptor`.

    The process answers horovodrun --dump from now on.
    """

def meet_before_init(meets: bool) -> None:
    """For horovodrun --dump, this process is in init from now on; without `meets`, its init has
    failed. Does nothing while a job runs.
    """

def count_step() -> None:
    """Counts a step of the training, for horovodrun --dump."""

def shutdown() -> None:
    """Raises HorovodInternalError, after the end of the job, if a rank is lost meanwhile for which
    this rank waits, unless the job is elastic.
    """

def is_elastic() -> bool:
    """Returns whether this process belongs to an elastic job."""

def ask_for_place() -> None:
    """Asks the launcher for a place in the next generation. After `shutdown`."""

def await_place() -> None:
    """Blocks until the launcher has assigned the place. Raises HorovodShutdownError with the reason
    if it does not want this worker any more. Signals are handled meanwhile.
    """

def place() -> tuple[int, str]:
    """Returns the generation of the place, -1: none yet, and its variables, one line each."""

def pending_update() -> tuple[bool, bool, float] | None:
    """Takes all announcements so far: added, removed, timestamp. None: nothing new."""

def leave_job() -> None:
    """Tells the launcher that this process leaves the job. The others do not wait for its end."""

def shutdown_at_exit() -> None:
    """Does `shutdown` for a process that is about to exit. Does not wait for an `init` that runs in
    another thread.
    """

def is_initialized() -> bool: ...
def uses_mpi() -> bool:
    """Returns whether MPI moves the tensors. False if no job runs."""

def derive_key(purpose: str) -> bytes:
    """Returns a key of 32 bytes, derived from the job's key and `purpose`; equal on all ranks."""

SEAL_BYTES: int

def seal(key: bytes, number: int, message: bytes) -> bytes:
    """Encrypts and authenticates: SEAL_BYTES more than `message`. No two messages may have the same
    key (32 bytes) and number. Needs no job."""

def unseal(key: bytes, number: int, sealed: bytes) -> bytes:
    """ValueError if `sealed` is not of this key and number."""

def world() -> World: ...
def add_process_set(ranks: Sequence[int]) -> int:
    """Collective over all ranks, blocks; returns the id of the new set."""

def remove_process_set(id: int) -> None:
    """Collective over all ranks, blocks."""

def process_set(id: int) -> tuple[int, int]:
    """The size of a set, and this process' rank in it or -1. ValueError for an unknown id."""

def process_set_ranks(id: int) -> list[int]: ...

#: Description of a tensor: address of contiguous memory, shape, dtype number, and the object that
#: owns the memory. For device memory also the type and index of the device, and the current stream
#: of the calling thread.
Described = (
    tuple[int, tuple[int, ...], int, Any] | tuple[int, tuple[int, ...], int, Any, int, int, int]
)

class Operation:
    """All parameters of an operation except its tensors. Immutable: may be used for many calls.

    `kind`: one of the constants above. `op`, `prescale`, `postscale`: of allreduce and
    reducescatter. `root`: of broadcast, a global rank; of a message, the sender. `process_set`: an
    id. `splits`: of alltoall, the rows for each rank of the set; None: equal parts. `receiver`: of
    a message, a global rank. `timeout`: how many seconds it waits for ranks that have not submitted
    it, 0: without limit; then the job ends. `sent_as`: of allreduce, the number of float16 or
    bfloat16: float32 in device memory is sent as this dtype. Other tensors are sent as they are.
    """

    kind: int
    op: int
    prescale: float
    postscale: float
    root: int
    process_set: int
    splits: list[int] | None
    receiver: int
    timeout: float

    def __init__(
        self,
        kind: int,
        op: int = 1,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root: int = 0,
        process_set: int = 0,
        splits: Sequence[int] | None = None,
        receiver: int = 0,
        timeout: float = 0.0,
        sent_as: int | None = None,
    ) -> None: ...

@overload
def submit_tensors(
    operation: Operation,
    names: str,
    inputs: Any,
    outputs: Any,
    reader: Any,
    allocate: Callable[[int, tuple[int, ...]], tuple[int, int, Any]] | None = None,
    /,
) -> int:
    """Queues an operation on one tensor or, as a group, on several.

    `inputs`, `outputs`: a tensor, or a list of them. Each is a tensor that `reader` knows, or a
    tuple that describes it. `outputs`: for allreduce and broadcast as large as the inputs, which
    they may be (the same object); for reducescatter this rank's rows; None for allgather and
    alltoall, where the runtime allocates. What owns the memory is referenced until the engine no
    longer uses it, and released by a later call from Python.

    `reader`: from `reader()`; may be None if all tensors are described.

    `allocate`: allgather and alltoall of device memory: is called with the index and the shape of
    each output when all ranks have agreed on the operation, on any thread. Returns the address, the
    stream on which the memory may be written, and what keeps it alive until the engine no longer
    uses it. An exception ends the job, and its text is part of the error.

    Returns: a handle, to be given to `free` in the end. 0, and nothing is queued, when a tensor
    cannot be read by `reader`: it is not contiguous host memory with its values or, to be reduced,
    has a type that not every `op` takes, or another type than the first. Then describe the tensors.
    Raises: TypeError where there is no reader for such a tensor.
    """

@overload
def submit_tensors(
    operation: Operation,
    names: list[str],
    inputs: list[Any],
    outputs: list[Any] | None,
    reader: Any,
    allocate: Sequence[Callable[[int, tuple[int, ...]], tuple[int, int, Any]] | None] | None = None,
    /,
) -> list[int] | None:
    """Queues several such operations in one step, all or none; each has a name, inputs and outputs,
    and allocates its outputs itself.

    Returns: a handle for each. None, and nothing is queued, where it would be 0 for one of them.
    """

def reader(
    types: tuple[type, ...],
    owner_of: Callable[[Any], Any],
    is_negated: Callable[[Any], bool],
) -> Any:
    """Returns the object by which `submit_tensors` reads tensors: DLPack's C exchange interface, if
    the type has it.

    `types`: of the tensors, exactly; subclasses are not read. `owner_of`: returns the object that
    owns the memory of a tensor, such as its storage. `is_negated`: whether the memory holds the
    negative values; such a tensor is not read.
    """

def borrower_of(owner: Any, identity: str | None = None) -> str | None:
    """Returns the name of an operation that uses the memory of `owner`, an object from the
    description of a tensor or from `owner_of`. None if no operation uses it. `identity`: an
    attribute that all objects of one owner have in common, if there can be several."""

def addresses(reader: Any, items: list[Any]) -> bytes:
    """Returns the address of each tensor, 8 bytes each in native byte order.

    `items`: tensors, or lists of them.
    """

def kinds(reader: Any, tensors: list[Any]) -> bytes:
    """Returns bytes that change if a tensor gets another shape, dtype or device. Empty if a tensor
    cannot be read."""

class Group:
    """A blocking group: its ranks make the same calls in the same order, without agreement.

    The constructor and `close` are collective over `ranks` (global; none: all). One thread at a
    time. `name`: by which ranks find each other if they create groups of the same ranks in a
    different order.
    """

    def __init__(self, ranks: Sequence[int], name: str = "") -> None: ...
    def rank(self) -> int:
        """Within the group."""
    def size(self) -> int: ...
    def run(self, operation: Operation, input: Any, output: Any, reader: Any, /) -> bool:
        """Runs one operation and returns when its result is in `output`.

        `input`, `output`, `reader`: as for `submit_tensors`, but the caller provides the output of
        every operation. The root of `operation` is a rank of the group; its process set is ignored.
        Returns False, and does nothing, where `submit_tensors` returns 0.
        Raises: ValueError where the output has not the type or the number of elements of the
        result; TypeError as `submit_tensors`.
        """
    def barrier(self) -> None: ...
    def close(self) -> None:
        """Collective; blocks until no rank of the group needs this one."""

class GradientNotes:
    """Counts the backward passes of parameters, and notes the gradients that are complete.

    `begin(index)` is called before the first gradient of a pass, that of a parameter; `enough()`
    when what is noted has `enough_bytes`, or when all parameters that are waited for are complete;
    `unexpected(index)` for a parameter that needs no more passes, or is not waited for (which it is
    when this returns); `on_stream(gradient)` on the thread whose current stream completes a
    gradient on a device, if that may be a new one. They must not keep alive what holds the notes.
    """

    def __init__(
        self,
        reader: Any,
        begin: Callable[[int], object],
        enough: Callable[[], object],
        unexpected: Callable[[int], object],
        on_stream: Callable[[Any], object],
        enough_bytes: int,
    ) -> None: ...
    def hook(self, bytes: int, passes: int) -> Callable[[Any], None]:
        """What autograd is to call with the next parameter, when its gradient has grown.

        Parameters are numbered in the order of these calls. `bytes`: of its gradient.
        """

    def expect(self, flags: list[bool]) -> None:
        """Which parameters are waited for; one that is new is."""

    def last(self) -> int:
        """The parameter whose gradient has come last; -1 for none."""

    def restart(self, passes: int) -> None:
        """From now on each parameter needs `passes`, and a pass begins. What is noted stays."""

    def begin_pass(self) -> None: ...
    def take(self) -> tuple[list[int], list[Any], list[int], bool]:
        """Indices, gradients and their versions; and whether `submit_tensors` can reduce all."""

    def forget_streams(self) -> None:
        """Every stream is a new one from now on."""

    def has_noted(self) -> bool: ...
    def stop(self) -> None:
        """Stops noting gradients: the owner is gone."""

def poll(handle: int) -> bool: ...
def wait(handle: int) -> None:
    """Waits until the operation has completed. Device memory: until it is queued on the device."""

def wait_on_stream(handle: int, stream: int) -> None:
    """Makes a stream wait for the result of a completed operation on device memory. Does not block.

    `stream`: the native handle. Does nothing for host memory.
    """

def finish(handle: int) -> None:
    """Waits for the operation, then frees the handle, also on an error."""

def finish_all(handles: Sequence[int], stream: int | None = None) -> None:
    """Waits for all handles and frees them, then raises the first error.

    `stream`: the native handle of one of the device of all operations, which then waits for the
    results of those that have succeeded.
    """

def check_running() -> None:
    """Raises the error that has ended the job, if one has. Never blocks."""

def free_all(handles: Sequence[int]) -> None: ...
def output(handle: int, index: int) -> tuple[Any, tuple[int, ...]]:
    """Returns bytes and shape of an output of allgather or alltoall. After `wait`, once per output.

    Alltoall: 0 is the tensor, 1 the received splits, int32. The bytes are an object with the buffer
    protocol that owns the memory.
    """

def last_joined(handle: int) -> int:
    """Returns the rank that joined last. For join, after `wait`."""

def free(handle: int) -> None: ...
def knobs() -> list[dict[str, Any]]:
    """The configuration table: env, flag, default, help, ... of each row."""

def start_timeline(path: str, mark_cycles: bool = False) -> None: ...
def stop_timeline() -> None: ...
def counters() -> dict[str, int]:
    """Returns the counters of this rank since `init` by name, see docs/counters.md.

    Raises: ValueError before `init` and after `shutdown`.
    """
