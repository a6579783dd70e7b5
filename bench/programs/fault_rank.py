"""A rank of a job in which ranks fail. Notes when they fail, and when it gets the error.

    fault_rank.py FOLDER FAULT MOMENT RANKS SECONDS

Each of RANKS (such as 1,2) does FAULT in MOMENT, SECONDS after that has begun. The faults "none"
and "wait" are done by the caller; with "wait", RANKS wait for it. In FOLDER, rank R writes its
process to R.pid, the time of its fault to R.fault, and the time and text of its error to R.error.
In shutdown, it writes the time to R.ended if it ends without an error. Times are nanoseconds of
the monotonic clock.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horovod import _core as core
from horovod.common import elastic_job, front
from horovod.common._elastic_loop import run
from horovod.common._objects import broadcast_object
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError

SMALL, LARGE, HUGE = 1000, 16 << 20, 64 << 20  #: elements: 4 KB, 64 MiB, 256 MiB
TENSORS = 2000  #: of a fused set
#: After which all ranks have agreed on an operation that all have submitted.
AGREED_S = 0.03
POLL_S = 0.002
HOUR_S = 3600.0
SPARE_BYTES = 8 << 20  #: what a rank may still allocate before it runs out of memory
EXIT_CODE = 7

FOLDER = Path()
RANK = int(os.environ["HOROVOD_RANK"]) if "HOROVOD_RANK" in os.environ else -1


def note(what: str, text: str) -> None:
    """Readers see all of it or nothing."""
    part = FOLDER / f"{RANK}.part"
    part.write_text(text)
    part.rename(FOLDER / f"{RANK}.{what}")


def await_all(what: str) -> None:
    """Until all ranks have noted it."""
    while len(list(FOLDER.glob(f"*.{what}"))) < int(os.environ["HOROVOD_SIZE"]):
        time.sleep(POLL_S)


def note_that_it_goes_on() -> None:
    """In place of an error."""
    note("error", json.dumps({"at": time.monotonic_ns(), "text": "goes on"}))


def note_error(error: Exception) -> None:
    note("error", json.dumps({"at": time.monotonic_ns(), "text": str(error)}))


# ---- faults ------------------------------------------------------------------------------------


def run_out_of_memory() -> None:
    """As where a limit of memory is set by `ulimit -v`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    bytearray(2 * SPARE_BYTES)


FAULTS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "_exit": lambda: os._exit(EXIT_CODE),
    "exit": lambda: sys.exit(EXIT_CODE),
    "memory": run_out_of_memory,
    "none": lambda: None,
    "wait": lambda: time.sleep(HOUR_S),
}


class Fault:
    def __init__(self, kind: str, ranks: str, seconds: float) -> None:
        self.is_here = kind != "none" and RANK in [int(rank) for rank in ranks.split(",")]
        self.kind = kind
        self._do = FAULTS[kind]
        self._seconds = seconds

    def happen(self, after: str = "") -> None:
        """`after`: what all ranks have noted then."""
        if not self.is_here:
            return
        if after:
            await_all(after)
        time.sleep(self._seconds)
        note("fault", str(time.monotonic_ns()))
        self._do()

    def happen_meanwhile(self, after: str = "") -> None:
        """The main thread goes on. For faults that end or stop the process from any thread."""
        threading.Thread(target=self.happen, args=(after,), daemon=True).start()


# ---- moments -----------------------------------------------------------------------------------


class Tensor:
    def __init__(self, count: int) -> None:
        self._data = array.array("f", [0.0]) * count
        address, _ = self._data.buffer_info()
        self.described = address, (count,), core.DTYPES["float32"], self._data

    def submit(self, name: str) -> Any:
        operation = core.Operation(core.ALLREDUCE)
        return core.submit_tensors(operation, name, self.described, self.described, None)


def finish(*handles: Any) -> None:
    for handle in handles:
        core.wait(handle)
        core.free(handle)


def begin() -> None:
    """Returns when all ranks are there."""
    core.init()
    note("pid", str(os.getpid()))
    finish(Tensor(SMALL).submit("begin"))


def negotiation(fault: Fault) -> None:
    """The others have submitted a tensor, and the rank that fails has not."""
    begin()
    fault.happen()
    finish(Tensor(SMALL).submit("late"))


def packing(fault: Fault) -> None:
    """Thousands of small tensors are submitted, fused and copied."""
    tensors = [Tensor(SMALL) for _ in range(TENSORS)]
    begin()
    fault.happen_meanwhile()
    while True:
        finish(*[tensor.submit(f"x{index}") for index, tensor in enumerate(tensors)])


def transfer(fault: Fault) -> None:
    tensor = Tensor(LARGE)
    begin()
    finish(tensor.submit("first"))
    fault.happen_meanwhile()
    while True:
        finish(tensor.submit("x"))


def backend(fault: Fault) -> None:
    """A transfer of torch.distributed on the backend "hvd", by a script that knows nothing else."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("hvd")
    tensor = torch.zeros(LARGE)
    note("pid", str(os.getpid()))
    dist.all_reduce(tensor)
    fault.happen_meanwhile()
    try:
        while True:
            dist.all_reduce(tensor)
    except dist.DistBackendError as error:
        note_error(error)
        raise


def start(fault: Fault) -> None:
    """The others are in init, and the rank that fails is about to call it, or has just done so. If
    it waits for a fault of the caller, it does not call it."""
    tensor = Tensor(SMALL)
    note("pid", str(os.getpid()))
    if fault.is_here:
        await_all("pid")
        if fault.kind == "wait":
            fault.happen()
        fault.happen_meanwhile()
    core.init()
    while True:
        finish(tensor.submit("x"))


def shutdown(fault: Fault) -> None:
    """All ranks have called shutdown, which waits for a long operation."""
    tensor = Tensor(HUGE)
    begin()
    handle = tensor.submit("long")
    time.sleep(AGREED_S)
    fault.happen_meanwhile(after="ending")
    note("ending", "")
    core.shutdown()
    finish(handle)
    note("ended", str(time.monotonic_ns()))


def reset(fault: Fault) -> None:
    """In an elastic job: rank 1 is killed, and while the others begin the next generation, another
    one fails. Ends with the first step of a generation without both."""
    tensor = Tensor(SMALL)
    begin()
    note("begun", "")
    size = core.world().size
    while True:
        try:
            if RANK == 1:
                await_all("begun")
                os.kill(os.getpid(), signal.SIGKILL)
            finish(tensor.submit("x"))
            if core.world().size == size - 2:
                note_that_it_goes_on()
                break
        except HorovodInternalError:
            fault.happen_meanwhile()
            again()
    core.shutdown()


def again() -> None:
    """Begins the next generation, or the one after, if another rank is lost meanwhile."""
    while True:
        core.shutdown()
        elastic_job.next_generation()
        with contextlib.suppress(HorovodInternalError):
            return core.init()


def commit(fault: Fault) -> None:
    """In an elastic job that commits after each step. Ends with the first commit of a generation
    without the ranks that fail."""
    tensor = Tensor(SMALL)
    front.init()
    note("pid", str(os.getpid()))
    size = front.size()
    state = ObjectState(broadcast_object, front.rank, step=0)
    fault.happen_meanwhile()

    @run
    def train(state: ObjectState) -> None:
        while True:
            finish(tensor.submit("x"))
            state.step += 1
            state.commit()
            if front.size() < size:
                return note_that_it_goes_on()

    train(state)


MOMENTS = {
    moment.__name__: moment
    for moment in (negotiation, packing, transfer, backend, start, shutdown, reset, commit)
}


def errors_of(moment: str) -> tuple[type[Exception], ...]:
    """Of faults. Errors of init are ValueError in jobs that are not elastic."""
    is_in_init = moment == start.__name__ and not elastic_job.is_elastic()
    return (HorovodInternalError, ValueError) if is_in_init else (HorovodInternalError,)


def main() -> None:
    global FOLDER
    folder, kind, moment, ranks, seconds = sys.argv[1:]
    FOLDER = Path(folder)
    if RANK < 0:  # in place of one that was lost
        return
    try:
        MOMENTS[moment](Fault(kind, ranks, float(seconds)))
    except errors_of(moment) as error:
        note_error(error)
        raise


if __name__ == "__main__":
    main()
