"""Ranks that disagree, and what cannot be sent: a clear error, and the job goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ranks import NARROW, on_ranks
from reference import disagree

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError


@on_ranks(2, 3, NARROW)
def test_s2_other_shapes() -> None:
    disagree(
        lambda: hvd.allreduce(torch.ones(4, 2), name="x"),
        lambda: hvd.allreduce(torch.ones(4, 3), name="x"),
        *('"allreduce.x"', "[4, 2]", "[4, 3]"),
    )
    disagree(
        lambda: hvd.broadcast(torch.ones(4), 0, name="x"),
        lambda: hvd.broadcast(torch.ones(5), 0, name="x"),
        *('"broadcast.x"', "[4]", "[5]"),
    )
    disagree(
        lambda: hvd.allgather(torch.ones(4, 2), name="x"),
        lambda: hvd.allgather(torch.ones(4, 2, 1), name="x"),
        '"allgather.x"',
    )
    disagree(
        lambda: hvd.allgather(torch.ones(4, 2), name="x"),
        lambda: hvd.allgather(torch.ones(4, 3), name="x"),
        *('"allgather.x"', "2]", "3]"),
    )
    disagree(
        lambda: hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], name="x"),
        lambda: hvd.grouped_allreduce([torch.ones(1), torch.ones(3)], name="x"),
        *("[2]", "[3]"),
    )
    disagree(
        lambda: hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], name="x"),
        lambda: hvd.grouped_allreduce([torch.ones(1)], name="x"),
    )


@on_ranks(2, 3, NARROW)
def test_s2_other_types() -> None:
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x"),
        lambda: hvd.allreduce(torch.ones(4, dtype=torch.float64), name="x"),
        *("float32", "float64"),
    )
    disagree(
        lambda: hvd.allgather(torch.ones(4, dtype=torch.int8), name="x"),
        lambda: hvd.allgather(torch.ones(4, dtype=torch.bfloat16), name="x"),
        *("int8", "bfloat16"),
    )
    disagree(
        lambda: hvd.broadcast(torch.ones(4, dtype=torch.bool), 0, name="x"),
        lambda: hvd.broadcast(torch.ones(4, dtype=torch.int16), 0, name="x"),
        *("bool", "int16"),
    )


@on_ranks(2, 3, NARROW)
def test_s2_other_reductions_and_factors() -> None:
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Sum),
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Max),
        *("sum", "max"),
    )
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Average),
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Sum),
        *("average", "sum"),
    )
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x", prescale_factor=0.5),
        lambda: hvd.allreduce(torch.ones(4), name="x", prescale_factor=0.25),
        *("0.5", "0.25"),
    )
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x", postscale_factor=0.5),
        lambda: hvd.allreduce(torch.ones(4), name="x", postscale_factor=0.25),
        *("0.5", "0.25"),
    )


@on_ranks(2, 3, NARROW)
def test_s2_other_roots() -> None:
    disagree(
        lambda: hvd.broadcast(torch.ones(4), 0, name="x"),
        lambda: hvd.broadcast(torch.ones(4), 1, name="x"),
        *("root", " 0", " 1"),
    )


@on_ranks(2, 3, NARROW)
def test_s2_a_failed_operation_leaves_the_input_as_it_was() -> None:
    tensor = torch.arange(4.0 + hvd.rank())
    with pytest.raises(HorovodMismatchError):
        hvd.allreduce_(tensor)
    assert torch.equal(tensor, torch.arange(4.0 + hvd.rank()))


@on_ranks(2, 3, NARROW)
def test_s2_one_failed_operation_does_not_harm_the_others_in_flight() -> None:
    handles = []
    for i in range(50):
        elements = 5 + (hvd.rank() if i == 20 else 0)
        handles.append(hvd.allreduce_async(torch.full((elements,), float(i)), name=f"one.{i}"))
    for i, handle in enumerate(handles):
        if i == 20:
            with pytest.raises(HorovodMismatchError, match=r"one\.20"):
                hvd.synchronize(handle)
        else:
            found = hvd.synchronize(handle)
            assert isinstance(found, torch.Tensor)
            assert torch.equal(found, torch.full((5,), float(i)))


@on_ranks(2, 3, NARROW)
def test_s2_a_name_in_flight_is_refused_and_the_first_goes_on() -> None:
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="d", op=hvd.Sum)
        with pytest.raises(ValueError, match=r"allreduce\.d"):
            hvd.allreduce_async(torch.ones(2), name="d", op=hvd.Sum)
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(2), name="d", op=hvd.Sum)
    found = hvd.synchronize(first)
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [hvd.size()] * 2
    assert hvd.allreduce(torch.ones(1), name="d", op=hvd.Sum) == hvd.size()


@on_ranks(2, 3)
def test_s2_a_sparse_operation_of_which_one_half_is_refused_leaves_nothing_in_flight() -> None:
    sparse = torch.eye(2).to_sparse()
    for taken, text in (("s.indices", r"allgather\.s\.indices"), ("s.values", r"s\.values")):
        if hvd.rank() == 0:
            first = hvd.allgather_async(torch.ones(1), taken)
            with pytest.raises(ValueError, match=rf"{text}.* in flight on rank 0"):
                hvd.sparse_allreduce_async(sparse, "s", hvd.Sum)
            hvd.barrier()
        else:
            hvd.barrier()
            first = hvd.allgather_async(torch.ones(1), taken)
        hvd.synchronize(first)
        found = hvd.sparse_allreduce_async(sparse, "s", hvd.Sum)()
        assert torch.equal(found.to_dense(), hvd.size() * torch.eye(2))
    with pytest.raises(ValueError, match="longer than"):  # of the longer name alone
        hvd.sparse_allreduce_async(sparse, "n" * (4096 - len("allgather..values")), hvd.Sum)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@on_ranks(1, 2)
def test_s2_what_is_refused_on_every_rank_leaves_the_job_in_step() -> None:
    refused: list[Callable[[], Any]] = [
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)),
        lambda: hvd.allreduce(torch.eye(2).to_sparse()),
        lambda: hvd.allreduce_(torch.ones(2, 3).t()),
        lambda: hvd.allgather(torch.tensor(1.0)),
        lambda: hvd.broadcast(torch.ones(2), hvd.size()),
        lambda: hvd.broadcast(torch.ones(2), -1),
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)),
        lambda: hvd.allreduce(torch.ones(2), name="n" * 5000),
        lambda: hvd.init(comm=[0]) or hvd.init(comm=3),
    ]
    for operation in refused:
        with pytest.raises(ValueError):
            operation()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
