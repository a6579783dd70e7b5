"""The form in which the gradient of a parameter is sent. Owned by one optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from horovod.common._gradients import How
from horovod.torch._bundle import Packed
from horovod.torch._passes import Parameter
from horovod.torch._submission import readable


class Packing:
    """Finds and compresses gradients, and makes zeros for missing ones."""

    def __init__(self, names: dict[Parameter, str], how: How) -> None:
        self._names = names
        self._how = how
        #: The number of sparse dimensions, of parameters that have had sparse gradients.
        self.sparse_dims: dict[Parameter, int] = {}

    def dims_by_name(self) -> dict[str, int]:
        return {self._names[parameter]: dims for parameter, dims in self.sparse_dims.items()}

    def expect_dims(self, parameter: Parameter, dims_by_name: Mapping[str, int]) -> None:
        """Takes the number of sparse dimensions from other ranks, if they have one."""
        if self._names[parameter] in dims_by_name:
            self.sparse_dims[parameter] = dims_by_name[self._names[parameter]]

    def travels_sparse(self, parameter: Parameter) -> bool:
        return not self._how.sparse_as_dense and parameter in self.sparse_dims

    def gradient(self, parameter: Parameter) -> torch.Tensor:
        """Returns the parameter's gradient in memory that holds its values; zeros if it has none,
        sparse if earlier ones were.
        """
        gradient = parameter.grad
        if gradient is None:
            gradient = self.zeros(parameter)
            parameter.grad = gradient
        elif gradient.layout is torch.sparse_coo:
            self.sparse_dims[parameter] = gradient.sparse_dim()
        elif not is_as_it_lies(gradient) and gradient.is_contiguous():
            gradient = readable(gradient.detach(), f"the gradient of {self._names[parameter]!r}")
            parameter.grad = gradient
        return gradient

    def zeros(self, parameter: Parameter) -> torch.Tensor:
        zeros = torch.zeros_like(parameter, requires_grad=False)
        dims = self.sparse_dims.get(parameter)
        return zeros if dims is None else zeros.to_sparse(dims)

    def packed(self, parameter: Parameter, gradient: torch.Tensor) -> Packed:
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        with torch.no_grad():
            wire, context = self._how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return Packed(parameter, gradient, wire, context)

    def packed_if_possible(self, parameter: Parameter, zeros: torch.Tensor) -> Packed:
        """Packs zeros whose result is not used."""
        try:
            return self.packed(parameter, zeros)
        except (RuntimeError, ValueError):  # the context of the compression
            wire = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            return Packed(parameter, zeros, wire.detach(), None)


def is_as_it_lies(gradient: torch.Tensor) -> bool:
    """Returns whether the memory of a dense gradient holds its values in the usual order."""
    return gradient.is_contiguous() and not gradient.is_neg() and not gradient._is_zerotensor()
