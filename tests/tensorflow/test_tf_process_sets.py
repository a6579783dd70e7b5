"""S8 in TensorFlow: every operation, on every process set, in every way of running it."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import (
    every,
    expected,
    my_groups,
    my_rows,
    process_sets,
    same_in_every_mode,
    value,
)

import horovod.tensorflow as hvd
from horovod.common import process_sets as common_sets


def everything_on(group: Any, x: Any) -> dict[str, Any]:
    """The result of each operation with x, of a row or more a rank, on a process set."""
    where = {"process_set": group}
    return {
        "allreduce": hvd.allreduce(x, **where),
        "allgather": hvd.allgather(x, **where),
        "broadcast": hvd.broadcast(x, group.ranks[-1], **where),
        "alltoall": hvd.alltoall(x, [1] * group.size(), **where),
        "reducescatter": hvd.reducescatter(x, **where),
        "grouped_allreduce": hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, **where),
        "grouped_allgather": hvd.grouped_allgather([x, 2 * x], **where),
        "grouped_reducescatter": hvd.grouped_reducescatter([x, 2 * x], **where),
        "size": hvd.size_op(group.process_set_id),
        "included": hvd.process_set_included_op(group.process_set_id),
    }


def everything_wanted(group: Any, arrays: list[Any]) -> dict[str, Any]:
    """The same by NumPy. `arrays`: of the set's ranks."""
    rank, size = group.rank(), group.size()
    total = expected(arrays, hvd.Average)
    gathered = np.concatenate(arrays)
    dealt = np.stack([array[rank] for array in arrays])
    summed = expected(arrays, hvd.Sum)
    rows = my_rows(total, group)
    return {
        "allreduce": total,
        "allgather": gathered,
        "broadcast": arrays[-1],
        "alltoall": (dealt, np.ones(size, np.int32)),
        "reducescatter": rows,
        "grouped_allreduce": [summed, 2 * summed],
        "grouped_allgather": [gathered, 2 * gathered],
        "grouped_reducescatter": [rows, 2 * rows],
        "size": np.int32(size),
        "included": np.int32(1),
    }


@on_ranks(*EVERYWHERE)
def test_operations_run_on_every_process_set() -> None:
    with my_groups() as groups:
        for group in groups:
            wanted = everything_wanted(group, every((5, 2), process_set=group))
            mine = value(hvd.rank(), (5, 2))
            same_in_every_mode(lambda x, g=group: everything_on(g, x), [mine], wanted, group)
    with process_sets([0]) as sets:
        for one in sets:
            assert hvd.process_set_included_op(one.process_set_id).numpy() == (hvd.rank() == 0)


@on_ranks(1, 2)
def test_an_unknown_id_is_a_value_error_when_a_node_is_made() -> None:
    x = tf.ones([2, 2])
    lost = hvd.ProcessSet([0])
    lost.process_set_id = 77
    where: Any = {"process_set": lost}
    slices = tf.IndexedSlices(x, tf.constant([0, 1]))
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    for call in (
        *(lost.size, lost.rank, lost.included),
        *(lambda: hvd.size_op(77), lambda: hvd.process_set_included_op(77)),
        *(lambda op=op: op(x, **where) for op in (hvd.allreduce, hvd.allgather, hvd.alltoall)),
        *(lambda: hvd.reducescatter(x, **where), lambda: hvd.broadcast(x, 0, **where)),
        lambda: hvd.allreduce(slices, **where),
        *(
            lambda op=op: op([x, x], **where)
            for op in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter)
        ),
        lambda: hvd.barrier(**where),
        lambda: hvd.broadcast_variables([tf.Variable(x)], 0, **where),
        *(lambda: hvd.broadcast_object(1, **where), lambda: hvd.allgather_object(1, **where)),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), **where),
        lambda: hvd.DistributedOptimizer(sgd, **where),
        lambda: hvd.remove_process_set(lost),
    ):
        with pytest.raises(ValueError, match="no process set has the id 77"):
            call()
        with pytest.raises(ValueError, match="no process set has the id 77"):
            tf.function(call, autograph=False)()


def barrier_in_a_function(group: Any) -> None:
    @tf.function
    def wait() -> None:
        hvd.barrier(process_set=group)

    wait()


def barrier_in_a_session(group: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(hvd.barrier(process_set=group))


@on_ranks(*EVERYWHERE)
def test_a_barrier_waits_for_its_process_set_in_every_mode() -> None:
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    ways = (lambda g: hvd.barrier(process_set=g), barrier_in_a_function, barrier_in_a_session)
    with my_groups() as groups:
        for group in groups:
            for number, way in enumerate(ways):
                marks = [Path(folder, f"{group.ranks}.{number}.{rank}") for rank in group.ranks]
                if hvd.rank() == group.ranks[-1]:
                    time.sleep(0.05)  # else who does not wait might be late by chance
                marks[group.rank()].touch()
                way(group)
                assert all(mark.exists() for mark in marks), (group, number)
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


@on_ranks(2)
def test_registered_sets_are_listed_with_their_ranks() -> None:
    with process_sets([0], [1]) as groups:
        listed = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
        assert listed[0] == [0, 1]
        assert [listed[group.process_set_id] for group in groups] == [[0], [1]]
        assert common_sets._get_process_set_ids_and_ranks() == listed
    assert [0] not in hvd.mpi_ops._basics._get_process_set_ids_and_ranks().values()
