"""The operators that compiled code calls: their parameters, results and gradients.

Importing this module defines them. `process_set` is an id, since graphs hold plain values.

Nothing in a graph may depend on the rank: ranks of a host share torch's cache of compiled graphs,
and a compiler removes an operator whose result is not used. Values that differ between ranks are
computed inside an operator (`broadcast_gradient`).
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet
from horovod.torch._allreduce import allreduce_async
from horovod.torch._broadcast import broadcast_async
from horovod.torch._grouped_allreduce import grouped_allreduce_async
from horovod.torch._library import define, operators
from horovod.torch._submission import fresh, result, results


def _set(number: int) -> ProcessSet:
    """The registered set of that id."""
    known = ProcessSet([])
    known.process_set_id = number
    return known


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _allreduce(
    tensor: torch.Tensor, name: str | None, op: int, pre: float, post: float, process_set: int
) -> torch.Tensor:
    return result(allreduce_async(tensor, None, name, op, pre, post, _set(process_set)))


def _grouped_allreduce(
    tensors: list[torch.Tensor],
    name: str | None,
    op: int,
    pre: float,
    post: float,
    process_set: int,
) -> list[torch.Tensor]:
    handle = grouped_allreduce_async(tensors, None, name, op, pre, post, _set(process_set))
    return results(handle)


def _remember_reduction(ctx: Any, inputs: Any, output: Any) -> None:
    name = inputs[1]
    ctx.arguments = (_gradient_name(name), *inputs[2:])


def _allreduce_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
    return operators().allreduce(gradient, *ctx.arguments), None, None, None, None, None


def _grouped_allreduce_gradient(ctx: Any, gradients: list[torch.Tensor]) -> Any:
    reduced = operators().grouped_allreduce(gradients, *ctx.arguments)
    return reduced, None, None, None, None, None


def _broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: int
) -> torch.Tensor:
    return result(broadcast_async(tensor, root_rank, name, _set(process_set)))


def _remember_broadcast(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.root_rank, ctx.name, ctx.process_set = inputs


def _on_root(tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
    return tensor if core.world().rank == root_rank else torch.zeros_like(tensor)


def _broadcast_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
    arguments = (ctx.root_rank, _gradient_name(ctx.name), ctx.process_set)
    return operators().broadcast_gradient(gradient, *arguments), None, None, None


def _average_on_root(
    gradient: torch.Tensor, root_rank: int, name: str | None, process_set: int
) -> torch.Tensor:
    return _on_root(_allreduce(gradient, name, Average, 1.0, 1.0, process_set), root_rank)


def _average_on_root_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
    arguments = (_gradient_name(ctx.name), Average, 1.0, 1.0, ctx.process_set)
    return operators().allreduce(_on_root(gradient, ctx.root_rank), *arguments), None, None, None


_REDUCTION = "str? name, int op, float prescale_factor, float postscale_factor, int process_set"

define(
    f"allreduce(Tensor tensor, {_REDUCTION}) -> Tensor",
    _allreduce,
    lambda tensor, *others: fresh(tensor),
    _remember_reduction,
    _allreduce_gradient,
)
define(
    f"grouped_allreduce(Tensor[] tensors, {_REDUCTION}) -> Tensor[]",
    _grouped_allreduce,
    lambda tensors, *others: [fresh(tensor) for tensor in tensors],
    _remember_reduction,
    _grouped_allreduce_gradient,
)
define(
    "broadcast(Tensor tensor, int root_rank, str? name, int process_set) -> Tensor",
    _broadcast,
    lambda tensor, *others: fresh(tensor),
    _remember_broadcast,
    _broadcast_gradient,
)
define(
    "broadcast_gradient(Tensor gradient, int root_rank, str? name, int process_set) -> Tensor",
    _average_on_root,
    lambda gradient, *others: fresh(gradient),
    _remember_broadcast,
    _average_on_root_gradient,
)
