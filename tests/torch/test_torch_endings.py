"""How jobs end: in order, by shutdown, by a lost rank. No rank hangs, and all report the reason."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import pytest
import torch
from ranks import needs_job, on_ranks, run_alone, run_job, tell

import horovod.torch as hvd

pytestmark = needs_job


@on_ranks(1, 2, 3, fresh=True)
def test_s1_a_process_may_init_and_shut_down_many_times() -> None:
    for _ in range(4):
        assert not hvd.is_initialized()
        hvd.init()
        hvd.init()  # does nothing
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x") == hvd.size()
        handle = hvd.allreduce_async(torch.ones(1000))
        hvd.barrier()  # or the first to shut down would be too early for the others
        hvd.shutdown()
        hvd.shutdown()
        assert hvd.synchronize(handle) is None
        with pytest.raises(ValueError, match=r"init"):
            hvd.rank()
        with pytest.raises((ValueError, hvd.HorovodInternalError)):
            hvd.allreduce(torch.ones(1))


def end_without_shutdown() -> None:
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
    handle = hvd.allreduce_async(torch.ones(1_000_000))
    hvd.barrier()  # everyone has submitted, so it will complete
    tell(hvd.rank())
    if hvd.rank() % 2:
        hvd.synchronize(handle)


def test_s1_a_script_may_end_without_shutdown() -> None:
    job = run_alone(3, end_without_shutdown)
    assert job.returncode == 0, job.output
    assert job.told == [[0], [1], [2]]


@on_ranks(3, fresh=True)
def test_s1_shutdown_by_one_ends_the_waiting_of_all() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        hvd.shutdown()
        return
    with pytest.raises(hvd.HorovodInternalError, match=r"(?i)shut"):
        hvd.allreduce(torch.ones(4), name="never")
    hvd.shutdown()


def raise_in_one_rank() -> None:
    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("the data set is not here")
    hvd.allreduce(torch.ones(4))


def test_s1_an_exception_in_one_rank_ends_the_job_with_its_exit_code() -> None:
    job = run_job(3, raise_in_one_rank)
    assert job.returncode == 1, job.output
    assert "the data set is not here" in job.output


def exit_silently_in_one_rank() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 2:
        os._exit(5)
    try:
        hvd.allreduce(torch.ones(4))
    except hvd.HorovodInternalError as error:
        tell(str(error))
        raise


def test_s1_a_rank_that_leaves_without_a_word_is_named() -> None:
    job = run_job(3, exit_silently_in_one_rank)
    for told in job.told[:2]:
        assert len(told) == 1 and "rank 2" in told[0], job.output
    assert job.returncode == 5


def _reduce_until_the_end(elements: int) -> None:
    """In place, again and again; the last words of a survivor are the error."""
    tensor = torch.ones(elements)
    try:
        while True:
            hvd.allreduce_(tensor, name="big")
    except hvd.HorovodInternalError as error:
        tell(str(error))
        tell(error_after_the_end())
        raise


def error_after_the_end() -> str:
    try:
        hvd.allreduce(torch.ones(1), name="later")
    except (hvd.HorovodInternalError, ValueError) as error:
        return type(error).__name__
    return "none"


def _die_soon() -> None:
    def kill() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def die_in_the_middle_of_64_mib() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # sending to the dead must not kill us
    hvd.init()
    if hvd.rank() == 1:
        _die_soon()
    _reduce_until_the_end(16 * 2**20)


class Slow(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Keeps the workers of a loader alive, which hold what the killed rank had open."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.05)
        return torch.ones(1)


def die_while_the_data_loader_lives() -> None:
    hvd.init()
    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=2))
    next(batches)
    if hvd.rank() == 1:
        _die_soon()
    _reduce_until_the_end(16 * 2**20)


@pytest.mark.parametrize("body", [die_in_the_middle_of_64_mib, die_while_the_data_loader_lives])
@pytest.mark.parametrize(
    ("start", "np", "transport"),
    [(run_job, 2, "auto"), (run_alone, 3, "tcp"), (run_alone, 4, "auto")],
)
def test_s1_a_killed_rank_is_named_by_all_others(
    start: Any, np: int, transport: str, body: Any
) -> None:
    """The launcher leaves the others the time for it."""
    job = start(np, body, HOROVOD_TRANSPORT=transport)
    for rank, told in enumerate(job.told):
        if rank == 1:
            continue
        assert len(told) == 2, f"rank {rank} did not raise\n{job.output}"
        assert "rank 1" in told[0]
        assert told[1] != "none"
    assert job.returncode == 128 + signal.SIGKILL, job.output


def leave_in_the_middle() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 0:
        sys.exit(4)
    try:
        hvd.allreduce(torch.ones(4))
    except hvd.HorovodInternalError as error:
        tell(str(error))


def test_s1_a_rank_that_exits_by_itself_ends_the_waiting_of_the_others() -> None:
    job = run_job(2, leave_in_the_middle)
    assert len(job.told[1]) == 1, job.output
    assert job.returncode == 4, job.output
