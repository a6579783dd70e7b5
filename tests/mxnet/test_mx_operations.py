"""What every operation gives, for every type, in place or not."""

from __future__ import annotations

import itertools

import mxnet as mx
import numpy as np
import pytest
from mx_ranks import EVERYWHERE, on_ranks
from mx_reference import NUMBERS, REDUCTIONS, array, every, mine, reduced, same, value

import horovod.mxnet as hvd
from horovod.mxnet import _engine, _host

SHAPE = (3, 2)


@on_ranks(*EVERYWHERE)
def test_allreduce_takes_every_type_and_op() -> None:
    for dtype in NUMBERS:
        for op in REDUCTIONS:
            where = (dtype, op)
            own = mine(SHAPE, dtype)
            reduced(hvd.allreduce(own, op=op), op, every(SHAPE), dtype, where)
            same(own, value(hvd.rank(), SHAPE), dtype, where)
            assert hvd.allreduce_(own, op=op) is own
            reduced(own, op, every(SHAPE), dtype, where)


@on_ranks(*EVERYWHERE)
def test_an_average_is_the_default() -> None:
    for dtype in NUMBERS:
        for own in (hvd.allreduce(mine(SHAPE, dtype)), hvd.allreduce_(mine(SHAPE, dtype))):
            reduced(own, hvd.Average, every(SHAPE), dtype)
        reduced(hvd.grouped_allreduce([mine(SHAPE, dtype)])[0], hvd.Average, every(SHAPE), dtype)
        own = mine((hvd.size(), 2), dtype)
        parts = [one[hvd.rank()][None] for one in every((hvd.size(), 2))]
        reduced(hvd.reducescatter(own), hvd.Average, parts, dtype)
        reduced(hvd.grouped_reducescatter([own])[0], hvd.Average, parts, dtype)
    with pytest.warns(DeprecationWarning):
        same(hvd.allreduce(mine(SHAPE), average=False), np.sum(every(SHAPE), 0))
    with pytest.raises(ValueError, match="only one"):
        hvd.allreduce(mine(SHAPE), average=False, op=hvd.Sum)


@on_ranks(*EVERYWHERE)
def test_bool_has_all_and_any() -> None:
    own = array(np.arange(4) == hvd.rank(), "bool")
    wanted = {
        hvd.Max: np.arange(4) < hvd.size(),
        hvd.Min: (np.arange(4) == 0) & (hvd.size() == 1),
    }
    for op, values in wanted.items():
        same(hvd.allreduce(own, op=op), values, "bool")
        for one in hvd.grouped_allreduce([own, own], op=op):
            same(one, values, "bool")
    for refused in (
        lambda: hvd.allreduce(own, op=hvd.Sum),
        lambda: hvd.grouped_allreduce_([own], op=hvd.Product),
        lambda: hvd.reducescatter(own),
        lambda: hvd.grouped_reducescatter([own], hvd.Sum),
    ):
        with pytest.raises(ValueError, match="bool supports only"):
            refused()


@on_ranks(*EVERYWHERE)
def test_factors_multiply_before_and_after() -> None:
    wanted = np.sum(every((5,)), 0) * 3 * 0.5
    same(
        hvd.allreduce(mine((5,)), op=hvd.Sum, prescale_factor=3, postscale_factor=0.5, priority=7),
        wanted,
    )
    rows = hvd.reducescatter(mine((6,)), hvd.Sum, prescale_factor=3, postscale_factor=0.5)
    part = 6 // hvd.size()
    wanted = (np.sum(every((6,)), 0) * 3 * 0.5)[part * hvd.rank() : part * (hvd.rank() + 1)]
    same(rows, wanted)


@on_ranks(2)
def test_adasum_combines_two_ranks() -> None:
    a, b = every((6,))
    wanted = (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
    found = hvd.allreduce(mine((6,)), op=hvd.Adasum).asnumpy()
    np.testing.assert_allclose(found, wanted, 1e-5)


@on_ranks(*EVERYWHERE)
def test_grouped_allreduce_takes_several_shapes_of_one_type() -> None:
    shapes = [(2,), (3, 2), (1, 1, 1)]
    for dtype in NUMBERS:
        for op in REDUCTIONS:
            own = [mine(shape, dtype) for shape in shapes]
            for one, shape in zip(hvd.grouped_allreduce(own, op=op), shapes, strict=True):
                reduced(one, op, every(shape), dtype, (dtype, op))
            hvd.grouped_allreduce_(own, op=op, name="group", priority=-1)
            for one, shape in zip(own, shapes, strict=True):
                reduced(one, op, every(shape), dtype, (dtype, op))
    with pytest.raises(ValueError, match="one type"):
        hvd.grouped_allreduce([mine((2,)), mine((2,), "int32")])
    with pytest.raises(ValueError, match="at least one"):
        hvd.grouped_allreduce_([])


@on_ranks(*EVERYWHERE)
def test_parts_of_one_array_are_reduced_in_place() -> None:
    own = mine((4, 3))
    hvd.grouped_allreduce_([own[0:1], own[2:4]], op=hvd.Sum)
    wanted = value(hvd.rank(), (4, 3))
    wanted[[0, 2, 3]] = np.sum(every((4, 3)), 0)[[0, 2, 3]]
    same(own, wanted)


@on_ranks(*EVERYWHERE)
def test_reducescatter_gives_the_first_ranks_more_rows() -> None:
    for rows in (1, 2, 5, 6):
        each, left = divmod(rows, hvd.size())
        begin = each * hvd.rank() + min(left, hvd.rank())
        end = begin + each + (hvd.rank() < left)
        shapes = [(rows, 2), (rows,)]
        parts = [[one[begin:end] for one in every(shape)] for shape in shapes]
        for dtype, op in itertools.product(NUMBERS, (hvd.Sum, hvd.Average)):
            arrays = [mine(shape, dtype) for shape in shapes]
            together = hvd.grouped_reducescatter(arrays, op=op)
            for own, one, part in zip(arrays, together, parts, strict=True):
                reduced(hvd.reducescatter(own, op), op, part, dtype, (rows, dtype, op))
                reduced(one, op, part, dtype, (rows, dtype, op))
    with pytest.raises(ValueError, match="only Average or Sum"):
        hvd.reducescatter(mine((2,)), hvd.Max)


@on_ranks(*EVERYWHERE)
def test_broadcast_takes_every_type_and_root() -> None:
    for root in range(hvd.size()):
        for dtype in NUMBERS:
            own = mine(SHAPE, dtype)
            same(hvd.broadcast(own, root), value(root, SHAPE), dtype)
            same(own, value(hvd.rank(), SHAPE), dtype)
            assert hvd.broadcast_(own, root, name="in.place", priority=3) is own
            same(own, value(root, SHAPE), dtype)
        same(hvd.broadcast(array([hvd.rank() == root], "bool"), root), [True], "bool")
    with pytest.raises(ValueError, match=f"root_rank {hvd.size()} is not a rank"):
        hvd.broadcast(mine(SHAPE), hvd.size())


@on_ranks(*EVERYWHERE)
def test_allgather_takes_rows_that_differ() -> None:
    for dtype in [*NUMBERS, "bool"]:
        bits = 1 if dtype == "bool" else 7
        rows = [np.full((rank + 1, 2), (rank + 1) & bits) for rank in range(hvd.size())]
        group = [rows, [one.astype(int) & bits for one in every((1,))]]
        same(hvd.allgather(array(rows[hvd.rank()], dtype)), np.concatenate(rows), dtype)
        arrays = [array(one[hvd.rank()], dtype) for one in group]
        for one, wanted in zip(hvd.grouped_allgather(arrays, name="both"), group, strict=True):
            same(one, np.concatenate(wanted), dtype)
    rows = [np.full((rank, 2), rank) for rank in range(hvd.size())]
    same(hvd.allgather(array(rows[hvd.rank()])), np.concatenate(rows))


@on_ranks(*EVERYWHERE)
def test_alltoall_takes_splits() -> None:
    size, rank = hvd.size(), hvd.rank()
    counts = [other + 1 for other in range(size)]
    for dtype in [*NUMBERS, "bool"]:
        sent = np.tri(size) if dtype == "bool" else np.add.outer(10 * np.arange(size), range(size))
        own, wanted = sent[rank, :, None], sent[:, rank, None]
        same(hvd.alltoall(array(own, dtype)), wanted, dtype)
        rows = array(np.repeat(own, counts, 0), dtype)
        for splits in (counts, array(counts, "int32"), np.array(counts)):
            found, received = hvd.alltoall(rows, splits)
            same(found, np.repeat(wanted, rank + 1, 0), dtype)
            same(received, [rank + 1] * size, "int32")
    with pytest.raises(ValueError, match="splits must be a list"):
        hvd.alltoall(rows, 3)


@on_ranks(*EVERYWHERE)
def test_arrays_of_mx_np_stay_what_they_are() -> None:
    with mx.util.np_shape(True):
        own = mx.np.array(value(hvd.rank(), SHAPE), dtype="float32")
        results = [
            hvd.allreduce(own, op=hvd.Sum),
            hvd.broadcast(own, 0),
            hvd.allgather(own),
            hvd.alltoall(mx.np.ones((hvd.size(), 1))),
            hvd.reducescatter(own),
        ]
        assert all(isinstance(one, mx.np.ndarray) for one in results)
        same(results[0], np.sum(every(SHAPE), 0))
        scalar = hvd.allreduce(mx.np.array(2.0), op=hvd.Sum)
        assert scalar.shape == () and float(scalar) == 2.0 * hvd.size()
        with pytest.raises(ValueError, match="a scalar has no rows"):
            hvd.allgather(scalar)


def convolved() -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    """A result in a layout of oneDNN, which MXNet is still calculating, and the same in order."""
    mx.random.seed(5)
    images = mx.nd.random.normal(shape=(4, 16, 8, 8)) * (hvd.rank() + 1)
    weights = mx.nd.random.normal(shape=(32, 16, 3, 3))
    same_weights = {"kernel": (3, 3), "num_filter": 32, "no_bias": True}
    found, wanted = (mx.nd.Convolution(images, weights, **same_weights) for _ in range(2))
    return found, wanted.asnumpy()


def is_in_order(found: mx.nd.NDArray) -> bool:
    found.wait_to_read()
    try:
        found.to_dlpack_for_read()
    except mx.MXNetError:
        return False
    return True


@on_ranks(*EVERYWHERE)
def test_results_in_a_layout_of_onednn_are_put_in_order() -> None:
    assert not is_in_order(convolved()[0])
    factor = sum(range(1, hvd.size() + 1)) / (hvd.rank() + 1)
    found, own = convolved()
    wanted = own * factor
    np.testing.assert_allclose(hvd.allreduce(found, op=hvd.Sum).asnumpy(), wanted, 1e-4, 1e-4)
    found, _ = convolved()
    hvd.allreduce_(found, op=hvd.Sum)
    np.testing.assert_allclose(found.asnumpy(), wanted, 1e-4, 1e-4)
    found, _ = convolved()
    hvd.broadcast_(found, 0)
    np.testing.assert_allclose(found.asnumpy(), own / (hvd.rank() + 1), 1e-4, 1e-4)
    found, _ = convolved()
    gathered = hvd.allgather(found).asnumpy()
    np.testing.assert_allclose(gathered[:4], own / (hvd.rank() + 1), 1e-4, 1e-4)
    found, _ = convolved()
    scattered = hvd.reducescatter(found, hvd.Sum, name="scatter").asnumpy()
    begin = 4 // hvd.size() * hvd.rank() + min(4 % hvd.size(), hvd.rank())
    np.testing.assert_allclose(scattered, wanted[begin : begin + len(scattered)], 1e-4, 1e-4)


@on_ranks(2)
def test_results_are_where_the_arrays_are() -> None:
    own = mine((2, 2)).as_in_context(mx.cpu(1))
    results = [hvd.allreduce(own), hvd.broadcast(own, 0), hvd.reducescatter(own)]
    results += [hvd.allgather(own), hvd.alltoall(own), hvd.allreduce_(own)]
    assert [one.context for one in results] == [mx.cpu(1)] * len(results)


@on_ranks(2)
def test_arrays_of_other_devices_go_through_host_memory() -> None:
    """There is no GPU here: arrays of the CPU are copied as those of one would be."""
    patch = pytest.MonkeyPatch()
    for module in (_engine, _host):
        patch.setattr(module, "on_host", lambda array: False)
    try:
        own = mine(SHAPE)
        same(hvd.allreduce(own, op=hvd.Sum), np.sum(every(SHAPE), 0))
        same(hvd.broadcast(own, 1), value(1, SHAPE))
        same(hvd.allgather(own), np.concatenate(every(SHAPE)))
        same(hvd.reducescatter(mine((2, 2)), hvd.Sum), np.sum(every((2, 2)), 0)[[hvd.rank()]])
        hvd.allreduce_(own, op=hvd.Sum)
        same(own, np.sum(every(SHAPE), 0))
    finally:
        patch.undo()


@on_ranks(*EVERYWHERE)
def test_objects_go_to_all_ranks() -> None:
    own = {"rank": hvd.rank(), "array": mine((2,)).asnumpy()}
    found = hvd.broadcast_object(own, hvd.size() - 1)
    assert found["rank"] == hvd.size() - 1
    assert [one["rank"] for one in hvd.allgather_object(own, name="all")] == list(range(hvd.size()))


@on_ranks(3)
def test_process_sets_have_their_own_operations() -> None:
    pair = hvd.add_process_set([0, 2])
    try:
        if not pair.included():
            with pytest.raises(ValueError, match="rank 1 is not part of"):
                hvd.allreduce(mine(SHAPE), process_set=pair)
            return
        wanted = value(0, SHAPE) + value(2, SHAPE)
        same(hvd.allreduce(mine(SHAPE), op=hvd.Sum, process_set=pair), wanted)
        same(hvd.broadcast(mine(SHAPE), 2, process_set=pair), value(2, SHAPE))
        same(
            hvd.allgather(mine(SHAPE), process_set=pair),
            np.concatenate([value(0, SHAPE), value(2, SHAPE)]),
        )
        for one in hvd.grouped_allreduce([mine(SHAPE)] * 2, op=hvd.Sum, process_set=pair):
            same(one, wanted)
        own = slice(2, 3) if hvd.rank() == 2 else slice(0, 2)
        same(hvd.reducescatter(mine(SHAPE), hvd.Sum, process_set=pair), wanted[own])
        for one in hvd.grouped_reducescatter([mine(SHAPE)] * 2, hvd.Sum, process_set=pair):
            same(one, wanted[own])
        for one in hvd.grouped_allgather([mine((1,))] * 2, process_set=pair):
            same(one, [1, 3])
        found, received = hvd.alltoall(mine((3,)), [1, 2], process_set=pair)
        same(found, [1, 3] if hvd.rank() == 0 else [2, 3, 4, 5])
        same(received, [1, 1] if hvd.rank() == 0 else [2, 2], "int32")
        with pytest.raises(ValueError, match="root_rank 1 is not a rank"):
            hvd.broadcast(mine(SHAPE), 1, process_set=pair)
    finally:
        mx.nd.waitall()
        hvd.remove_process_set(pair)
