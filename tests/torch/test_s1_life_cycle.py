"""S1: init, shutdown, and what becomes of operations at the end. Deaths: test_torch_endings."""

from __future__ import annotations

import os

import pytest
import torch
from ranks import needs_job, on_ranks, run_alone, tell

import horovod.torch as hvd

pytestmark = needs_job


@on_ranks(3, fresh=True)
def test_s1_a_failed_init_leaves_the_process_fit_for_another() -> None:
    me = int(os.environ["HOROVOD_RANK"])
    with pytest.raises(ValueError, match=r"process_sets|process set"):
        hvd.init(process_sets=[hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 0])])
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="same on every rank"):
        hvd.init(process_sets=[hvd.ProcessSet([me])])
    assert not hvd.is_initialized()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_FUSION_THRESHOLD", "many")
        with pytest.raises(ValueError, match="HOROVOD_FUSION_THRESHOLD"):
            hvd.init()
        patch.setenv("HOROVOD_FUSION_THRESHOLD", "1024")
        hvd.init(process_sets=[hvd.ProcessSet([0])])
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == 3


@on_ranks(2, fresh=True)
def test_s1_init_reads_the_variables_anew() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for transport in ("tcp", "shm", "tcp"):
            patch.setenv("HOROVOD_TRANSPORT", transport)
            hvd.init()
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == 2
            # Only a job in shared memory has its staging mapped.
            with open("/proc/self/maps") as maps:
                assert ("memfd:horovod-segment" in maps.read()) == (transport == "shm")
            hvd.barrier()
            hvd.shutdown()


@on_ranks(3, fresh=True)
def test_s1_shutdown_by_any_rank_fails_the_pending_operations_of_every_set() -> None:
    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]
    hvd.init(process_sets=sets)
    me = hvd.rank()
    handles = []
    if me != 2:
        handles.append(hvd.allreduce_async(torch.ones(4), name="world"))
    if me == 0:
        handles.append(hvd.allreduce_async(torch.ones(4), name="first", process_set=sets[0]))
    if me == 1:
        handles.append(hvd.allgather_async(torch.ones(4), name="second", process_set=sets[1]))
    hvd.barrier()
    if me == 2:
        hvd.shutdown()
        return
    for handle in handles:
        with pytest.raises(hvd.HorovodInternalError, match="rank 2 has shut the job down"):
            hvd.synchronize(handle)
    with pytest.raises((ValueError, hvd.HorovodInternalError)):
        hvd.allreduce(torch.ones(1))
    hvd.shutdown()


def lose_a_rank_with_operations_pending_in_a_set_without_it() -> None:
    others = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[others])
    me = hvd.rank()
    hvd.barrier()
    if me == 2:
        os._exit(3)
    with pytest.raises(hvd.HorovodInternalError, match="rank 2 is lost"):
        hvd.allreduce(torch.ones(4), name=f"of rank {me}", process_set=others)
    tell("told")


def test_s1_a_lost_rank_ends_also_what_sets_without_it_wait_for() -> None:
    job = run_alone(3, lose_a_rank_with_operations_pending_in_a_set_without_it)
    assert job.told[:2] == [["told"], ["told"]], job.output
    assert job.returncode == 3, job.output
