"""Blocking groups: collectives on tensors in program order, without names and without agreement."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import torch

from horovod.common._arguments import check_op, check_op_of, check_root, check_rows, factor
from horovod.common._extension import core
from horovod.common._submission import operation
from horovod.common.basics import Average, Max, Min, Product, Sum
from horovod.torch._allreduce import check_reducible
from horovod.torch._submission import (
    READER,
    changes,
    check,
    described,
    readable,
    rows_for,
    writable,
)

#: The reductions of each kind of operation.
_OPS = {
    core.ALLREDUCE: (Average, Sum, Min, Max, Product),
    core.REDUCESCATTER: (Average, Sum),
}


class Group:
    """A group of ranks that make the same calls in the same order, as in MPI.

    A call blocks until its result is available. It costs less than `hvd.allreduce`, because ranks
    do not negotiate: shapes, dtypes and options must be equal on all ranks of the group, and this
    is not checked. A group has its own connections and memory. All calls, including the constructor
    and `close`, are collective; one thread at a time may call. Tensors on a GPU are copied
    through host memory. Calls are not differentiable.

    Args:
        ranks: global ranks, in any order; None: all ranks of the job.

    Raises:
        ValueError: horovod is not initialized, or this rank is not one of `ranks`.
        HorovodInternalError: a rank does not create the group within HOROVOD_START_TIMEOUT. Or a
            rank of the group is lost; all later calls fail too.

    Example:
        with hvd.Group() as group:
            group.allreduce_(tensor, op=hvd.Sum)
    """

    def __init__(self, ranks: Iterable[int] | None = None) -> None:
        world = core.world()
        self.ranks: list[int] = sorted(range(world.size) if ranks is None else ranks)
        if not self.ranks:
            raise ValueError("hvd.Group: ranks is empty; None stands for all ranks")
        self._group = core.Group(self.ranks)
        self._rank: int = self._group.rank()
        self._size: int = self._group.size()

    def rank(self) -> int:
        """Returns the rank of this process within the group."""
        return self._rank

    def size(self) -> int:
        """Returns the number of ranks in the group."""
        return self._size

    def allreduce_(
        self, tensor: torch.Tensor, op: int = Average, postscale_factor: float = 1.0
    ) -> torch.Tensor:
        """Reduces `tensor` in place over the ranks of the group, then multiplies it by
        `postscale_factor`. `op`: hvd.Average, Sum, Min, Max or Product."""
        return self._reduce("allreduce", core.ALLREDUCE, tensor, tensor, op, postscale_factor)

    def allreduce(
        self, tensor: torch.Tensor, op: int = Average, postscale_factor: float = 1.0
    ) -> torch.Tensor:
        """Returns the result of `allreduce_` in a new tensor."""
        check(tensor, "Group.allreduce")
        made = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        return self._reduce("allreduce", core.ALLREDUCE, tensor, made, op, postscale_factor)

    def reducescatter(
        self, tensor: torch.Tensor, op: int = Average, postscale_factor: float = 1.0
    ) -> torch.Tensor:
        """Reduces `tensor` and returns this rank's rows of dimension 0: equal parts, one row more
        on the first ranks. `op`: hvd.Average or Sum.
        """
        _rows("reducescatter", tensor)
        made = rows_for(tensor, self._rank, self._size)
        return self._reduce("reducescatter", core.REDUCESCATTER, tensor, made, op, postscale_factor)

    def broadcast_(self, tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
        """Overwrites `tensor` with that of `root_rank`, a global rank of the group."""
        check_root("Group.broadcast_", root_rank)
        if root_rank not in self.ranks:
            raise ValueError(
                f"Group.broadcast_: root_rank {root_rank} is not in the group of ranks {self.ranks}"
            )
        root = self.ranks.index(root_rank)
        return self._run("broadcast_", core.BROADCAST, tensor, tensor, root=root)

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the tensors of all ranks, concatenated along dimension 0. All have the same
        shape.
        """
        rows = _rows("allgather", tensor)
        made = tensor.new_empty((rows * self._size, *tensor.shape[1:]))
        return self._run("allgather", core.ALLGATHER, tensor, made)

    def alltoall(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sends part i of the rows to rank i of the group; returns the received rows, in the order
        of ranks. The number of rows is a multiple of the size of the group.
        """
        rows = _rows("alltoall", tensor)
        if rows % self._size != 0:
            raise ValueError(
                f"Group.alltoall: {rows} rows cannot be split among {self._size} ranks in equal "
                "parts"
            )
        made = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        return self._run("alltoall", core.ALLTOALL, tensor, made)

    def barrier(self) -> None:
        """Blocks until all ranks of the group have called it."""
        self._group.barrier()

    def close(self) -> None:
        """Ends the group. Collective; blocks until no other rank needs this one."""
        self._group.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _reduce(
        self,
        doing: str,
        kind: int,
        source: torch.Tensor,
        target: torch.Tensor,
        op: int,
        postscale_factor: float,
    ) -> torch.Tensor:
        check_op(op)
        check_op_of(f"Group.{doing}", op, _OPS[kind])
        check_reducible(source, op, f"Group.{doing}")
        scale = factor(f"Group.{doing}", "postscale_factor", postscale_factor)
        return self._run(doing, kind, source, target, op, scale)

    def _run(
        self,
        doing: str,
        kind: int,
        source: torch.Tensor,
        target: torch.Tensor,
        op: int = Sum,
        scale: float = 1.0,
        root: int = 0,
    ) -> torch.Tensor:
        how = operation(kind, op, 1.0, scale, root)
        if isinstance(source, torch.Tensor) and not source.is_cpu:
            check(source, f"Group.{doing}")
            return self._run_through_host(doing, kind, source, target, op, scale, root)
        if self._group.run(how, source, target, READER):
            if target is source:
                changes([target])
            return target
        # What the native module cannot read: a mistake, a tensor that is not contiguous, a
        # subclass, or any tensor of an older torch.
        doing = f"Group.{doing}"
        check(source, doing)
        if target is source:
            target = source = writable(target, doing)
        else:
            source = readable(source, doing)
        given, result = described([source, target])
        self._group.run(how, given, result, None)
        return target

    @torch.no_grad()
    def _run_through_host(
        self,
        doing: str,
        kind: int,
        source: torch.Tensor,
        target: torch.Tensor,
        op: int,
        scale: float,
        root: int,
    ) -> torch.Tensor:
        """For tensors on a GPU: the call blocks until its result is in host memory anyway."""
        sent = source.detach().cpu()
        made = sent if target is source else torch.empty_like(target, device="cpu")
        return target.copy_(self._run(doing, kind, sent, made, op, scale, root))


def _rows(doing: str, tensor: torch.Tensor) -> int:
    """Of dim 0."""
    check(tensor, f"Group.{doing}")
    check_rows(f"Group.{doing}", tensor.dim())
    return tensor.shape[0]
