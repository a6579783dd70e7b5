"""Processes that end while daemon threads are in the runtime, and processes that fork beside them.

The exit code is the script's own, whatever the threads wait for.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ranks import needs_job, run_alone, run_job, tell

import horovod.torch as hvd
from horovod.common._extension import core

pytestmark = needs_job


def _in_daemon_threads(*bodies: Callable[[], object]) -> None:
    """Runs each body in a thread of its own, and returns when all have begun."""
    gc.unfreeze()  # so that the process exits as any does
    begun = [threading.Event() for _ in bodies]

    def run(body: Callable[[], object], event: threading.Event) -> None:
        event.set()
        try:
            body()
        except (hvd.HorovodInternalError, ValueError):  # the job has ended
            threading.Event().wait()

    for body, event in zip(bodies, begun, strict=True):
        threading.Thread(target=run, args=(body, event), daemon=True).start()
        event.wait()
    time.sleep(0.1)  # most are where they wait by now; wherever they are, the end is the same


def _wait_for_what_never_comes() -> None:
    """Waits that only the end of the job ends: other ranks do not take part."""
    me = hvd.rank()
    alone = hvd.size() == 1
    tensors = [torch.ones(3) for _ in range(4)]
    differentiable = torch.ones(3, requires_grad=True)
    in_flight = hvd.allreduce_async(tensors[0], name=f"in flight {me}")
    bundle = hvd.allreduce_async(tensors[1], name=f"bundle {me}")

    def allreduce_again_and_again() -> None:
        while True:
            hvd.allreduce_(tensors[2], name=f"again {me}")

    _in_daemon_threads(
        allreduce_again_and_again,
        lambda: hvd.allreduce(differentiable, name=f"differentiable {me}"),
        lambda: hvd.allgather(tensors[3], name=f"gathered {me}"),
        lambda: hvd.synchronize(in_flight),
        lambda: core.finish_all([bundle]),
        lambda: hvd.barrier() if me == 0 or alone else hvd.join(),
        lambda: hvd.add_process_set([0]) if me == 0 else None,
    )


def end_normally() -> None:
    hvd.init(process_sets="dynamic")
    _wait_for_what_never_comes()
    tell("end")


def end_by_exit() -> None:
    end_normally()
    sys.exit(3)


def end_by_exception() -> None:
    end_normally()
    raise LookupError("the data set is not here")


@pytest.mark.parametrize("np", [1, 2, 3])
@pytest.mark.parametrize(
    ("body", "code"), [(end_normally, 0), (end_by_exit, 3), (end_by_exception, 1)]
)
def test_s1_daemon_threads_that_wait_leave_the_exit_code_alone(
    np: int, body: Any, code: int
) -> None:
    for _ in range(math.ceil(3 / np)):  # three processes or four: each has a chance to fail
        job = run_alone(np, body)
        assert job.returncode == code, job.output
        assert job.told == [["end"]] * np, job.output


def end_while_a_thread_is_in_init() -> None:
    """The others never come."""
    if os.environ["HOROVOD_RANK"] == "0":
        _in_daemon_threads(hvd.init)
    tell("end")


def end_while_a_thread_is_in_a_second_init() -> None:
    hvd.init()
    hvd.shutdown()
    end_while_a_thread_is_in_init()


@pytest.mark.parametrize(
    "body", [end_while_a_thread_is_in_init, end_while_a_thread_is_in_a_second_init]
)
def test_s1_a_daemon_thread_in_init_does_not_hold_up_the_end(body: Any) -> None:
    job = run_job(2, body, HOROVOD_START_TIMEOUT="3600")
    assert job.returncode == 0, job.output
    assert job.told == [["end"]] * 2, job.output


def init_by_an_introduction_that_takes_long() -> None:
    """The thread comes back to Python from native code while the interpreter ends, or after."""

    def compute() -> None:
        while True:
            sum(range(1000))

    like_mpi4py = {
        "__module__": "mpi4py.MPI",
        "Get_rank": lambda self: 0,
        "Get_size": lambda self: 2,
        "Is_inter": lambda self: False,
        "bcast": lambda self, word, root: compute(),
    }
    communicator = type("Comm", (), like_mpi4py)()
    _in_daemon_threads(lambda: hvd.init(communicator))
    tell("end")


def test_s1_a_daemon_thread_in_the_introduction_does_not_hold_up_the_end() -> None:
    job = run_alone(1, init_by_an_introduction_that_takes_long)
    assert job.returncode == 0, job.output
    assert job.told == [["end"]]


def _fork_and_look(tensor: torch.Tensor, handle: int, must_not_hang: int) -> None:
    """In the child everything that is not an operation works, and an operation is refused."""
    child = os.fork()
    if child == 0:
        signal.alarm(must_not_hang)
        code = 1
        try:
            assert not hvd.is_initialized()
            with pytest.raises(ValueError, match="init"):
                hvd.size()
            with pytest.raises(ValueError, match="init"):
                hvd.allreduce(tensor)
            assert hvd.poll(handle)
            with pytest.raises(ValueError, match="belongs to the process"):
                hvd.synchronize(handle)
            del tensor, handle
            hvd.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fork_while_others_submit() -> None:
    own = [hvd.ProcessSet([0]), hvd.ProcessSet([1])]
    hvd.init(process_sets=own)
    me = hvd.rank()
    over = threading.Event()

    def submit(name: str) -> None:
        while not over.is_set():
            tensors = [torch.ones(10) for _ in range(20)]
            handles = [
                hvd.allreduce_async(tensor, name=f"{name}.{i}", process_set=own[me])
                for i, tensor in enumerate(tensors)
            ]
            del tensors
            for handle in handles:
                hvd.synchronize(handle)

    pending = hvd.allreduce_async(torch.ones(3), name=f"pending {me}")
    threads = [threading.Thread(target=submit, args=(f"{name}",)) for name in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        _fork_and_look(torch.ones(3), pending, 60)
    over.set()
    for thread in threads:
        thread.join()
    hvd.barrier()
    tell("done")


def test_s1_a_child_that_is_forked_while_threads_submit_hangs_nowhere() -> None:
    job = run_alone(2, fork_while_others_submit)
    assert job.returncode == 0, job.output
    assert job.told == [["done"]] * 2, job.output


def fork_and_exit() -> None:
    """The child leaves by Python's own way, with what is registered for the end."""
    faulthandler.cancel_dump_traceback_later()  # a child has no such thread, and waits for it
    signal.alarm(60)
    hvd.init()
    atexit.register(tell, f"{os.getpid()}")
    if os.fork() == 0:
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    hvd.barrier()


def test_s1_a_child_exits_as_a_process_of_its_own_and_the_job_goes_on() -> None:
    job = run_alone(2, fork_and_exit)
    assert job.returncode == 0, job.output
    assert [len(told) for told in job.told] == [2, 2]


def join_a_daemon_thread_at_exit() -> None:
    """What is registered before `init` runs when the job has ended."""
    endings: list[str] = []
    submitted = threading.Event()

    def wait() -> None:
        handle = hvd.allreduce_async(torch.ones(1), name=f"never {hvd.rank()}")
        submitted.set()
        try:
            hvd.synchronize(handle)
        except hvd.HorovodInternalError:
            endings.append("the thread has ended")

    thread = threading.Thread(target=wait, daemon=True)

    def join() -> None:
        thread.join()
        tell(endings[0])

    atexit.register(join)
    hvd.init()
    thread.start()
    submitted.wait()
    hvd.barrier()


def test_s1_a_daemon_thread_that_is_joined_at_exit_learns_of_the_end() -> None:
    job = run_alone(2, join_a_daemon_thread_at_exit)
    assert job.returncode == 0, job.output
    assert job.told == [["the thread has ended"]] * 2
