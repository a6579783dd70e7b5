"""Training with parameters in device memory gives the numbers of training on the host."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_ranks import needs_stand_ins, on_ranks, run_alone, tell
from stand_in_device import NAME, announce, driver, load, on_own_streams, stream_of

import horovod.torch as hvd
from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError, HorovodMismatchError
from horovod.torch._allreduce import allreduce_all_async_

EVERYWHERE = (1, 2, 4)
#: A job of one rank reduces nothing, so its optimizer is not wrapped.
SEVERAL = (2, 4)

Optimizer = Callable[[Any], torch.optim.Optimizer]


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
    return torch.nn.Sequential(*layers)


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(5, 4, generator=generator)


def wrapped(model: torch.nn.Module, prefix: str, **options: Any) -> Any:
    named = [(f"{prefix}.{name}", one) for name, one in model.named_parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, named_parameters=named, **options)


def train(
    model: torch.nn.Module, optimizer: Any, device: str, steps: int = 3
) -> list[torch.Tensor]:
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step).to(device)).pow(2).mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def on_both(prefix: str, **options: Any) -> None:
    """Trains on the host and on the device; the parameters are then equal."""
    host = network()
    device = copy.deepcopy(host).to(NAME)
    theirs = train(host, wrapped(host, f"{prefix}.host", **options), "cpu")
    ours = train(device, wrapped(device, f"{prefix}.device", **options), NAME)
    torch.testing.assert_close(ours, theirs)


@on_ranks(*EVERYWHERE)
def test_the_optimizer_trains_as_on_the_host() -> None:
    on_both("plain")


@on_ranks(*SEVERAL)
def test_the_optimizer_with_its_options() -> None:
    on_both("fp16", compression=hvd.Compression.fp16)
    on_both("bf16", compression=hvd.Compression.bf16)
    on_both("fp16.groups", compression=hvd.Compression.fp16, num_groups=2)
    on_both("groups", num_groups=2)
    on_both("sum", op=hvd.Sum)
    on_both("adasum", op=hvd.Adasum)
    on_both("factor", gradient_predivide_factor=2.0)


@on_ranks(*SEVERAL)
def test_the_runtime_converts_gradients_where_it_packs_them() -> None:
    def refuse(tensor: torch.Tensor) -> Any:
        raise AssertionError(f"a copy of {tuple(tensor.shape)} is converted by torch")

    model = network().to(NAME)
    optimizer = wrapped(model, "converted", compression=hvd.Compression.bf16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hvd.Compression.bf16, "compress", staticmethod(refuse))
        train(model, optimizer, NAME, steps=1)
    model.zero_grad()
    for parameter in model.parameters():  # 1 + 2^-9 needs more bits than bfloat16 has
        (parameter * (1 + 2**-9)).sum().backward()
    optimizer.synchronize()
    for parameter in model.parameters():
        assert parameter.grad is not None and bool((parameter.grad == 1).all())


@on_ranks(*SEVERAL)
def test_a_backward_pass_does_not_read_gradients_that_are_being_reduced() -> None:
    model = network().to(NAME)
    optimizer = wrapped(model, "one by one")
    for parameter in model.parameters():
        parameter.sum().backward()
    optimizer.synchronize()
    for parameter in model.parameters():
        assert parameter.grad is not None and bool((parameter.grad == 1).all())


@on_ranks(2)
def test_ranks_that_convert_by_themselves_reduce_with_the_runtime() -> None:
    converts = hvd.rank() == 1
    gradient = torch.full((5,), 2049.0, device=NAME)
    wire = gradient if converts else gradient.half()
    sent_as = core.DTYPES["float16"] if converts else None
    batch = allreduce_all_async_(["allreduce.mixed"], [wire], hvd.Sum, sent_as=sent_as)
    assert batch is not None
    batch.finish()
    assert wire.tolist() == [4096] * 5


@on_ranks(*SEVERAL)
def test_gradients_of_a_bundle_are_submitted_by_one_call() -> None:
    gradients: list[Any] = [
        torch.ones(3, device=NAME),
        [torch.ones(2, device=NAME) for _ in range(2)],
    ]
    names = ["allreduce.one", "grouped_allreduce.two"]
    batch = allreduce_all_async_(names, gradients, hvd.Sum)
    assert batch is not None
    batch.finish()
    assert gradients[0].tolist() == [hvd.size()] * 3


@on_ranks(*SEVERAL)
def test_backward_on_another_stream() -> None:
    model = network().to(NAME)
    optimizer = wrapped(model, "stream")
    inputs = batch(0).to(NAME)
    stream = torch.Stream(NAME)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        weights = [parameter.detach().cpu() for parameter in model.parameters()]
    torch.accelerator.current_stream().wait_stream(stream)
    for mine in weights:
        everywhere = hvd.allgather(mine.unsqueeze(0))
        assert bool((everywhere == everywhere[0]).all())


@on_ranks(*SEVERAL)
def test_gradients_of_one_optimizer_are_computed_on_two_streams() -> None:
    for options in ({}, {"compression": hvd.Compression.fp16}, {"num_groups": 1}):
        model = torch.nn.ModuleList([network(), network()]).to(NAME)
        optimizer = wrapped(model, f"branches.{len(options)}.{[*options]}", **options)
        inputs = batch(0).to(NAME)
        on_own_streams(model, inputs).sum().backward()
        optimizer.step()
        first, second = ([p.detach().cpu() for p in branch.parameters()] for branch in model)
        torch.testing.assert_close(first, second)


@on_ranks(*SEVERAL)
def test_a_bundle_waits_for_its_other_operations_after_an_error() -> None:
    rows = 3 if hvd.rank() == 0 else 2
    gradients: list[Any] = [torch.ones(rows, device=NAME), torch.ones(4000, device=NAME)]
    batch = allreduce_all_async_(["allreduce.bad", "allreduce.good"], gradients, hvd.Sum)
    assert batch is not None
    with pytest.raises(HorovodMismatchError):
        batch.finish()
    assert gradients[1].tolist() == [hvd.size()] * 4000


@on_ranks(*SEVERAL)
def test_two_models_on_two_streams() -> None:
    streams = [torch.Stream(NAME), torch.Stream(NAME)]
    models = [network().to(NAME), network().to(NAME)]
    optimizers = [wrapped(model, f"two.{i}") for i, model in enumerate(models)]
    inputs = batch(0).to(NAME)
    for stream in streams:
        stream.wait_stream(torch.accelerator.current_stream())
    for _ in range(2):
        for stream, model, optimizer in zip(streams, models, optimizers, strict=True):
            with stream:
                optimizer.zero_grad()
                model(inputs).pow(2).mean().backward()
                optimizer.step()
    found = []
    for stream, model in zip(streams, models, strict=True):
        with stream:
            found.append([parameter.detach().cpu() for parameter in model.parameters()])
    torch.testing.assert_close(found[0], found[1])
    for stream in streams:
        torch.accelerator.current_stream().wait_stream(stream)


@on_ranks(*SEVERAL)
def test_mixed_precision_with_a_scaler() -> None:
    model = network().to(NAME)
    optimizer = wrapped(model, "amp")
    scaler = torch.amp.GradScaler(NAME, init_scale=256.0)  # type: ignore[attr-defined]
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast(NAME, dtype=torch.bfloat16):
            output = model(batch(step).to(NAME))
        loss = output.float().pow(2).mean()
        if step == 1 and hvd.rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 128.0  # one step was skipped, on all ranks
    for parameter in model.parameters():
        everywhere = hvd.allgather(parameter.detach().cpu().unsqueeze(0))
        assert bool((everywhere == everywhere[0]).all())


@on_ranks(*EVERYWHERE)
def test_sparse_tensors_are_reduced_on_the_device() -> None:
    rank, size = hvd.rank(), hvd.size()
    indices, values = torch.tensor([[0, rank]]), torch.ones(2, 3)
    for op in (hvd.Sum, hvd.Average):
        made = []
        for device in ("cpu", NAME):
            sparse = torch.sparse_coo_tensor(indices.to(device), values.to(device), (size, 3))
            made.append(hvd.sparse_allreduce_async(sparse, f"sparse.{device}.{op}", op)())
        host, ours = made
        assert ours.device.type == NAME and ours.is_coalesced() and ours.shape == host.shape
        assert ours.indices().tolist() == host.indices().tolist()
        assert ours.values().tolist() == host.values().tolist()


@on_ranks(*SEVERAL)
def test_sparse_gradients_are_reduced_on_the_device() -> None:
    gradients = []
    for device in ("cpu", NAME):
        model = torch.nn.Embedding(5, 2, sparse=True).to(device)
        optimizer = wrapped(model, f"embedding.{device}")
        model(torch.tensor([hvd.rank(), 4]).to(device)).sum().backward()
        optimizer.synchronize()
        gradients.append(model.weight.grad)
    host, ours = gradients
    assert host is not None and ours is not None
    assert ours.is_sparse and ours.device.type == NAME
    assert ours.indices().tolist() == host.indices().tolist()
    assert ours.values().tolist() == host.values().tolist()


def tell_what_a_commit_after_the_end_has_saved() -> None:
    load()
    announce()
    hvd.init()
    torch.accelerator.set_device_index(hvd.local_rank())
    model = torch.nn.Linear(1, 1, bias=False).to(NAME)
    torch.nn.init.ones_(model.weight)
    state = hvd.elastic.TorchState(model)
    state.commit()
    if hvd.rank() == 1:
        return
    with pytest.raises(HorovodInternalError):
        while True:
            hvd.allreduce(torch.ones(1), name="x")
    torch.nn.init.zeros_(model.weight)  # as an operation that was given up might
    with pytest.raises(HorovodInternalError):
        state.commit()
    state.restore()
    tell(model.weight.item())


@needs_stand_ins
def test_a_commit_after_the_end_of_the_job_saves_nothing() -> None:
    job = run_alone(2, tell_what_a_commit_after_the_end_has_saved)
    assert job.told[0] == [1.0], job.output


@on_ranks(*SEVERAL)
def test_batch_normalization_over_all_ranks() -> None:
    data = torch.randn(6, 3, generator=torch.Generator().manual_seed(hvd.rank()))
    results = []
    for device in ("cpu", NAME):
        layer = hvd.SyncBatchNorm(3).to(device)
        inputs = data.clone().to(device).requires_grad_()
        layer(inputs).pow(3).sum().backward()
        assert inputs.grad is not None
        results.append([inputs.grad.cpu(), layer.running_mean.cpu(), layer.running_var.cpu()])
    torch.testing.assert_close(results[1], results[0])


@on_ranks(*EVERYWHERE)
def test_parameters_and_optimizer_state_are_broadcast() -> None:
    rank = hvd.rank()
    model = torch.nn.Linear(3, 2).to(NAME)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(rank + 1)
    mixed = {**model.state_dict(), "on_host": torch.full((2,), float(rank))}
    hvd.broadcast_parameters(mixed, 0)
    assert mixed["on_host"].tolist() == [0, 0]
    assert all(bool((parameter == 1).all()) for parameter in model.parameters())

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1))
    if rank == 0:
        model(torch.ones(1, 3, device=NAME)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    states = list(optimizer.state.values())
    assert len(states) == 2 and optimizer.param_groups[0]["lr"] == 0.1
    for parameter, state in optimizer.state.items():
        assert state["exp_avg"].device == parameter.device  # the GPU of this rank
        assert state["step"].device.type == "cpu" and state["step"].item() == 1
        torch.testing.assert_close(state["exp_avg"].cpu(), torch.full(parameter.shape, 0.1))


@on_ranks(*SEVERAL)
def test_a_rank_that_trains_other_parameters_is_an_error_on_all() -> None:
    model = network().to(NAME)
    optimizer = wrapped(model, "frozen")
    if hvd.rank() == 1:
        next(model.parameters()).requires_grad_(False)
    with pytest.raises(HorovodMismatchError, match="requires a gradient on rank"):
        train(model, optimizer, NAME, 1)


@on_ranks(*SEVERAL)
def test_ranks_without_data_join() -> None:
    for step in range(hvd.rank() + 1):
        made = hvd.allreduce(torch.ones(3, device=NAME), name=f"join.{step}", op=hvd.Sum)
        assert made.tolist() == [hvd.size() - step] * 3
    hvd.join()


@on_ranks(1, 2)
def test_compiled_functions_keep_operations_in_their_graph() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def reduced(tensor: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(tensor * 2, name="compiled", op=hvd.Sum) + 1

    assert reduced(torch.ones(3, device=NAME)).tolist() == [2 * hvd.size() + 1] * 3


@on_ranks(1, 2)
def test_an_operation_inside_a_capture_is_refused() -> None:
    tensor = torch.ones(3, device=NAME)
    stream = torch.Stream(NAME)
    stream.wait_stream(torch.accelerator.current_stream())
    device = torch.device(NAME, hvd.local_rank())
    with stream:
        handle = ctypes.c_void_p(stream_of(device))
        context = ctypes.c_void_p()
        calls = driver()
        calls.cuDevicePrimaryCtxRetain(ctypes.byref(context), device.index)
        calls.cuCtxPushCurrent_v2(context)
        calls.cuStreamBeginCapture_v2(handle, 0)
        try:
            with pytest.raises(ValueError, match=r"allreduce.*captur"):
                hvd.allreduce_async_(tensor, name="captured")
        finally:
            graph = ctypes.c_void_p()
            calls.cuStreamEndCapture(handle, ctypes.byref(graph))
            calls.cuCtxPopCurrent_v2(ctypes.byref(context))
    assert hvd.allreduce(tensor, name="captured", op=hvd.Sum).tolist() == [hvd.size()] * 3


@on_ranks(2, HOROVOD_ENABLE_ASYNC_COMPLETION="0")
def test_the_host_waits_where_it_is_told_to() -> None:
    handle = hvd.allreduce_async(torch.ones(3, device=NAME), name="x", op=hvd.Sum)
    made = hvd.synchronize(handle)
    with torch.Stream(NAME):  # needs no wait: the result is there
        assert made.tolist() == [2, 2, 2]


@on_ranks(2, 4, FAKE_CUDA_DEVICES="1")
def test_processes_on_one_gpu_read_each_others_memory() -> None:
    before = core.counters()["batches.ipc"]
    on_both("ipc")
    on_both("ipc.fp16", compression=hvd.Compression.fp16)
    rank, size = hvd.rank(), hvd.size()
    gathered = hvd.allgather(torch.full((rank + 1,), rank, device=NAME))
    assert gathered.tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert hvd.broadcast(torch.full((2,), rank, device=NAME), 1).tolist() == [1, 1]
    assert hvd.alltoall(torch.arange(float(size)).to(NAME)).tolist() == [rank] * size
    rows = hvd.reducescatter(torch.ones(size, 2, device=NAME), op=hvd.Sum)
    assert rows.tolist() == [[size, size]]
    large = torch.ones(5_000_000, device=NAME)
    assert bool((hvd.allreduce(large, op=hvd.Sum).cpu() == size).all())
    assert core.counters()["batches.ipc"] >= before + 5
    assert core.counters()["batches.staged"] == 0


@on_ranks(2, HOROVOD_GPU_OPERATIONS="host")
def test_everything_works_through_host_memory() -> None:
    on_both("staged")
    rank = hvd.rank()
    assert hvd.allgather(torch.full((rank + 1,), rank, device=NAME)).tolist() == [0, 1, 1]
    assert hvd.broadcast(torch.full((2,), rank, device=NAME), 1).tolist() == [1, 1]
