"""What torch builds on its process groups, over the backend "hvd" and over gloo."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_torch_distributed import both
from torch.nn.parallel import DistributedDataParallel
from torch_versions import has_torch, needs_torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

STEPS = 3


def model(width: int = 16) -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)]
    return torch.nn.Sequential(*layers)


def batch(step: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + hvd.rank()))


def step_by_step(wrapped: torch.nn.Module, optimizer: Any = None) -> None:
    optimizer = optimizer or torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(batch(step)).square().mean().backward()
        optimizer.step()


def train(wrapped: torch.nn.Module, optimizer: Any = None) -> torch.Tensor:
    """Returns the parameters after some steps."""
    step_by_step(wrapped, optimizer)
    return torch.cat([each.detach().flatten() for each in wrapped.parameters()])


@contextlib.contextmanager
def folder_of_all() -> Iterator[str]:
    """A folder, the same on all ranks, until all have left it."""
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    yield folder
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


def is_as_over_gloo(run: Callable[[Any], torch.Tensor]) -> None:
    ours, theirs = (run(group) for group in both())
    torch.testing.assert_close(ours, theirs)
    every = hvd.allgather(ours[None])
    assert bool((every == every[0]).all())


@on_ranks(2, 3)
def test_ddp_trains_as_over_gloo() -> None:
    for options in (
        {},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001},
        {"static_graph": True},
        {"find_unused_parameters": True},
    ):
        is_as_over_gloo(
            lambda group, o=options: train(
                DistributedDataParallel(model(), process_group=group, **o)
            )
        )


class Branches(torch.nn.Module):
    """Has a layer that only the last rank uses, and one that nobody uses in the second step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.own, self.last = (torch.nn.Linear(8, 8) for _ in range(3))
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        y: torch.Tensor = self.first(x)
        if hvd.rank() == hvd.size() - 1:
            y = self.own(y)
        return y if self.steps == 2 else self.last(y)


@on_ranks(2, 3)
def test_parameters_may_be_unused_on_some_ranks_or_on_all() -> None:
    is_as_over_gloo(
        lambda group: train(
            DistributedDataParallel(Branches(), process_group=group, find_unused_parameters=True)
        )
    )


@on_ranks(2)
def test_hooks_and_rounds_of_ddp_work() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def hooked(group: Any) -> torch.Tensor:
        wrapped = DistributedDataParallel(model(), process_group=group)
        wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
        return train(wrapped)

    def low_rank(group: Any, **options: Any) -> torch.Tensor:
        wrapped = DistributedDataParallel(model(), process_group=group, **options)
        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=1)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return train(wrapped)

    def accumulated(group: Any) -> torch.Tensor:
        wrapped = DistributedDataParallel(model(), process_group=group)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        for step in range(4):
            last = step % 2 == 1
            with contextlib.nullcontext() if last else wrapped.no_sync():
                wrapped(batch(step)).square().mean().backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        return torch.cat([each.detach().flatten() for each in wrapped.parameters()])

    for run in (hooked, low_rank, accumulated):
        is_as_over_gloo(run)
    for _ in range(5):  # gloo may hang: callbacks of several buckets run at any time
        ours = low_rank(both()[0], bucket_cap_mb=0.0001)
        every = hvd.allgather(ours[None])
        assert bool((every == every[0]).all())


@on_ranks(2)
def test_debug_levels_of_torch_name_parameters_without_gradients() -> None:
    for level in (dist.DebugLevel.INFO, dist.DebugLevel.DETAIL):
        both()
        dist.set_debug_level(level)
        try:
            train(DistributedDataParallel(model()))
            layers = torch.nn.ModuleDict({"used": model(), "unused": torch.nn.Linear(1, 1)})
            layers.forward = layers["used"].forward
            wrapped = DistributedDataParallel(layers)
            wrapped(batch(0)).square().mean().backward()
            with pytest.raises(RuntimeError, match=r"did not receive grad .*unused\.weight"):
                wrapped(batch(1))
        finally:
            dist.set_debug_level(dist.DebugLevel.OFF)


@on_ranks(2, 3)
def test_ranks_with_less_data_join_as_over_gloo() -> None:
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def joined(group: Any, is_sharded: bool) -> torch.Tensor:
        wrapped = DistributedDataParallel(model(), process_group=group)
        optimizer: Any = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        if is_sharded:
            optimizer = ZeroRedundancyOptimizer(
                wrapped.parameters(), torch.optim.SGD, process_group=group, lr=0.1
            )
        with Join([wrapped, optimizer] if is_sharded else [wrapped]):
            for step in range(2 + hvd.rank()):
                optimizer.zero_grad()
                wrapped(batch(step)).square().mean().backward()
                optimizer.step()
        return torch.cat([each.detach().flatten() for each in wrapped.parameters()])

    for is_sharded in (False, True):
        is_as_over_gloo(lambda group, s=is_sharded: joined(group, s))


@needs_torch("2.6", "FSDP2")
@on_ranks(2)
def test_training_of_sharded_models_is_as_over_gloo() -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def fsdp(group: Any) -> torch.Tensor:
        sharded = model()
        fully_shard(sharded, mesh=DeviceMesh.from_group(group, "cpu"))
        step_by_step(sharded)
        return torch.cat([each.full_tensor().flatten() for each in sharded.parameters()])

    is_as_over_gloo(fsdp)


@on_ranks(2)
def test_sharded_states_of_an_optimizer_are_as_over_gloo() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def zero(group: Any) -> torch.Tensor:
        wrapped = DistributedDataParallel(model(), process_group=group)
        optimizer = ZeroRedundancyOptimizer(
            wrapped.parameters(), torch.optim.Adam, process_group=group, lr=0.01
        )
        return train(wrapped, optimizer)

    is_as_over_gloo(zero)


@needs_torch("2.5", "torch.distributed.tensor")
@on_ranks(2)
def test_a_checkpoint_of_shards_is_read_again() -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    both()
    mesh = init_device_mesh("cpu", (hvd.size(),))
    whole = torch.arange(12.0).view(6, 2)
    read = {"w": distribute_tensor(torch.zeros(6, 2), mesh, [Shard(1)])}
    with folder_of_all() as folder:
        dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder)
        dcp.load(read, checkpoint_id=folder)
    assert torch.equal(read["w"].full_tensor(), whole)


@on_ranks(2)
def test_functional_collectives_are_compiled_in_one_graph() -> None:
    import torch.distributed._functional_collectives as functional

    group, size = both()[0], hvd.size()
    if not has_torch("2.6"):  # older compilers know no groups of other backends
        group = list(range(size))

    def step(x: torch.Tensor) -> torch.Tensor:
        summed = functional.all_reduce(x * 2, "sum", group)
        gathered = functional.all_gather_tensor(summed + 1, 0, group)
        part = functional.reduce_scatter_tensor(gathered, "sum", 0, group)
        if not has_torch("2.2"):
            return part
        return functional.all_to_all_single(part, None, None, group)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    expected = torch.full((2,), float((2 * size + 1) * size))
    for run in (step, compiled):
        assert torch.equal(run(torch.ones(2)), expected)


@on_ranks(2, 3)
def test_ddp_on_different_models_names_the_parameter_on_all_ranks() -> None:
    both()
    last = hvd.size() - 1
    wide = model(16 + (hvd.rank() == last))
    said = rf'parameter 0 of rank 0 is "0.weight" of shape \[16, 8\].*of rank {last}.*\[17, 8\]'
    with pytest.raises(HorovodMismatchError, match=said):
        DistributedDataParallel(wide)
    more = torch.nn.Sequential(model(), *[torch.nn.Linear(1, 1)] * (hvd.rank() == last))
    with pytest.raises(HorovodMismatchError, match=r'is missing, .*"1.weight"'):
        DistributedDataParallel(more)
    train(DistributedDataParallel(model()))


@on_ranks(2, 3)
def test_ddp_compares_no_names_and_nothing_that_it_ignores() -> None:
    both()
    named = torch.nn.Sequential()
    named.add_module(f"of_rank_{hvd.rank()}", model())
    wide = 1 + hvd.rank()
    named.add_module("own", torch.nn.Linear(1, wide, bias=False))
    named._ddp_params_and_buffers_to_ignore = ["own.weight"]
    wrapped = DistributedDataParallel(named)
    wrapped(batch(0)).sum().backward()
    assert named.own.weight.grad is not None
