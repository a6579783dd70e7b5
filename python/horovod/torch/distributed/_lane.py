"""The interface between the process group and the two ways in which its operations run."""

from __future__ import annotations

from typing import Protocol

import torch

from horovod.torch.distributed._work import Attendant, Pending


class Lane(Protocol):
    """Collectives of the ranks of one group, on contiguous tensors in host memory of dtypes of the
    runtime. Ranks and roots count within the group.

    All ranks of the group make the same calls in the same order. `is_async`: the caller may do
    something else before it waits; the same on all ranks.
    """

    attendant: Attendant

    def allreduce(
        self, sources: list[torch.Tensor], targets: list[torch.Tensor], op: int, is_async: bool
    ) -> Pending:
        """`targets`: shaped as `sources`, of which each may be the same memory. One dtype."""

    def broadcast(self, tensors: list[torch.Tensor], root: int, is_async: bool) -> Pending:
        """In place. One dtype."""

    def allgather(self, source: torch.Tensor, target: torch.Tensor, is_async: bool) -> Pending:
        """`source`: [count], `target`: [size * count]. All ranks have the same count."""

    def reducescatter(
        self, source: torch.Tensor, target: torch.Tensor, op: int, is_async: bool
    ) -> Pending:
        """`source`: [size * count], `target`: [1, count]. `op`: Sum or Average."""

    def alltoall(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        sent: list[int],
        received: list[int],
        is_async: bool,
    ) -> Pending:
        """`sent`: rows of `source` for each rank. `received`: rows of `target` from each rank."""

    def barrier(self, is_async: bool) -> Pending: ...

    def close(self) -> None:
        """Ends the group. Collective."""
