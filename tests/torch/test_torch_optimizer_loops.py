"""Training loops that do more than zero_grad, backward and step: several backward passes and
optimizers, closures, parameters that are frozen and unfrozen. On every rank of a real job, beside
one process that has the gradients of all ranks."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from loops import both, distributed, mean, net, own, same, sgd, square
from ranks import on_ranks
from reference import process_sets
from small_models import loss_of, make_model, wrapped

import horovod.torch as hvd

Begin = Callable[[int], Double]
Zero = Callable[[torch.nn.Module, Any], None]

#: By the optimizer, by the model, by hand; to None and to zeros.
ZEROS: list[Zero] = [
    lambda model, optimizer: optimizer.zero_grad(),
    lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    lambda model, optimizer: model.zero_grad(),
    lambda model, optimizer: model.zero_grad(set_to_none=False),
]


# ---- gradients that are dropped


@on_ranks(2, 3)
def test_gradients_may_be_dropped_when_their_reduction_is_complete() -> None:
    for zero in ZEROS:
        pairs = both()
        for model, optimizer, loss in pairs:
            for step in range(3):
                loss(model, step).backward()  # nobody wants it
                zero(model, optimizer)
                loss(model, 10 + step).backward()
                optimizer.step()
                zero(model, optimizer)
        same(pairs[0][0], pairs[1][0])


def climb(model: torch.nn.Module, back: list[torch.Tensor]) -> None:
    """To the worst place nearby (sharpness-aware minimisation), or back."""
    with torch.no_grad():
        if back:
            for parameter, start in zip(model.parameters(), back, strict=True):
                parameter.copy_(start)
            return
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()  # type: ignore[union-attr]
        for parameter in model.parameters():
            back.append(parameter.detach().clone())
            parameter.add_(0.05 * parameter.grad / norm)  # type: ignore[operator]


@on_ranks(2, 3)
def test_sharpness_aware_minimisation_trains_as_one_process() -> None:
    for zero in ZEROS:
        pairs = both()
        for model, optimizer, loss in pairs:
            for step in range(3):
                back: list[torch.Tensor] = []
                loss(model, step).backward()
                climb(model, back)
                zero(model, optimizer)
                loss(model, step).backward()
                climb(model, back)
                optimizer.step()
                zero(model, optimizer)
        same(pairs[0][0], pairs[1][0])


def caught(generator: torch.nn.Module, judge: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return -square(judge, generator(x).detach())


def fooled(generator: torch.nn.Module, judge: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return square(judge, generator(x))


@on_ranks(2)
def test_a_gan_whose_parts_have_optimizers_of_their_own_trains_as_one_process() -> None:
    """The loss of the generator reaches the discriminator too, whose optimizer takes two passes."""
    for zero in ZEROS:
        results = []
        for is_distributed in (True, False):
            generator, judge = net(), net()
            wrap = distributed if is_distributed else sgd
            two = {"backward_passes_per_step": 2} if is_distributed else {}
            optimizers = wrap(generator), wrap(judge, **two)
            loss = own if is_distributed else mean
            for step in range(3):
                zero(judge, optimizers[1])
                loss(judge, step).backward()
                loss(judge, step, functools.partial(caught, generator)).backward()
                optimizers[1].step()
                zero(generator, optimizers[0])
                loss(judge, step, functools.partial(fooled, generator)).backward()
                optimizers[0].step()
            results.append((generator, judge))
        for ours, theirs in zip(*results, strict=True):
            same(ours, theirs)


def penalised(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(square(model, x), x, create_graph=True)
    return square(model, x) + (slope.norm(dim=1) - 1).square().mean()


@on_ranks(2)
def test_gradient_penalties_and_graphs_of_gradients_train_as_one_process() -> None:
    pairs = both()
    for model, optimizer, loss in pairs:
        for step in range(3):
            loss(model, step, penalised).backward(create_graph=step == 1)
            for parameter in model.parameters():  # clipping by hand
                parameter.grad = parameter.grad.detach().clamp(-0.05, 0.05)  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()
    same(pairs[0][0], pairs[1][0])


@on_ranks(2)
def test_two_optimizers_of_one_model_train_as_one_process() -> None:
    results = []
    for is_distributed in (True, False):
        model = net()
        parts = [model[0], model[2]]
        optimizers: list[Any] = [sgd(part) for part in parts]
        if is_distributed:
            optimizers = [hvd.DistributedOptimizer(one) for one in optimizers]
        for step in range(4):
            (own if is_distributed else mean)(model, step).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=step % 2 == 0)
        results.append(model)
    same(*results)


def test_zero_grad_is_an_error_only_while_gradients_are_on_their_way(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model).backward()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.zero_grad(set_to_none=False)
    model[0](torch.ones(5, 3)).sum().backward()
    with pytest.raises(AssertionError, match=r"race.* did not reach '2.weight', '2.bias'; call"):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()


def test_a_second_pass_without_zero_grad_is_still_too_many(double: Begin) -> None:
    double(2)
    for change in (lambda gradient: None, lambda gradient: gradient.mul_(0.5)):
        model = make_model()
        optimizer = wrapped(model)
        loss_of(model).backward()
        for parameter in model.parameters():
            change(parameter.grad)
        with pytest.raises(AssertionError, match="more than 1 time"):
            loss_of(model).backward()
        optimizer.zero_grad()


# ---- closures, and steps without a reduction


@on_ranks(2)
def test_a_closure_is_not_reduced_again_inside_skip_synchronize() -> None:
    model, alone = net(), net()
    optimizer, reference = distributed(model, op=hvd.Sum), sgd(alone)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = own(model, 0)
        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    for _ in range(2):
        with warnings.catch_warnings(), optimizer.skip_synchronize():
            warnings.simplefilter("error")
            optimizer.step(closure)
        reference.zero_grad()
        (hvd.size() * mean(alone, 0)).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        reference.step()
    same(model, alone)


# ---- parameters that are frozen and unfrozen

#: Which layers are trained in which steps: from the last to the first, then another way.
PLAN = [[2], [2], [0, 2], [0, 2], [0], [], [0, 2]]


def train_by_plan(model: torch.nn.Module, optimizer: Any, loss: Callable[..., Any]) -> None:
    for step, layers in enumerate(PLAN):
        for number in (0, 2):
            for parameter in model[number].parameters():  # type: ignore[index]
                parameter.requires_grad = number in layers
        optimizer.zero_grad()
        if layers:
            loss(model, step).backward()
        optimizer.step()


def frozen_at_first(model: torch.nn.Module) -> torch.nn.Module:
    for parameter in model[0].parameters():  # type: ignore[index]
        parameter.requires_grad = False
    return model


@on_ranks(2, 3)
def test_unfrozen_parameters_are_reduced_and_frozen_ones_are_not() -> None:
    alone = net()
    train_by_plan(alone, sgd(alone), mean)
    every: list[dict[str, Any]] = [
        {},
        {"groups": 1},
        {"groups": 2},
        {"compression": hvd.Compression.bf16},
        {"gradient_predivide_factor": 2.0},
    ]
    for options in every:
        model = frozen_at_first(net())
        train_by_plan(model, distributed(model, **options), own)
        if "compression" not in options:
            same(model, alone)
        else:
            same(model, model)
    model = frozen_at_first(net())
    parameters = list(model.parameters())
    grouped = distributed(model, groups=[[parameters[0], parameters[3]], [parameters[1]]])
    train_by_plan(model, grouped, own)
    same(model, alone)


@on_ranks(2)
def test_unfrozen_parameters_are_reduced_after_several_passes_and_in_added_groups() -> None:
    results = []
    for is_distributed in (True, False):
        model = frozen_at_first(net())
        optimizer: Any = torch.optim.SGD(model[2].parameters(), lr=0.05)
        if is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
        optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.1})
        for step in range(4):
            for parameter in model[0].parameters():
                parameter.requires_grad = step in (1, 2)
            optimizer.zero_grad()
            for part in range(2):
                (own if is_distributed else mean)(model, 2 * step + part).backward()
            optimizer.step()
        results.append(model)
    same(*results)


@on_ranks(2, 4)
def test_unfrozen_parameters_move_alike_with_adasum() -> None:
    model = frozen_at_first(net())
    train_by_plan(model, distributed(model, op=hvd.Adasum), own)
    same(model, model)
    assert not torch.equal(model[0].weight, net()[0].weight)


@on_ranks(3)
def test_unfrozen_parameters_are_reduced_on_process_sets() -> None:
    with process_sets([0, 2]) as sets:
        if not sets or not sets[0].included():
            return
        model = frozen_at_first(net())
        train_by_plan(model, distributed(model, process_set=sets[0]), own)
        for parameter in model.parameters():
            rows = hvd.allgather(parameter.detach().reshape(1, -1), process_set=sets[0])
            assert torch.equal(rows[0], rows[1])


@on_ranks(2)
def test_unfrozen_embeddings_with_sparse_gradients_are_reduced() -> None:
    torch.manual_seed(1)
    embedding, linear = torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 2)
    embedding.weight.requires_grad = False
    model = torch.nn.Sequential(embedding, linear)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        embedding.weight.requires_grad = step in (1, 3)
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank(), hvd.rank() + 2])).square().sum().backward()
        optimizer.step()
    same(model, model)


def test_frozen_parameters_are_not_sent_and_keep_no_gradient(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    for trained in (True, False, False, True):
        for parameter in model[2].parameters():
            parameter.requires_grad = trained
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        sent = [operation.name for operation in core.log if operation.count]
        core.names()
        last = {"allreduce.2.weight", "allreduce.2.bias"}
        assert last & set(sent) == (last if trained else set())
        assert (model[2].weight.grad is not None) == trained


def test_a_parameter_unfrozen_in_the_middle_of_a_round_belongs_to_it(double: Begin) -> None:
    core = double(2)
    model = make_model()
    for parameter in model[2].parameters():
        parameter.requires_grad = False
    optimizer = wrapped(model, op=hvd.Sum)
    model[0](torch.ones(5, 3)).sum().backward()
    for parameter in model[2].parameters():
        parameter.requires_grad = True
    model[2](torch.ones(5, 4)).sum().backward()
    sent = [operation.name for operation in core.log if operation.count]
    core.names()
    assert len(sent) == 4
    assert model[2].bias.grad is not None and float(model[2].bias.grad[0]) == 10.0
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert len(core.names()) == 4


@on_ranks(2, 3)
def test_models_and_optimizers_may_be_dropped_after_other_gradients_on_each_rank() -> None:
    for _ in range(3):
        model = net()
        optimizer = distributed(model, op=hvd.Sum)
        layer, width = (model[0], 3) if hvd.rank() == 0 else (model[2], 4)
        layer(torch.ones(1, width)).sum().backward()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # makes a reference cycle
        if hvd.rank() == 0:
            del model, layer, optimizer, scheduler
            gc.collect()
        else:
            del model, layer, optimizer, scheduler
    model, alone = net(), net()
    optimizer, reference = distributed(model), sgd(alone)
    for step in range(2):
        for one, each, loss in ((model, optimizer, own), (alone, reference, mean)):
            each.zero_grad()
            loss(one, step).backward()
            each.step()
    same(model, alone)
