"""Training on all ranks: bit-equal there, and equal to one process with the large batch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from ranks import MANY, NARROW, on_ranks
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch_versions import SCALES_ON_CPUS, needs_torch

import horovod.torch as hvd

EVERYWHERE = (1, 2, 3, 4, MANY)
ROWS = 4  # of each rank in each step


def make_model(dtype: torch.dtype = torch.float64) -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8), torch.nn.Linear(8, 2)
    ).to(dtype)


def batch(step: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all ranks together; rank r has rows r * ROWS to (r + 1) * ROWS."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS * hvd.size(), 6, generator=generator, dtype=torch.float64)
    y = torch.stack([x.sum(1), x.square().sum(1)], 1) / 6
    return x.to(dtype), y.to(dtype)


def mine(rows: torch.Tensor) -> torch.Tensor:
    return rows[hvd.rank() * ROWS : (hvd.rank() + 1) * ROWS]


def assert_bit_equal_everywhere(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        rows = hvd.allgather(tensor.detach().reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


def mean_square(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(x) - y).square().mean()
    return loss


Make = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def train_and_compare(
    make: Make = sgd,
    steps: int = 20,
    clip: float | None = None,
    loose: float = 1e-9,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> None:
    """Trains both ways, then compares."""
    model, alone = make_model(dtype), make_model(dtype)
    optimizer = hvd.DistributedOptimizer(
        make(model.parameters()), named_parameters=model.named_parameters(), **options
    )
    reference = make(alone.parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(steps):
        x, y = batch(step, dtype)
        optimizer.zero_grad()
        mean_square(model, mine(x), mine(y)).backward()
        reference.zero_grad()
        mean_square(alone, x, y).backward()
        if clip is not None:
            ours = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            theirs = torch.nn.utils.clip_grad_norm_(alone.parameters(), clip)
            torch.testing.assert_close(ours, theirs, rtol=loose, atol=loose)
        optimizer.step()
        reference.step()
    assert_bit_equal_everywhere(model.parameters())
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=loose, atol=loose)


@on_ranks(*EVERYWHERE)
def test_100_steps_equal_one_process_with_the_large_batch() -> None:
    train_and_compare(steps=100)
    train_and_compare(steps=100, dtype=torch.float32, loose=1e-3)


@on_ranks(*EVERYWHERE, NARROW)
def test_other_optimizers_and_options_equal_it_too() -> None:
    train_and_compare(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    train_and_compare(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True))
    train_and_compare(groups=2)
    train_and_compare(groups=1, gradient_predivide_factor=2.0)
    train_and_compare(gradient_predivide_factor=float(hvd.size()))
    train_and_compare(clip=0.1)
    train_and_compare(compression=hvd.Compression.fp16, loose=0.05)
    train_and_compare(compression=hvd.Compression.bf16, loose=0.2, clip=1.0)


@on_ranks(2, 3)
def test_summed_passes_equal_it_too() -> None:
    model, alone = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), backward_passes_per_step=2)
    reference = sgd(alone.parameters())
    for step in range(10):
        optimizer.zero_grad()
        reference.zero_grad()
        for part in range(2):
            x, y = batch(2 * step + part)
            mean_square(model, mine(x), mine(y)).backward()
            mean_square(alone, x, y).backward()
        optimizer.step()
        reference.step()
    assert_bit_equal_everywhere(model.parameters())
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other)


class Branching(torch.nn.Module):
    """Even ranks use one branch, odd ranks the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.trunk = torch.nn.Linear(6, 8)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)])
        self.unused = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.branches[hvd.rank() % 2](self.trunk(x).tanh())
        return result


@on_ranks(2, 3)
def test_ranks_may_reach_different_parameters() -> None:
    for options in ({}, {"groups": 2}, {"backward_passes_per_step": 2}):
        model = Branching().double()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), **options)
        for step in range(5):
            x, y = batch(step)
            optimizer.zero_grad()
            mean_square(model, mine(x), mine(y)).backward()
            optimizer.synchronize()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            assert_bit_equal_everywhere([norm])
            with optimizer.skip_synchronize():
                optimizer.step()
        assert_bit_equal_everywhere(model.parameters())


@on_ranks(2, 3)
def test_some_ranks_may_have_no_backward_pass() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()))
    for step in range(5):
        x, y = batch(step)
        optimizer.zero_grad()
        if hvd.rank() == step % hvd.size():
            mean_square(model, mine(x), mine(y)).backward()
        optimizer.step()
    assert_bit_equal_everywhere(model.parameters())


@needs_torch(SCALES_ON_CPUS, "a GradScaler for CPUs")
@on_ranks(2, 3)
def test_all_ranks_skip_the_same_scaled_steps() -> None:
    """One rank overflows; all must skip, also when a parameter is unused or a pass is missing."""
    for make, passes in ((make_model, 1), (make_model, 2), (Branching, 1)):
        model = make().double()
        optimizer = hvd.DistributedOptimizer(
            sgd(model.parameters()), backward_passes_per_step=passes
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1000)
        for step in range(8):
            x, y = batch(step)
            optimizer.zero_grad()
            loss = mean_square(model, mine(x), mine(y))
            if step % 3 == 1 and hvd.rank() == step % hvd.size():
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            before = [parameter.detach().clone() for parameter in model.parameters()]
            if step % 2:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            skipped = all(map(torch.equal, before, model.parameters()))
            assert skipped == (step % 3 == 1)
        assert scaler.get_scale() == 2.0
        assert_bit_equal_everywhere(model.parameters())


@on_ranks(2)
def test_low_precision_and_autocast_train() -> None:
    model = make_model(torch.float32)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()))
    for step in range(5):
        x, y = batch(step, torch.float32)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mean_square(model, mine(x), mine(y))
        loss.backward()
        optimizer.step()
    assert_bit_equal_everywhere(model.parameters())
    half = make_model(torch.bfloat16)
    optimizer = hvd.DistributedOptimizer(sgd(half.parameters()))
    for step in range(5):
        x, y = batch(step, torch.bfloat16)
        optimizer.zero_grad()
        mean_square(half, mine(x), mine(y)).backward()
        optimizer.step()
    assert_bit_equal_everywhere(half.parameters())


@on_ranks(2)
def test_compiled_models_equal_one_process() -> None:
    model, alone = make_model(), make_model()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), named_parameters=model.named_parameters()
    )
    reference = sgd(alone.parameters())
    for step in range(5):
        x, y = batch(step)
        optimizer.zero_grad()
        mean_square(compiled, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        mean_square(alone, x, y).backward()
        reference.step()
    assert_bit_equal_everywhere(model.parameters())
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@on_ranks(2)
def test_operations_inside_compiled_functions() -> None:
    def double_sum(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x * 2, op=hvd.Sum, name="compiled") + 1

    compiled = torch.compile(double_sum, backend="aot_eager")
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert compiled(torch.ones(2)).tolist() == [2 * hvd.size() + 1] * 2


@on_ranks(2, 3, NARROW)
def test_s14_sparse_gradients_equal_one_process() -> None:
    """Two rows for each rank, some of them shared by ranks; dense or sparse on their way."""
    for dense, op in ((True, hvd.Sum), (False, hvd.Sum), (False, hvd.Average)):
        torch.manual_seed(1)
        embedding = torch.nn.Embedding(10, 3, sparse=True)
        alone = torch.nn.Embedding(10, 3, sparse=True)
        alone.load_state_dict(embedding.state_dict())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(embedding.parameters(), lr=0.1), sparse_as_dense=dense, op=op
        )
        reference = torch.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(5):
            rows = torch.tensor([(step + r) % 10 for r in range(hvd.size() + 1)])
            optimizer.zero_grad()
            embedding(rows[hvd.rank() : hvd.rank() + 2]).square().sum().backward()
            optimizer.step()
            reference.zero_grad()
            loss = torch.stack([alone(rows[r : r + 2]) for r in range(hvd.size())]).square().sum()
            (loss / (hvd.size() if op == hvd.Average else 1)).backward()
            reference.step()
        assert_bit_equal_everywhere(embedding.parameters())
        torch.testing.assert_close(embedding.weight, alone.weight)


@on_ranks(2, 3)
def test_a_rank_may_miss_a_sparse_gradient_that_it_once_had() -> None:
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    torch.nn.init.zeros_(embedding.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=1.0), op=hvd.Sum
    )
    for step in range(4):
        optimizer.zero_grad()
        if step == 0 or hvd.rank() == step % hvd.size():
            embedding(torch.tensor([step])).sum().backward()
        optimizer.step()
    assert embedding.weight[:, 0].tolist() == [-hvd.size(), -1, -1, -1, 0, 0]


@on_ranks(*EVERYWHERE)
def test_parameters_of_any_root_reach_everyone() -> None:
    for root in range(hvd.size()):
        torch.manual_seed(hvd.rank())
        model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
        if hvd.rank() % 2:
            model = model.to(memory_format=torch.channels_last)
        torch.manual_seed(root)
        wanted = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
        model[1].num_batches_tracked.fill_(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        assert int(model[1].num_batches_tracked) == root
        for one, other in zip(model.parameters(), wanted.parameters(), strict=True):
            assert torch.equal(one, other)


@on_ranks(1, 2, 3)
def test_optimizer_state_of_the_root_reaches_everyone() -> None:
    for make in (
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.5, 0.6)),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
        lambda p: torch.optim.NAdam(p, lr=0.1),
    ):
        root = hvd.size() - 1
        model = make_model()
        optimizer: Any = make(model.parameters())
        if hvd.rank() == root:  # as after loading a checkpoint there
            for step in range(3):
                mean_square(model, *batch(step)).backward()
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.005
        optimizer = hvd.DistributedOptimizer(optimizer)
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        for group in optimizer.param_groups:
            assert group["lr"] == 0.005
            assert isinstance(group.get("betas", ()), tuple)
        assert len(set(hvd.allgather_object(len(optimizer.state)))) == 1
        for state in optimizer.state.values():
            assert_bit_equal_everywhere(t for t in state.values() if torch.is_tensor(t))
        optimizer.zero_grad()
        x, y = batch(9)
        mean_square(model, mine(x), mine(y)).backward()
        optimizer.step()
        assert_bit_equal_everywhere(model.parameters())


@on_ranks(2)
def test_a_fresh_optimizer_is_not_stepped_by_broadcasting() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), weight_decay=0.1))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())


@on_ranks(2)
def test_two_optimizers_on_parts_of_one_loss() -> None:
    """As in adversarial training: each steps at its turn, the other's gradients are dropped."""
    maker, judge = make_model(), torch.nn.Linear(2, 1).double()
    torch.nn.init.ones_(judge.weight)
    torch.nn.init.zeros_(judge.bias)
    first = hvd.DistributedOptimizer(sgd(maker.parameters()))
    second = hvd.DistributedOptimizer(sgd(judge.parameters()))
    for step in range(6):
        x, _ = batch(step)
        for one, other in ((first, second), (second, first)):
            one.zero_grad()
            other.zero_grad()
            judge(maker(mine(x))).sum().backward()
            one.step()
            other.synchronize()
    assert_bit_equal_everywhere([*maker.parameters(), *judge.parameters()])


@on_ranks(2)
def test_step_after_synchronize_stays_equal() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()))
    x, y = batch(1)
    mean_square(model, mine(x), mine(y)).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()
    assert_bit_equal_everywhere(model.parameters())


@on_ranks(2)
def test_data_loaders_with_workers_feed_training() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()))
    x, y = batch(1)
    loader = DataLoader(TensorDataset(mine(x), mine(y)), batch_size=1, num_workers=2)
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            mean_square(model, inputs, targets).backward()
            optimizer.step()
    assert_bit_equal_everywhere(model.parameters())


class InitAgain(Dataset[str]):
    """Its one sample is what a worker is told that calls init, as one that imports the script
    again does."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        try:
            hvd.init()
        except ValueError as error:
            return str(error)
        return "a rank"


@on_ranks(2)
def test_a_worker_of_a_data_loader_that_calls_init_is_told_that_it_is_no_rank() -> None:
    for context in ("fork", "spawn"):
        loader = DataLoader(
            InitAgain(), batch_size=None, num_workers=1, multiprocessing_context=context
        )
        (told,) = loader
        assert f"this process is a child of rank {hvd.rank()}, not a rank" in told
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@on_ranks(1, 2)
def test_a_forked_child_neither_hangs_nor_ends_the_job() -> None:
    import atexit

    handle = hvd.allreduce_async(torch.ones(10), op=hvd.Sum)
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # as at the end of a script, our shutdown among them
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    found = hvd.synchronize(handle)
    assert isinstance(found, torch.Tensor) and found.tolist() == [hvd.size()] * 10
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce(torch.ones(1))
        except (ValueError, RuntimeError):
            os._exit(8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
