"""Batch normalization with statistics over the batches of all ranks.

Forward: ranks gather count, mean and inverse standard deviation in float64 and merge them (Chan,
Golub, LeVeque, 1983). Backward: the sums of dy and of dy * (x - mean) over the batch are reduced
over all ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.basics import Sum
from horovod.torch._submission import apply, result
from horovod.torch.mpi_ops import allgather_async, allreduce_async, size

_NAME = "sync_batch_norm"


class _Statistics(NamedTuple):
    """Statistics over all ranks. `total`: values per channel. Others: [channels], float64."""

    total: int
    mean: torch.Tensor
    variance: torch.Tensor


def _other_dimensions(x: torch.Tensor) -> list[int]:
    return [dimension for dimension in range(x.dim()) if dimension != 1]


def _per_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns `values` ([channels]) in a shape that broadcasts to `x`, and in its dtype."""
    return values.to(x.dtype).view([1, -1] + [1] * (x.dim() - 2))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Returns float16 and bfloat16 tensors as float32, others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _gather_statistics(x: torch.Tensor, eps: float) -> _Statistics:
    """Collective. All ranks merge the same numbers in the same order, so they get the same bits."""
    channels = x.shape[1]
    count = x.numel() // channels
    if count > 0:
        variance, mean = torch.var_mean(x, _other_dimensions(x), correction=0)
    else:
        variance, mean = x.new_zeros(channels), x.new_zeros(channels)
    invstd = (variance.double() + eps).rsqrt()
    under_way = [
        allgather_async(tensor, f"{_NAME}.{name}")
        for name, tensor in (
            ("count", torch.tensor([count], dtype=torch.float64, device=x.device)),
            ("mean", mean.double().unsqueeze(0)),
            ("invstd", invstd.unsqueeze(0)),
        )
    ]
    counts, means, invstds = (result(handle) for handle in under_way)
    return _merge(counts, means, invstds, eps)


def _merge(
    counts: torch.Tensor, means: torch.Tensor, invstds: torch.Tensor, eps: float
) -> _Statistics:
    """counts: [ranks]; means, invstds: [ranks, channels]."""
    total = int(counts.sum())
    if total <= 1:
        raise ValueError(
            "SyncBatchNorm needs more than one value per channel over all ranks when training, "
            f"got {total}"
        )
    weights = (counts / total).unsqueeze(1)
    variances = (invstds.square().reciprocal() - eps).clamp_min(0)
    mean = (weights * means).sum(0)
    variance = (weights * (variances + (means - mean).square())).sum(0)
    return _Statistics(total, mean, variance)


class _Normalise(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps) * weight + bias, where mean and variance depend on the `x`
    of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        statistics: _Statistics,
        eps: float,
    ) -> torch.Tensor:
        ctx.total = statistics.total
        invstd = (statistics.variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, statistics.mean, invstd)
        wide = _wide(x)
        scale = invstd if weight is None else invstd * weight
        output = (wide - _per_channel(statistics.mean, wide)) * _per_channel(scale, wide)
        if bias is not None:
            output += _per_channel(bias, wide)
        return output.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight, mean, invstd = ctx.saved_tensors
        dy, wide = _wide(gradients[0]), _wide(x)
        xmu = wide - _per_channel(mean, wide)
        sum_dy = dy.sum(_other_dimensions(x)).double()
        sum_dy_xmu = (dy * xmu).sum(_other_dimensions(x)).double()
        dx = None
        if ctx.needs_input_grad[0]:
            total_dy, total_dy_xmu = _sum_over_ranks(sum_dy, sum_dy_xmu)
            scale = invstd if weight is None else invstd * weight
            slope = invstd.square() * total_dy_xmu / ctx.total
            dx = dy - _per_channel(total_dy / ctx.total, wide) - xmu * _per_channel(slope, wide)
            dx = (dx * _per_channel(scale, wide)).to(x.dtype)
        # From this rank's samples only: the optimizer averages over ranks.
        if weight is None:
            return dx, None, None, None, None
        return dx, (sum_dy_xmu * invstd).to(weight.dtype), sum_dy.to(weight.dtype), None, None


def _sum_over_ranks(
    sum_dy: torch.Tensor, sum_dy_xmu: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    first = allreduce_async(sum_dy, name=f"{_NAME}.sum_dy", op=Sum)
    second = allreduce_async(sum_dy_xmu, name=f"{_NAME}.sum_dy_xmu", op=Sum)
    return result(first), result(second)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all ranks. Otherwise like torch.nn.BatchNorm.

    Training on several ranks gives the result of one process with all batches concatenated. Batch
    sizes may differ between ranks, and may be 0. In eval mode and on one rank this is plain batch
    normalization. In training mode the call is collective; all ranks use their layers in the same
    order.

    Args:
        num_features: channels of the input, [batch, num_features, ...], at least 2 dimensions.
        momentum: None averages over all batches so far.
        affine: has weight and bias.
        track_running_stats: keeps mean and variance for eval mode.

    Parameters and buffers have the names of BatchNorm.

    Raises:
        ValueError: fewer dimensions, or less than two values per channel over all ranks.
        Other errors: as `allgather` and `allreduce`.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm needs an input of at least 2 dimensions, got {input.dim()}"
            )
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm has {self.num_features} features, the input has {input.shape[1]} "
                f"channels: its shape is {tuple(input.shape)}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or size() == 1:
            return super().forward(input)
        with torch.no_grad():
            statistics = _gather_statistics(_wide(input.detach()), self.eps)
            if self.track_running_stats:
                self._track(statistics)
        output: torch.Tensor = apply(
            _Normalise, input, self.weight, self.bias, statistics, self.eps
        )
        return output

    def _track(self, statistics: _Statistics) -> None:
        """As BatchNorm does: the variance that is kept is the unbiased one."""
        if self.num_batches_tracked is None or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        total, mean, variance = statistics
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        if self.running_var is not None:
            unbiased = variance * (total / (total - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
