"""Operations in place on tensors that share memory, in one group and in operations of their own."""

from __future__ import annotations

import torch
from ranks import NARROW, on_ranks

import horovod.torch as hvd

SIZES = (1, 2, 3, NARROW)
#: One segment and many.
LENGTHS = (5, 1000, 300_001)


def mine(length: int) -> torch.Tensor:
    return torch.full((length,), hvd.rank() + 1.0)


def total() -> float:
    return hvd.size() * (hvd.size() + 1) / 2


def all_are(tensor: torch.Tensor, number: float) -> bool:
    return bool((tensor == number).all())


@on_ranks(*SIZES)
def test_s6_a_tensor_twice_in_a_group_is_reduced_once() -> None:
    for length in LENGTHS:
        for copies in (2, 5):
            tensor = mine(length)
            hvd.grouped_allreduce_([tensor] * copies, op=hvd.Sum, name="twice")
            assert all_are(tensor, total()), (length, tensor)


@on_ranks(*SIZES)
def test_s6_a_tensor_and_parts_of_it_in_a_group_are_reduced_once() -> None:
    for length in LENGTHS:
        tensor = mine(length)
        parts = [tensor[:3], tensor, tensor[length // 2 :], tensor[1 : length - 1]]
        hvd.grouped_allreduce_(parts, op=hvd.Sum, name="parts")
        assert all_are(tensor, total()), (length, tensor)


@on_ranks(*SIZES)
def test_s6_a_shared_tensor_is_scaled_once() -> None:
    for length in LENGTHS:
        tensor = mine(length)
        hvd.grouped_allreduce_(
            [tensor, tensor], op=hvd.Sum, name="scaled", prescale_factor=2.0, postscale_factor=4.0
        )
        assert all_are(tensor, 8 * total()), (length, tensor)


@on_ranks(*SIZES)
def test_s6_the_last_tensor_of_a_group_decides_where_memory_overlaps() -> None:
    for length in LENGTHS:
        # Rank 0 has one tensor twice, the others have two, so that the two sums differ.
        first = mine(length)
        second = first if hvd.rank() == 0 else 10 * mine(length)
        hvd.grouped_allreduce_([first, second], op=hvd.Sum, name="last")
        sum_of_second = 1 + 10 * (total() - 1)
        assert all_are(second, sum_of_second), (length, second)
        assert hvd.rank() == 0 or all_are(first, total()), (length, first)


@on_ranks(*SIZES)
def test_s6_a_state_with_shared_weights_is_averaged_entry_by_entry() -> None:
    for width in (3, 200):
        embedding = torch.nn.Embedding(50, width)
        decoder = torch.nn.Linear(width, 50)
        decoder.weight = embedding.weight
        state = torch.nn.ModuleList([embedding, decoder]).state_dict()
        for tensor in state.values():
            tensor.fill_(hvd.rank() + 1.0)
        handles = [hvd.allreduce_async_(tensor, name=name) for name, tensor in state.items()]
        for handle in handles:
            hvd.synchronize(handle)
        for name, tensor in state.items():
            average = (hvd.size() + 1) / 2
            assert torch.allclose(tensor, torch.tensor(average)), (name, tensor)
            rows = hvd.allgather(tensor.reshape(1, -1))
            assert all(torch.equal(row, rows[0]) for row in rows), name


@on_ranks(*SIZES)
def test_s6_parameters_that_share_memory_are_broadcast() -> None:
    for length in LENGTHS:
        tensor = mine(length)
        hvd.broadcast_parameters({"all": tensor, "same": tensor, "part": tensor[2:]}, root_rank=0)
        assert all_are(tensor, 1.0), (length, tensor)


@on_ranks(1, 2, 4)
def test_s6_adasum_of_a_shared_tensor_is_that_of_the_tensor() -> None:
    for length in LENGTHS:
        tensor = mine(length) + torch.arange(length) % 7
        alone = tensor.clone()
        hvd.allreduce_(alone, op=hvd.Adasum, name="alone")
        hvd.grouped_allreduce_([tensor, tensor], op=hvd.Adasum, name="shared")
        assert torch.equal(tensor, alone), (length, tensor)
