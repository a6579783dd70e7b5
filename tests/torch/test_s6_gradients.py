"""S6, gradients: by formula, and by torch.autograd.gradcheck.

gradcheck runs on all ranks in step, with the same numbers: what it changes, it changes everywhere.
Operations that only move rows are undone or cut inside the checked function, so that the result
depends on the rank's own part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ranks import on_ranks
from reference import EVERYWHERE, my_groups, same

import horovod.torch as hvd

Function = Callable[..., Any]


def weights(rank: int, shape: tuple[int, ...]) -> torch.Tensor:
    numbers = torch.arange(float(torch.Size(shape).numel()), dtype=torch.float64)
    return (numbers + 10 * rank + 1).view(shape)


def gradient(function: Function, shape: tuple[int, ...]) -> torch.Tensor:
    """Of the sum of the result times this rank's weights, at ones."""
    x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    output = function(x)
    (output * weights(hvd.rank(), tuple(output.shape))).sum().backward()
    assert x.grad is not None
    return x.grad


@on_ranks(*EVERYWHERE)
def test_s6_gradient_of_alltoall_goes_back_with_the_received_splits() -> None:
    with my_groups() as groups:
        for group in groups:
            ranks = group.ranks or []
            me, rank = ranks.index(hvd.rank()), hvd.rank()
            rows = {sender: [(sender + 2 * r) % 3 for r in ranks] for sender in ranks}
            tail = 2
            found = gradient(
                lambda x, group=group, splits=rows[rank]: hvd.alltoall(
                    x, splits, process_set=group
                )[0],
                (sum(rows[rank]) + tail, 2),
            )
            parts = []
            for index, receiver in enumerate(ranks):
                arrived = [rows[sender][index] for sender in ranks]
                first = sum(arrived[:me])
                whole = weights(receiver, (sum(arrived), 2))
                parts.append(whole[first : first + arrived[me]])
            parts.append(torch.zeros(tail, 2, dtype=torch.float64))
            same(found, torch.cat(parts), group)


@on_ranks(*EVERYWHERE)
def test_s6_gradient_of_alltoall_needs_none_for_the_splits() -> None:
    x = torch.ones(hvd.size(), requires_grad=True)
    splits = torch.ones(hvd.size(), dtype=torch.int32)
    output, received = hvd.alltoall(x, splits)
    assert output.requires_grad and not received.requires_grad
    output.sum().backward()
    assert splits.grad is None and x.grad is not None


@on_ranks(*EVERYWHERE)
def test_s6_gradient_of_reducescatter_is_gathered_and_for_sum_times_the_size() -> None:
    with my_groups() as groups:
        for group in groups:
            ranks, size = group.ranks or [], len(group.ranks or [])
            shape = (2 * size + 1, 3)
            rows = [shape[0] // size + (index < shape[0] % size) for index in range(size)]
            gathered = torch.cat(
                [weights(r, (count, 3)) for r, count in zip(ranks, rows, strict=True)]
            )
            for op, factor in ((hvd.Sum, float(size)), (hvd.Average, 1.0)):

                def one(x: Any, op: int = op, group: Any = group) -> Any:
                    return hvd.reducescatter(
                        x, op=op, process_set=group, prescale_factor=0.5, postscale_factor=3.0
                    )

                def two(x: Any, op: int = op, group: Any = group) -> Any:
                    tensors = [x, 2 * x]
                    return hvd.grouped_reducescatter(tensors, op=op, process_set=group)[1]

                same(gradient(one, shape), 1.5 * factor * gathered, (op, group))
                same(gradient(two, shape), 2 * factor * gathered, (op, group))


@on_ranks(*EVERYWHERE)
def test_s6_gradient_of_allgather_is_averaged_over_the_set() -> None:
    with my_groups() as groups:
        for group in groups:
            ranks = group.ranks or []
            rows = [r + 1 for r in ranks]
            me = ranks.index(hvd.rank())
            first = sum(rows[:me])
            average = sum(weights(r, (sum(rows), 2)) for r in ranks) / len(ranks)
            wanted = average[first : first + rows[me]]
            shape = (rows[me], 2)
            found = gradient(lambda x, group=group: hvd.allgather(x, process_set=group), shape)
            same(found, wanted, group)
            found = gradient(
                lambda x, group=group: hvd.grouped_allgather([x, x * 3], process_set=group)[1],
                shape,
            )
            same(found, 3 * wanted, group)


@on_ranks(*EVERYWHERE)
def test_s6_gradient_of_allreduce_and_broadcast_on_sets() -> None:
    shape = (4,)
    with my_groups() as groups:
        for group in groups:
            ranks = group.ranks or []
            total = sum((weights(r, shape) for r in ranks), torch.zeros(4, dtype=torch.float64))

            def reduced(x: Any, group: Any = group) -> Any:
                return hvd.allreduce(x, op=hvd.Sum, process_set=group)

            def averaged(x: Any, group: Any = group) -> Any:
                return hvd.grouped_allreduce([x, 2 * x], process_set=group)[1]

            same(gradient(reduced, shape), total, group)
            same(gradient(averaged, shape), 2 * total / len(ranks), group)
            root = ranks[-1]
            found = gradient(
                lambda x, group=group, root=root: hvd.broadcast(x, root, process_set=group), shape
            )
            mine = total / len(ranks) if hvd.rank() == root else torch.zeros_like(total)
            same(found, mine, group)


def steeper(x: torch.Tensor, factor: int) -> torch.Tensor:
    """The same values, and `factor` times the gradient."""
    return x.detach() + factor * (x - x.detach())


def checked(function: Function, *shapes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(7)
    inputs = [
        torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]
    # Everything must be computed on every rank, hence in the same number of calls.
    assert torch.autograd.gradcheck(function, inputs, check_batched_grad=False)


@on_ranks(1, 2, 3)
def test_s6_gradcheck_of_allreduce() -> None:
    for op in (hvd.Sum, hvd.Average):
        checked(lambda x, op=op: hvd.allreduce(x * x, op=op, prescale_factor=0.5), (2, 3))
        checked(lambda x, y, op=op: hvd.grouped_allreduce([x * y, y], op=op), (3,), (3,))


@on_ranks(1, 2, 3)
def test_s6_gradcheck_of_allgather() -> None:
    """Averaged: a gradient that reaches one rank alone counts 1 / size of it."""
    rank, size = hvd.rank(), hvd.size()

    def mine(gathered: torch.Tensor) -> torch.Tensor:
        return gathered.chunk(size)[rank]

    checked(lambda x: mine(hvd.allgather(steeper(x * x, size))), (2, 2))
    checked(
        lambda x, y: [
            mine(g) for g in hvd.grouped_allgather([steeper(x, size), steeper(x * y, size)])
        ],
        *((2, 2), (2, 2)),
    )


@on_ranks(1, 2, 3)
def test_s6_gradcheck_of_broadcast() -> None:
    root = hvd.size() - 1

    def sent(x: torch.Tensor) -> torch.Tensor:
        found = hvd.broadcast(x * x, root)
        return found if hvd.rank() == root else found - (x * x).detach()

    checked(sent, (3,))


@on_ranks(1, 2, 3)
def test_s6_gradcheck_of_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        splits = [(rank + other) % size + 1 for other in range(size)]
        rows = x[: sum(splits)]
        arrived, received = hvd.alltoall(rows, splits)
        returned, _ = hvd.alltoall(arrived * weights(rank, tuple(arrived.shape)), received)
        return returned

    checked(there_and_back, (size * (size + 1) // 2 + 1, 2))


@on_ranks(1, 2, 3)
def test_s6_gradcheck_of_reducescatter() -> None:
    for op in (hvd.Sum, hvd.Average):
        checked(lambda x, op=op: hvd.allgather(hvd.reducescatter(x * x, op=op)), (5, 2))

        def both(x: torch.Tensor, y: torch.Tensor, op: int = op) -> Any:
            return hvd.grouped_allgather(hvd.grouped_reducescatter([x * y, y], op=op))

        checked(both, *((5,), (5,)))


@on_ranks(1, 2, 3)
def test_s6_gradients_of_gradients() -> None:
    size = hvd.size()
    operations: list[tuple[Function, float]] = [
        (lambda x: hvd.alltoall(x), 1.0),
        (lambda x: hvd.reducescatter(x, op=hvd.Average), 1.0),
        (lambda x: hvd.allgather(x), 1.0),
    ]
    for operation, factor in operations:
        x = torch.full((size,), 3.0, requires_grad=True)
        y = operation(x * x * x).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert first.tolist() == [27.0 * factor] * size, operation
        assert second.tolist() == [18.0 * factor] * size, operation
