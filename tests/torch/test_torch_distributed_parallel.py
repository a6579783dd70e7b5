"""Parallelism of torch that needs more than all-reduces, over the backend "hvd" and over gloo:
pipelines, meshes, compiled models, checkpoints in the background."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_jobs import watch
from ranks import on_ranks
from test_torch_distributed import both
from test_torch_distributed_training import batch, folder_of_all, is_as_over_gloo, model, train
from torch.nn.parallel import DistributedDataParallel
from torch_versions import needs_torch

import horovod.torch as hvd

NEEDS_PIPELINES = needs_torch("2.6", "the interface of pipelines")
NEEDS_FSDP2 = needs_torch("2.6", "FSDP2")


def through_pipeline(group: Any, name: str, stages_per_rank: int) -> torch.Tensor:
    """Returns the gradients of this rank's stages after one step."""
    from torch.distributed import pipelining

    rank, size = hvd.rank(), hvd.size()
    places = [rank + size * i for i in range(stages_per_rank)]
    torch.manual_seed(rank)
    parts = [torch.nn.Linear(6, 6) for _ in places]
    stages = [
        pipelining.PipelineStage(
            part, place, size * stages_per_rank, torch.device("cpu"), group=group
        )
        for part, place in zip(parts, places, strict=True)
    ]
    schedule = getattr(pipelining, name)(
        stages if stages_per_rank > 1 else stages[0], 6, loss_fn=torch.nn.functional.mse_loss
    )
    whole = torch.randn(12, 6, generator=torch.Generator().manual_seed(5))
    given = [whole] if rank == 0 else []
    wanted = {"target": whole.sin()} if rank == size - 1 else {}
    schedule.step(*given, **wanted)
    return torch.cat([p.grad.flatten() for part in parts for p in part.parameters()])


@NEEDS_PIPELINES
@on_ranks(2, 3)
def test_pipelines_give_the_gradients_of_gloo() -> None:
    for name, stages in (("ScheduleGPipe", 1), ("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2)):
        ours, theirs = (through_pipeline(group, name, stages) for group in both())
        torch.testing.assert_close(ours, theirs)
        assert bool(ours.any())


@NEEDS_FSDP2
@on_ranks(4)
def test_models_are_sharded_in_a_mesh_of_two_dimensions() -> None:
    """Replicas by shards, and shards of layers by data: groups that only their members make."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    both()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    assert mesh["inner"].get_group().size() == 2
    assert dist.get_backend(mesh["outer"].get_group()) == "hvd"
    replicated = model()
    fully_shard(replicated, mesh=mesh)
    layers = model()
    parallelize_module(layers, mesh["inner"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(layers, mesh=mesh["outer"])
    alone = model()
    for each, ranks in ((replicated, range(4)), (layers, (0, 2))):
        given = [torch.randn(4, 8, generator=torch.Generator().manual_seed(r)) for r in range(4)]
        own = given[hvd.rank() if each is replicated else hvd.rank() // 2 * 2]
        each(own).square().mean().backward()
        alone.zero_grad()
        torch.stack([alone(given[r]).square().mean() for r in ranks]).mean().backward()
        for sharded, plain in zip(each.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(sharded.grad.full_tensor(), plain.grad)


@needs_torch("2.6", "compiled DDP on CPUs")
@on_ranks(2)
def test_compiled_models_train_as_over_gloo() -> None:
    def compiled(group: Any) -> torch.Tensor:
        torch._dynamo.reset()
        wrapped = DistributedDataParallel(model(), process_group=group)
        return train(torch.compile(wrapped, backend="aot_eager"))

    is_as_over_gloo(compiled)


@needs_torch("2.6", "collectives that change their tensor in one graph")
@on_ranks(2)
def test_collectives_of_scripts_are_compiled_in_one_graph() -> None:
    compile_in_one_graph("aot_eager")


@needs_torch("2.6", "collectives that change their tensor in one graph")
@pytest.mark.slow
@on_ranks(2)
def test_collectives_of_scripts_are_compiled_to_machine_code() -> None:
    if shutil.which(os.environ.get("CXX", "g++")):
        watch(300)
        compile_in_one_graph("inductor")


def compile_in_one_graph(backend: str) -> None:
    both()
    torch._dynamo.reset()

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        every = torch.empty(2 * hvd_size)
        dist.all_gather_into_tensor(every, y)
        return every + 1

    hvd_size = hvd.size()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    assert compiled(torch.ones(2)).tolist() == [2.0 * hvd_size + 1] * (2 * hvd_size)


@needs_torch("2.5", "checkpoints in the background")
@on_ranks(2)
def test_a_checkpoint_is_written_in_the_background() -> None:
    import torch.distributed.checkpoint as dcp

    both()
    wrapped = DistributedDataParallel(model())
    own = dist.new_group()  # another thread uses it
    before = [each.detach().clone() for each in wrapped.parameters()]
    with folder_of_all() as folder:
        saving = dcp.async_save(wrapped.state_dict(), checkpoint_id=folder, process_group=own)
        wrapped(batch(0)).square().mean().backward()  # on this thread, meanwhile
        saving.result()
        with torch.no_grad():
            for each in wrapped.parameters():
                each.zero_()
        dcp.load(wrapped.state_dict(), checkpoint_id=folder)
    assert all(torch.equal(a, b) for a, b in zip(wrapped.parameters(), before, strict=True))
