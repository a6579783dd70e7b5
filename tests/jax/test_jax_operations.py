"""What every operation gives on pytrees of every type, eagerly and compiled."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_ranks import EVERYWHERE, on_ranks, run_alone, tell
from jax_reference import MODES, SUMS, every, in_every_mode, mine, same, value

import horovod.jax as hvd


def forget_errors() -> None:
    """An eager call tells the error of a program that ran in the background once more."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        hvd.barrier()


TYPES = ["uint8", "int8", "int16", "int32", "float16", "float32", "bfloat16"]
#: Those that can be moved, but not reduced.
MOVED = [*TYPES, "bool", "uint16", "uint32", "float8_e4m3fn"]


@on_ranks(*EVERYWHERE)
def test_allreduce_takes_a_tree_of_every_type() -> None:
    tree = {dtype: mine((3, 2), dtype) for dtype in TYPES}
    wanted = {dtype: sum(one.astype(np.float64) for one in every((3, 2), dtype)) for dtype in TYPES}
    in_every_mode(lambda x: hvd.allreduce(x, op=hvd.Sum), [tree], wanted)
    for run in MODES.values():
        assert {k: v.dtype for k, v in run(hvd.allreduce)(tree).items()} == {
            k: v.dtype for k, v in tree.items()
        }


@on_ranks(2)
def test_wide_types_are_reduced_where_jax_has_them() -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        tree = {dtype: mine((3, 2), dtype) for dtype in ("int64", "float64")}
        wanted = {dtype: sum(every((3, 2), dtype)) + 2**40 for dtype in tree}
        in_every_mode(
            lambda x: hvd.allreduce(jax.tree.map(lambda y: y + 2**39, x), op=hvd.Sum),
            [tree],
            wanted,
        )
        in_every_mode(hvd.broadcast, [mine((3,), "uint64")], value(0, (3,), "uint64"))
    finally:
        jax.config.update("jax_enable_x64", False)


@on_ranks(*EVERYWHERE)
def test_allreduce_takes_every_op_and_shape() -> None:
    for shape in [(), (1,), (0,), (5, 0), (4, 3, 2)]:
        wanted = {str(op): reduced(every(shape)) for op, reduced in SUMS.items()}
        in_every_mode(
            lambda x: {str(op): hvd.allreduce(x, op=op, name=f"op.{op}") for op in SUMS},
            [mine(shape)],
            wanted,
        )
    flags = jnp.arange(4) == hvd.rank()
    in_every_mode(lambda x: hvd.allreduce(x, op=hvd.Max), [flags], np.arange(4) < hvd.size())


@on_ranks(*EVERYWHERE)
def test_factors_multiply_before_and_after() -> None:
    wanted = sum(one * 3 for one in every((5,))) * 0.5
    in_every_mode(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=3, postscale_factor=0.5),
        [mine((5,))],
        wanted,
    )


@on_ranks(2)
def test_adasum_combines_two_ranks() -> None:
    a, b = (one.astype(np.float64) for one in every((6,)))
    wanted = (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
    in_every_mode(lambda x: hvd.allreduce(x, op=hvd.Adasum), [mine((6,))], wanted)


@on_ranks(*EVERYWHERE)
def test_compression_is_undone() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        in_every_mode(
            lambda x, c=compression: hvd.allreduce(x, op=hvd.Sum, compression=c),
            [[mine((4,)), mine((2,), np.int32)]],
            [sum(every((4,))), sum(every((2,)))],
        )


@on_ranks(*EVERYWHERE)
def test_groups_are_lists_of_results() -> None:
    shapes = [(2, 3), (4,), (1, 1, 2)]
    own = [mine(shape) for shape in shapes] + [mine((3,), np.int32)]
    sums = [sum(every(shape)) for shape in shapes] + [sum(every((3,), np.int32))]
    in_every_mode(lambda x: hvd.grouped_allreduce(x, op=hvd.Sum, name="group"), [own], sums)
    in_every_mode(hvd.grouped_allreduce, [own[:1]], [np.mean(every((2, 3)), 0)])
    gathered = [np.concatenate(every(shape)) for shape in shapes]
    in_every_mode(hvd.grouped_allgather, [own[:3]], gathered)


@on_ranks(*EVERYWHERE)
def test_allgather_concatenates_in_the_order_of_ranks() -> None:
    in_every_mode(
        hvd.allgather,
        [{"a": mine((2, 3)), "b": mine((1,), np.int32), "none": None}],
        {"a": np.concatenate(every((2, 3))), "b": np.concatenate(every((1,))), "none": None},
    )
    rows = [np.full((rank + 1, 2), rank) for rank in range(hvd.size())]
    same(hvd.allgather(jnp.asarray(rows[hvd.rank()])), np.concatenate(rows))


@on_ranks(2, 3)
def test_rows_that_differ_in_a_compiled_allgather_are_an_error() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="equal numbers of rows"):
        np.asarray(jax.jit(hvd.allgather)(jnp.zeros([2 * hvd.rank() ** 2 + 1])))
    forget_errors()
    hvd.barrier()


@on_ranks(*EVERYWHERE)
def test_broadcast_takes_types_that_cannot_be_reduced() -> None:
    root = hvd.size() - 1
    tree = {dtype: mine((3,), dtype) for dtype in MOVED}
    wanted = {dtype: value(root, (3,), dtype) for dtype in MOVED}
    in_every_mode(lambda x: hvd.broadcast(x, root), [tree], wanted)


@on_ranks(*EVERYWHERE)
def test_rows_of_every_type_are_moved() -> None:
    size, rank = hvd.size(), hvd.rank()
    tree = {dtype: mine((2 * size,), dtype) for dtype in MOVED}
    gathered = {dtype: np.concatenate(every((2 * size,), dtype)) for dtype in MOVED}
    parts = {
        dtype: np.concatenate([one[2 * rank : 2 * rank + 2] for one in every((2 * size,), dtype)])
        for dtype in MOVED
    }
    in_every_mode(hvd.allgather, [tree], gathered)
    in_every_mode(hvd.alltoall, [tree], parts)
    for found in (hvd.allgather(tree), jax.jit(hvd.alltoall)(tree)):
        assert {name: one.dtype for name, one in found.items()} == {
            name: one.dtype for name, one in tree.items()
        }


@on_ranks(*EVERYWHERE)
def test_alltoall_exchanges_rows() -> None:
    size, rank = hvd.size(), hvd.rank()
    sent = [np.arange(2 * size * 3).reshape(2 * size, 3) + 100 * one for one in range(size)]
    wanted = np.concatenate([one[2 * rank : 2 * rank + 2] for one in sent])
    own = jnp.asarray(sent[rank])
    in_every_mode(lambda x: hvd.alltoall([x, x + 1]), [own], [wanted, wanted + 1])
    splits = [one + 1 for one in range(size)]
    rows = jnp.full((sum(splits),), rank)
    received, counts = hvd.alltoall(rows, splits)
    same(received, np.repeat(np.arange(size), rank + 1))
    same(counts, [rank + 1] * size)


@on_ranks(*EVERYWHERE)
def test_reducescatter_gives_more_rows_to_the_first_ranks() -> None:
    for rows in (1, 4, 6):
        parts = np.array_split(sum(every((rows, 2))), hvd.size())
        in_every_mode(
            lambda x: hvd.reducescatter(x, op=hvd.Sum), [mine((rows, 2))], parts[hvd.rank()]
        )
    tree = {dtype: mine((5,), dtype) for dtype in TYPES}
    sums = {dtype: sum(one.astype(np.float64) for one in every((5,), dtype)) for dtype in TYPES}
    own = {dtype: np.array_split(one, hvd.size())[hvd.rank()] for dtype, one in sums.items()}
    in_every_mode(lambda x: hvd.reducescatter(x, op=hvd.Sum), [tree], own)
    mean = np.array_split(np.mean(every((6,)), 0), hvd.size())[hvd.rank()]
    in_every_mode(lambda x: hvd.grouped_reducescatter([x])[0], [mine((6,))], mean)


@on_ranks(*EVERYWHERE)
def test_numbers_and_empty_trees_are_trees() -> None:
    same(hvd.allreduce(2), 2)
    same(hvd.allreduce(1.5, op=hvd.Sum), 1.5 * hvd.size())
    assert hvd.allreduce({}) == {} and hvd.allgather([]) == [] and hvd.broadcast(()) == ()
    assert hvd.grouped_allreduce([]) == []


@on_ranks(2, 3)
def test_a_barrier_waits_for_the_last_rank() -> None:
    """In a program, the operations after it do. This one is of a set of one rank."""
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    own = sets[hvd.rank()]

    def step(x: Any) -> Any:
        hvd.barrier()
        return hvd.allreduce(x, op=hvd.Sum, process_set=own)

    for run in MODES.values():
        program = run(step)
        for late in range(hvd.size()):
            if hvd.rank() == late:
                time.sleep(0.05)
            begin = time.monotonic()
            same(program(mine((3,))), value(hvd.rank(), (3,)))
            times = hvd.allgather_object((begin, time.monotonic()))
            assert min(end for _, end in times) >= max(begin for begin, _ in times), times
    for one in sets:
        hvd.remove_process_set(one)


@on_ranks(3)
def test_process_sets_reduce_among_their_ranks() -> None:
    pair = hvd.add_process_set([0, 1])
    if hvd.rank() < 2:
        in_every_mode(
            lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=pair),
            [mine((3,))],
            sum(value(rank, (3,)) for rank in range(2)),
        )
        both = [value(rank, (2, 2)) for rank in range(2)]
        own = slice(hvd.rank(), hvd.rank() + 1)
        others = [
            both[1],
            np.concatenate(both),
            np.concatenate([one[own] for one in both]),
            sum(both)[own],
            both[1],
        ]
        in_every_mode(
            lambda x: [
                hvd.broadcast(x, 1, process_set=pair),
                hvd.allgather(x, process_set=pair),
                hvd.alltoall(x, process_set=pair),
                hvd.reducescatter(x, op=hvd.Sum, process_set=pair),
                hvd.grouped_allreduce([x], op=hvd.Max, process_set=pair)[0],
            ],
            [mine((2, 2))],
            others,
        )
        hvd.barrier(pair)
    else:
        with pytest.raises(ValueError, match="rank 2 is not part of"):
            hvd.allreduce(mine((3,)), process_set=pair)
    hvd.barrier()
    hvd.remove_process_set(pair)


@on_ranks(1)
def test_arguments_are_checked_before_anything_is_sent() -> None:
    x = jnp.ones([3])
    for call, match in [
        (lambda: hvd.allreduce(x, op=17), "op must be one of"),
        (lambda: hvd.allreduce(x, name=3), "name must be a str"),
        (lambda: hvd.allreduce(x, prescale_factor="much"), "prescale_factor must be a number"),
        (lambda: hvd.allreduce(x, compression=3), "compression must be a Compressor"),
        (lambda: hvd.allreduce(x.astype(jnp.uint32)), "convert it to int32"),
        (lambda: hvd.allreduce(x.astype(jnp.complex64)), "real and its imaginary part"),
        (lambda: hvd.allreduce(x > 1), "bool supports only Max"),
        (lambda: hvd.reducescatter(x, op=hvd.Max), "only Average or Sum"),
        (lambda: hvd.reducescatter(x[0]), "a scalar has no rows"),
        (lambda: hvd.allgather(x[0]), "a scalar has no rows"),
        (lambda: hvd.broadcast(x, "0"), "root_rank must be the number of a rank"),
        (lambda: jax.jit(lambda y: hvd.alltoall(y, [3]))(x), "splits are for eager calls"),
        (lambda: hvd.allreduce(x, process_set=hvd.ProcessSet([0])), "not registered"),
        (lambda: hvd.grouped_allreduce(3), "must be a list or tuple"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()  # type: ignore[no-untyped-call]


@on_ranks(2, 3)
def test_ranks_that_disagree_get_an_error_and_go_on() -> None:
    own = jnp.zeros([2 + hvd.rank()])
    with pytest.raises(ValueError, match=r"\[3\]") as eager:
        hvd.allreduce(own)
    assert isinstance(eager.value, hvd.HorovodInternalError)
    same(hvd.allreduce(jnp.ones([4]), op=hvd.Sum), np.full(4, hvd.size()))
    with pytest.raises(ValueError, match="broadcast"):
        hvd.allreduce(own[:1]) if hvd.rank() == 0 else hvd.broadcast(own[:1])
    hvd.barrier()


@on_ranks(2)
def test_ranks_that_disagree_in_compiled_programs_get_an_error_and_go_on() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"horovod.jax allreduce: .*\[3\]"):
        np.asarray(jax.jit(hvd.allreduce)(jnp.zeros([2 + hvd.rank()])))
    forget_errors()
    in_every_mode(lambda x: hvd.allreduce(x, op=hvd.Sum), [mine((4,))], sum(every((4,))))


@on_ranks(2, 3)
def test_a_rank_that_joins_contributes_nothing() -> None:
    if hvd.rank() == 0:
        assert hvd.join() >= 0
    else:
        total = hvd.allreduce(jnp.ones([3]), op=hvd.Sum, name="late")
        same(total, np.full(3, hvd.size() - 1))
        assert hvd.join() >= 0


@on_ranks(*EVERYWHERE)
def test_objects_are_those_of_the_root_and_of_all() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def use_the_second_device() -> None:
    hvd.init()
    device = jax.devices()[1]
    x = jax.device_put(jnp.arange(4.0) + hvd.rank(), device)
    tree = {"x": x, "on the first": jnp.ones(2)}
    told = hvd.allreduce(tree, op=hvd.Sum)
    same(told["x"], 2 * np.arange(4.0) + 1)
    same(told["on the first"], np.full(2, 2.0))
    results = [told["x"], hvd.allgather(x), hvd.broadcast(x), hvd.reducescatter(x)]
    results += hvd.alltoall(x, [1, 3])
    tell([one.device == device for one in results])
    tell([told["on the first"].device == jax.devices()[0]])


def test_eager_results_are_on_the_devices_of_their_inputs() -> None:
    """Arrays go through host memory, as those of a GPU would."""
    flag = "--xla_force_host_platform_device_count=2"
    job = run_alone(2, use_the_second_device, XLA_FLAGS=flag)
    assert job.told == [[[True] * 6, [True]]] * 2, job.output
