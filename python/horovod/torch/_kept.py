"""Memory of gradients that is used again in the next step.

After `zero_grad()`, autograd allocates gradients anew. Large ones get pages that the kernel has to
clear, at every step. Copying a new gradient, which is still in the cache, to the memory of the last
step costs less, and the new memory is free at once for the next gradient.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from horovod.torch._passes import Parameter

#: Smaller gradients come from memory that the allocator has kept.
LEAST_BYTES = 1 << 16

_use_count_of_storage: Any = getattr(torch._C, "_storage_Use_Count", None)

#: References from Python, from C++, and by tensors that share the memory.
_References = tuple[int, int, int]


def _references(held: Sequence[torch.Tensor]) -> _References:
    """Returns how many references there are to `held[0]`."""
    tensor: Any = held[0]
    storage = tensor.untyped_storage()
    return sys.getrefcount(tensor), tensor._use_count(), _use_count_of_storage(storage._cdata)


def _references_of_gradient() -> _References:
    """Returns those of a gradient that is in a list and in a slice of it, and that nothing else
    holds."""
    parameter = torch.nn.Parameter(torch.empty(1))
    gradients = [torch.empty(1)]
    parameter.grad = gradients[0]
    return _references(gradients[:1])


#: Older torch cannot tell what refers to a tensor.
_can_tell = _use_count_of_storage is not None and hasattr(torch.Tensor, "_use_count")
_ALONE = _references([torch.empty(1)]) if _can_tell else None
_OF_GRADIENT = _references_of_gradient() if _can_tell else None


class KeptGradients:
    """The gradients of the last step of one optimizer, by index of the parameter. Used by the
    thread that runs backward.

    Memory is used again only if nothing else refers to it, so that gradients which the user keeps
    do not change. The same holds for new gradients, which are replaced.
    """

    def __init__(self) -> None:
        self._kept: dict[int, torch.Tensor] = {}

    def move(
        self,
        parameters: Sequence[Parameter],
        indices: list[int],
        gradients: list[torch.Tensor],
        versions: list[int],
    ) -> None:
        """Moves new dense gradients to the memory of the last step. `gradients`: those of
        `parameters[index]` for each of `indices`, and nothing else holds this list."""
        if not _can_tell:
            return
        for at, index in enumerate(indices):
            new = gradients[at : at + 1]
            if new[0].nbytes < LEAST_BYTES or not new[0].is_cpu:
                continue
            kept = [self._kept.pop(index, new[0])]
            if _may_replace(parameters[index], new, versions[at], kept):
                gradients[at], versions[at] = _replace(parameters[index], new.pop(), kept[0])
            self._kept[index] = gradients[at]


def _may_replace(
    parameter: Parameter, new: list[torch.Tensor], version: int, kept: list[torch.Tensor]
) -> bool:
    return (
        kept[0] is not new[0]
        and _references(kept) == _ALONE
        and _references(new) == _OF_GRADIENT
        and new[0]._version == version
        and not new[0].requires_grad
        and _form(new[0]) == _form(kept[0])
        and parameter.grad is new[0]
    )


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_cpu


def _replace(
    parameter: Parameter, new: torch.Tensor, kept: torch.Tensor
) -> tuple[torch.Tensor, int]:
    """Makes `kept`, with the values of `new`, the gradient. Returns it and its version."""
    with torch.no_grad():
        parameter.grad = kept.copy_(new)
    return kept, kept._version
