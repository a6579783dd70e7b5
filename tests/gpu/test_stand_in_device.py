"""The device of the tests itself: torch computes on it as on a GPU, and the stand-in driver finds
work that does not wait for what it needs."""

from __future__ import annotations

import copy

import torch
from gpu_ranks import needs_stand_ins, on_ranks, run_alone
from stand_in_device import NAME, stream_of


@on_ranks(1)
def test_tensors_are_in_device_memory() -> None:
    tensor = torch.arange(6.0).to(NAME).view(2, 3)
    assert (tensor.device.type, tensor.is_cpu, tensor.is_cuda) == (NAME, False, False)
    assert tensor.data_ptr() != 0
    assert tensor.t().contiguous().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (tensor[:, 1:] + 1).tolist() == [[2, 3], [5, 6]]
    tensor[:, 1] = 7
    assert tensor.tolist() == [[0, 7, 2], [3, 7, 5]]
    assert copy.deepcopy(tensor).half().tolist() == tensor.tolist()
    assert tensor.to("cpu", torch.float64).sum() == 24


@on_ranks(1)
def test_training_reaches_the_numbers_of_the_host() -> None:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
    host = torch.nn.Sequential(*layers)
    device = copy.deepcopy(host).to(NAME)
    data = torch.randn(5, 4)
    for model, inputs in ((host, data), (device, data.to(NAME))):
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
    for ours, theirs in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.cpu())


@on_ranks(1)
def test_hooks_run_with_the_stream_of_the_forward_pass() -> None:
    device = torch.device(NAME, 0)
    stream = torch.Stream(device)
    weight = torch.ones(3, device=device, requires_grad=True)
    seen: list[int] = []
    weight.register_post_accumulate_grad_hook(lambda one: seen.append(stream_of(one.device)))
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        (weight * 2).sum().backward()
    assert seen == [stream.stream_id]


def read_on_another_stream() -> None:
    import stand_in_device

    stand_in_device.load()
    tensor = torch.ones(3, device=NAME)
    with torch.Stream(NAME):
        print(tensor.cpu())


def write_to_memory_that_is_used_elsewhere() -> None:
    import stand_in_device

    stand_in_device.load()
    tensor, stream = torch.ones(1000, device=NAME), torch.Stream(NAME)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        twice = tensor + tensor  # noqa: F841
        copied = tensor.clone()  # noqa: F841
    del tensor  # without record_stream
    torch.zeros(1000, device=NAME)


@needs_stand_ins
def test_missing_waits_end_the_process() -> None:
    for body in (read_on_another_stream, write_to_memory_that_is_used_elsewhere):
        job = run_alone(1, body)
        assert job.returncode != 0, job.output
        assert "fake_cuda: " in job.output, job.output
        assert "without waiting for an event after it" in job.output, job.output


@on_ranks(1)
def test_autocast_and_its_scaler_work_as_on_gpus() -> None:
    model = torch.nn.Linear(4, 2, device=NAME)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler(NAME, init_scale=8.0)  # type: ignore[attr-defined]
    with torch.autocast(NAME, dtype=torch.bfloat16):
        output = model(torch.ones(3, 4, device=NAME))
    assert output.dtype is torch.bfloat16
    loss = output.float().sum()
    before = model.bias.detach().cpu()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (before - model.bias.detach().cpu()).tolist() == [1.5, 1.5]
