"""Reduction of sparse tensors, by an allgather of indices and values."""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod.common._arguments import check_name, check_op
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import allgather_together_async
from horovod.torch._submission import result


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts a reduction of a sparse tensor (layout sparse_coo) over all ranks without blocking.

    Args:
        tensor: shape, dtype and sparse dimensions are the same on every rank. The number and the
            positions of values may differ.
        name: two allgathers, `<name>.indices` and `<name>.values`, are submitted.
        op: Sum or Average.
        process_set: the ranks that take part.

    Returns:
        A function that waits and returns the reduced tensor, each index once. Call it once.

    Raises:
        ValueError: `tensor` is not sparse, or the name is in flight (then nothing is submitted).
        NotImplementedError: another op.
        Other errors: as `allgather`.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError("sparse_allreduce_async: a tensor of layout sparse_coo is needed")
    check_op(op)
    check_name("sparse_allreduce_async", name)
    if op not in (Average, Sum):
        raise NotImplementedError(
            "sparse tensors can be reduced by Average and Sum only; convert to_dense() first"
        )
    own = tensor.detach().coalesce()
    values, indices = allgather_together_async(
        [own.values(), own.indices().t()], name, [".values", ".indices"], process_set
    )

    def finish() -> torch.Tensor:
        try:
            places = result(indices).t()
        finally:  # both must have ended when this returns
            gathered = result(values)
        wide = gathered.to(_WIDER.get(gathered.dtype, gathered.dtype))
        # Checked: ranks whose shapes differ must not write outside this one.
        total = torch.sparse_coo_tensor(places, wide, tensor.shape, check_invariants=True)
        total = total.coalesce()
        sums = total.values()
        reduced = _divided(sums, process_set) if op == Average else sums
        return torch.sparse_coo_tensor(
            total.indices(),
            reduced.to(gathered.dtype),
            total.shape,
            is_coalesced=True,
            check_invariants=False,
        )

    return finish


#: Floating types are added in the next wider one and rounded once, as in `allreduce`.
_WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}


def _divided(sums: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """By the number of ranks; integers truncate toward zero, as in `allreduce`."""
    count = process_set.size()
    assert count is not None
    rounding = None if sums.dtype.is_floating_point else "trunc"
    return torch.div(sums, count, rounding_mode=rounding)
