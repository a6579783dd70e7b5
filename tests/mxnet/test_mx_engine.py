"""Operations in flight: their order, what they depend on, and what becomes of their arrays."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import tempfile
import threading
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mx_ranks import EVERYWHERE, on_ranks, run_alone, tell
from mx_reference import every, late, mine, same, value

import horovod.mxnet as hvd

SHAPE = (3, 2)


@on_ranks(*EVERYWHERE)
def test_operations_wait_for_what_they_read_and_are_waited_for() -> None:
    own = late(mine(SHAPE), 5)
    wanted = value(hvd.rank(), SHAPE)
    for _ in range(3):
        hvd.allreduce_(own, op=hvd.Sum)
        own += hvd.rank()
    total = sum(range(hvd.size()))
    wanted = np.sum(every(SHAPE), 0)
    for _ in range(2):
        wanted = wanted * hvd.size() + total
    same(own, wanted + hvd.rank())


@on_ranks(2, 3)
def test_operations_of_one_name_keep_the_order_of_the_program() -> None:
    """The first is ready last, on another rank than the second."""
    first, second = mine((4,)), mine((4,)) * 10
    if hvd.rank() == 0:
        first = late(first, 20)
    else:
        second = late(second, 20)
    results = [hvd.allreduce(one, op=hvd.Sum, name="same") for one in (first, second)]
    same(results[1], np.sum(every((4,)), 0) * 10)
    same(results[0], np.sum(every((4,)), 0))


@on_ranks(2, 3)
def test_ranks_may_push_named_operations_in_any_order() -> None:
    count = 100
    order = list(range(count))
    random.Random(hvd.rank()).shuffle(order)
    results = {
        i: hvd.allreduce(mine((i + 1,)) + i, op=hvd.Sum, name=f"{i}", priority=i) for i in order
    }
    for i in range(count):
        same(results[i], np.sum(every((i + 1,)), 0) + i * hvd.size())


@on_ranks(*EVERYWHERE)
def test_arrays_may_be_dropped_in_flight() -> None:
    """Most are dropped, and a few are kept, some of them by a part of their memory only."""
    shape, rows = (900,), slice(300, 600)
    total = np.sum(every(shape), 0)
    scattered = np.split(total, hvd.size())[hvd.rank()]
    kept = []
    for i in range(50):
        found = [
            (hvd.allreduce_(late(mine(shape), i % 3), op=hvd.Sum)[rows], total[rows]),
            (hvd.allreduce(mine(shape) + i, op=hvd.Sum)[rows], total[rows] + i * hvd.size()),
            (hvd.broadcast(mine(shape), 0), value(0, shape)),
            (hvd.reducescatter(mine(shape), hvd.Sum), scattered),
            (hvd.grouped_allreduce([mine((10,)), mine(shape)], op=hvd.Sum)[1], total),
        ]
        if i % 10 == 9:
            kept += found
        del found
        gc.collect()
    mx.nd.waitall()
    assert len(kept) == 25
    for i, (one, wanted) in enumerate(kept):
        same(one, wanted, where=i)


#: As MXNet declares them: an operation that runs a function, and a property: it has a priority.
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
PRIORITIZED = ctypes.c_int(3)


class Context(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


def start_by_priority() -> None:
    """All are ready while the engine's only thread for operations with a priority is busy."""
    free, busy = threading.Event(), threading.Event()

    @RUN
    def wait(_context: int | None, _parameter: int | None) -> None:
        busy.set()
        free.wait(60)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOROVOD_TIMELINE"] = f"{folder}/trace"
        hvd.init()
        arrays = [mx.nd.ones((3,)) for _ in range(9)]
        mx.nd.waitall()
        none = (None, 0, None, 0)
        cpu, property = ctypes.byref(Context(1, 0)), ctypes.byref(PRIORITIZED)
        mx.base.check_call(
            mx.base._LIB.MXEnginePushSync(wait, None, None, cpu, *none, property, 0, b"wait")
        )
        assert busy.wait(60)
        for i, one in enumerate(arrays):
            hvd.allreduce_(one, name=f"{i}", priority=i * 4 % 9)
        free.set()
        mx.nd.waitall()
        hvd.shutdown()
        trace = json.loads(Path(folder, "trace").read_text())
    announced = [one for one in trace if one["name"] == "process_name" and one["pid"] > 0]
    names = {one["pid"]: one["args"]["name"] for one in announced}
    begun = [names[one["pid"]] for one in trace if one["name"] == "NEGOTIATE_ALLREDUCE"]
    tell(list(dict.fromkeys(begun)))


def test_operations_with_a_higher_priority_start_first() -> None:
    job = run_alone(1, start_by_priority, MXNET_CPU_PRIORITY_NTHREADS="1")
    wanted = sorted(range(9), key=lambda i: -(i * 4 % 9))
    assert job.told == [[[f"allreduce.{i}" for i in wanted]]], job.output


@on_ranks(2)
def test_nothing_is_recorded() -> None:
    own = mine(SHAPE)
    own.attach_grad()
    with mx.autograd.record():
        doubled = own * 2
        total = hvd.allreduce(doubled, op=hvd.Sum)
        loss = (own * total).sum()
    loss.backward()
    same(own.grad, np.sum(every(SHAPE), 0) * 2)


@on_ranks(2, 3)
def test_ranks_that_disagree_get_an_error_that_names_both() -> None:
    for _ in range(2):  # the name can be used again
        found = hvd.allreduce(mine((hvd.rank() + 1,)), name="differs")
        with pytest.raises(mx.MXNetError, match="differs") as caught:
            found.wait_to_read()
        assert isinstance(caught.value, hvd.HorovodMismatchError), caught.value
        assert isinstance(caught.value, ValueError)
        assert "rank 0" in str(caught.value) and "rank 1" in str(caught.value), caught.value
        assert "HorovodMismatchError" not in str(caught.value)
    with pytest.raises(mx.MXNetError, match="rank 1") as caught:
        hvd.allgather(mine((2, hvd.rank() + 1)))
    assert isinstance(caught.value, hvd.HorovodMismatchError), caught.value
    same(hvd.allreduce(mine(SHAPE), op=hvd.Sum, name="differs"), np.sum(every(SHAPE), 0))


@on_ranks(2)
def test_an_error_reaches_what_is_calculated_from_the_result() -> None:
    found = hvd.allreduce(mine((hvd.rank() + 1,)), name="differs")
    with pytest.raises(hvd.HorovodMismatchError):
        (found * 2 + 1).asnumpy()
    hvd.allreduce(mine((hvd.rank() + 1,)), name="differs")
    with pytest.raises(hvd.HorovodMismatchError):
        mx.nd.waitall()
    mx.nd.waitall()


@on_ranks(1)
def test_wrong_arguments_are_value_errors() -> None:
    own = mine(SHAPE)
    for wrong, match in [
        (lambda: hvd.allreduce(own.asnumpy()), "expected an NDArray"),
        (lambda: hvd.allreduce_(own.tostype("row_sparse")), "storage type row_sparse"),
        (lambda: hvd.allreduce(own, name=3), "name must be a str"),
        (lambda: hvd.allreduce(own, priority="high"), "priority must be an int"),
        (lambda: hvd.allreduce(own, op=9), "op must be one of"),
        (lambda: hvd.allreduce(own, prescale_factor="x"), "prescale_factor must be a number"),
        (lambda: hvd.broadcast(own, "0"), "root_rank must be the number of a rank"),
        (lambda: hvd.grouped_allgather(3), "must be a list or tuple"),
    ]:
        with pytest.raises(ValueError, match=match):
            wrong()


def lose_a_rank() -> None:
    hvd.init()
    own = mx.nd.ones((3,))
    hvd.allreduce_(own)
    own.wait_to_read()
    if hvd.rank() == 1:
        os._exit(0)
    for call in (lambda: hvd.allreduce(own).asnumpy(), lambda: hvd.allgather(own)):
        try:
            call()
        except mx.MXNetError as error:
            tell([isinstance(error, hvd.HorovodInternalError), str(error)])


def test_a_lost_rank_is_named() -> None:
    job = run_alone(2, lose_a_rank)
    assert len(job.told[0]) == 2, job.output
    for is_ours, said in job.told[0]:
        assert is_ours and "rank 1" in said, job.output


def leave_in_flight() -> None:
    """Nobody waits for the last step. Rank 1 is late with it."""
    hvd.init()
    for _ in range(3):
        hvd.allreduce_(late(mx.nd.ones((64,)), 20 * hvd.rank()), op=hvd.Sum)
    tell("called")


def leave_in_flight_by_shutdown() -> None:
    leave_in_flight()
    hvd.shutdown()
    mx.nd.waitall()
    tell("shut down")


def fail_on_one_rank() -> None:
    hvd.init()
    own = mx.nd.ones((3,))
    hvd.allreduce_(own)
    own.wait_to_read()
    if hvd.rank() == 1:
        raise RuntimeError("this rank has had enough")
    try:
        hvd.allreduce_(own)
        own.wait_to_read()
    except mx.MXNetError as error:
        tell(str(error))


def start_again() -> None:
    for _ in range(3):
        hvd.init()
        tell(float(hvd.allreduce(mx.nd.ones((1,)), op=hvd.Sum).asscalar()))
        hvd.shutdown()
    try:
        hvd.allreduce(mx.nd.ones((1,)))
    except ValueError as error:
        tell(str(error))


def load_data_in_flight() -> None:
    """gluon's loader forks processes while operations are in flight."""
    hvd.init()
    data = mx.gluon.data.ArrayDataset(np.arange(8, dtype=np.float32))
    for _ in range(2):
        own = late(mx.nd.ones((4,)), 20 * hvd.rank())
        hvd.allreduce_(own, op=hvd.Sum)
        loader = mx.gluon.data.DataLoader(data, 2, num_workers=2)
        tell(float(sum(batch.sum().asscalar() for batch in loader)))
        tell(own.asnumpy().tolist())
    hvd.shutdown()


def test_the_last_step_of_all_ranks_ends_before_they_exit() -> None:
    job = run_alone(2, leave_in_flight)
    assert job.returncode == 0 and job.told == [["called"], ["called"]], job.output
    assert "Traceback" not in job.output and "Error" not in job.output, job.output


def test_the_last_step_ends_before_a_shutdown() -> None:
    job = run_alone(2, leave_in_flight_by_shutdown)
    assert job.returncode == 0 and job.told == [["called", "shut down"]] * 2, job.output
    assert "Traceback" not in job.output, job.output


def test_a_rank_that_fails_does_not_leave_others_waiting() -> None:
    job = run_alone(2, fail_on_one_rank)
    ((said,), _) = job.told
    assert "rank 1" in said, job.output
    assert "this rank has had enough" in job.output


def test_a_job_can_follow_another_one() -> None:
    job = run_alone(2, start_again)
    assert job.returncode == 0, job.output
    for told in job.told:
        assert told[:3] == [2.0] * 3 and "init" in told[3], job.output


def test_a_loader_may_fork_while_operations_are_in_flight() -> None:
    job = run_alone(2, load_data_in_flight)
    assert job.returncode == 0, job.output
    assert job.told == [[28.0, [2.0] * 4] * 2] * 2, job.output


def test_an_engine_without_threads_works() -> None:
    job = run_alone(2, start_again, MXNET_ENGINE_TYPE="NaiveEngine")
    assert job.returncode == 0 and job.told[0][:3] == [2.0] * 3, job.output
