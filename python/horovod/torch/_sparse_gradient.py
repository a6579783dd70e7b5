"""Sparse gradients of an optimizer, which are reduced by separate operations."""

from __future__ import annotations

import torch

from horovod.common._gradients import How
from horovod.torch._bundle import check_unchanged
from horovod.torch._passes import Parameter
from horovod.torch._under_way import Sent
from horovod.torch.mpi_ops import sparse_allreduce_async


def sparse_names(name: str) -> list[str]:
    """Returns the full names of the operations that reduce a sparse gradient."""
    return [f"allgather.{name}.values", f"allgather.{name}.indices"]


class SentSparse(Sent):
    """One sparse gradient in flight."""

    def __init__(self, parameter: Parameter, gradient: torch.Tensor, name: str, how: How) -> None:
        super().__init__()
        self.names = sparse_names(name)
        self.parameters = [parameter]
        self._gradient = gradient
        self._version = gradient._version
        self._end = sparse_allreduce_async(gradient, name, how.op, how.process_set)
        self._reduced: torch.Tensor | None = None
        self.begin()

    def _finish(self) -> None:
        self._reduced = self._end()

    def receive(self, names: dict[Parameter, str]) -> None:
        """Waits, and stores the reduced gradient. Raises the errors of `Bundle.receive`."""
        self.finish()
        check_unchanged(names, self.parameters[0], self._gradient, self._version)
        self.parameters[0].grad = self._reduced
