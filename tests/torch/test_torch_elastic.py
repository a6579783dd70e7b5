"""Elastic training in PyTorch: states, and how ranks sync them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from ranks import on_ranks

import horovod.torch as hvd
from horovod.common import elastic
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic import state as states
from horovod.torch.elastic._copies import Copying

Begin = Callable[[int], Double]


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def train_once(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()


def snapshot(model: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


# ---- states


def test_restoring_undoes_training_since_the_commit(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1))
    state: Any = TorchState(model, optimizer, epoch=0)
    assert state.model is model and state.optimizer is optimizer
    train_once(model, optimizer)
    state.epoch = 1
    state.commit()
    committed = snapshot(model)
    moments = [s["exp_avg"].clone() for s in optimizer.state.values()]
    for _ in range(2):  # a restored copy is not the one that training goes on with
        train_once(model, optimizer)
        optimizer.param_groups[0]["lr"] = 0.5
        state.epoch = 2
        assert not same(snapshot(model), committed)
        state.restore()
        assert same(snapshot(model), committed)
        assert same([s["exp_avg"] for s in optimizer.state.values()], moments)
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert state.epoch == 1


def test_what_was_given_counts_as_saved(double: Begin) -> None:
    double(1)
    model = make_model()
    before = snapshot(model)
    state: Any = TorchState(model, epoch=3)
    assert state.optimizer is None
    model[0].weight.data.zero_()
    state.epoch = 4
    state.restore()
    assert same(snapshot(model), before) and state.epoch == 3


def test_restoring_forgets_reductions_that_will_never_end(double: Begin) -> None:
    """Lost ranks interrupt backward or step; training must be able to begin a new step."""
    core = double(2)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    state = TorchState(model, optimizer)
    core.error = hvd.HorovodInternalError("rank 1 was lost")
    with pytest.raises(hvd.HorovodInternalError):
        train_once(model, optimizer)
    core.error = None
    state.restore()
    train_once(model, optimizer)


def test_another_object_is_saved_when_it_is_assigned(double: Begin) -> None:
    double(1)
    state: Any = TorchState(make_model(), extra=make_model())
    other = make_model()
    torch.nn.init.ones_(other[0].weight)
    state.extra = other
    torch.nn.init.zeros_(other[0].weight)
    state.restore()
    assert state.extra is other and other[0].weight.eq(1).all()


def test_everything_the_registry_knows_is_sent_in_its_own_way(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = ElasticSampler(range(8))
    state = TorchState(model, optimizer, sampler=sampler, epoch=0)
    core.names()
    state.sync()
    names = core.names()
    assert "broadcast.0.weight" in names and "broadcast.1.running_mean" in names
    wanted = ["optimizer_state", "ElasticSampler_state", "broadcast_object"]
    assert [name for name in names if re.fullmatch(r"broadcast\..*\.t", name)] == [
        f"broadcast.{name}.t" for name in wanted
    ]


def test_the_registry_takes_other_types(double: Begin) -> None:
    double(1)

    class Counter:
        value = 0

    class CounterHandler(states.StateHandler):
        def save(self) -> None:
            self.kept = self.value.value

        def restore(self) -> None:
            self.value.value = self.kept

        def sync(self) -> None:
            self.save()

    former = states.get_handler_registry()
    states.set_handler_registry([*former, (Counter, CounterHandler)])
    try:
        counter = Counter()
        state = TorchState(counter=counter)
        counter.value = 5
        state.restore()
        assert counter.value == 0
        counter.value = 6
        state.sync()
        counter.value = 7
        state.restore()
        assert counter.value == 6
        state.on_reset()  # a handler need not care
    finally:
        states.set_handler_registry(former)
    assert states.get_handler_registry() is former


def test_a_loss_in_the_middle_of_a_sync_leaves_the_last_save_complete(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(2)
    model, other = make_model(), make_model()
    state: Any = TorchState(model, other=other, epoch=3)
    before = snapshot(model)

    def receive(handler: Any) -> None:
        if handler.value is other:
            raise hvd.HorovodInternalError("rank 0 was lost")
        torch.nn.init.zeros_(handler.value[0].weight)

    monkeypatch.setattr(states.ModelStateHandler, "receive", receive)
    with pytest.raises(hvd.HorovodInternalError):
        state.sync()
    state.restore()
    assert same(snapshot(model), before)


def test_saves_reuse_their_memory(double: Begin) -> None:
    double(1)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    state: Any = TorchState(model, optimizer)
    train_once(model, optimizer)
    state.save()
    saved = state._handlers["model"]._saved, state._handlers["optimizer"]._saved
    moment = saved[1]["state"][0]["exp_avg"]
    weight = saved[0]["0.weight"]
    train_once(model, optimizer)
    state.save()
    assert state._handlers["model"]._saved["0.weight"] is weight
    assert state._handlers["optimizer"]._saved["state"][0]["exp_avg"] is moment
    assert weight.data_ptr() != model[0].weight.data_ptr() and weight.equal(model[0].weight)
    assert state._handlers["model"]._saved._metadata == model.state_dict()._metadata


def test_copies_keep_what_is_one_object(double: Begin) -> None:
    double(1)
    shared, alone = torch.ones(2), torch.zeros(2)
    first = Copying().copied({"a": shared, "b": [shared, 1], "c": alone}, None)
    assert first["a"] is first["b"][0] and first["a"] is not shared
    second = Copying().copied({"a": alone, "b": [shared, {2}], "c": torch.ones(3)}, first)
    assert second["a"] is first["a"] and second["a"].equal(alone)
    assert second["b"][0] is not second["a"] and second["b"] == [second["b"][0], {2}]
    assert second["b"][0].equal(shared) and second["c"].equal(torch.ones(3))


def test_an_interrupted_save_is_not_restored(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(1)
    state: Any = TorchState(make_model(), epoch=0)

    def interrupted(handler: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(states.ModelStateHandler, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            state.save()
    with pytest.raises(RuntimeError, match="interrupted its last save"):
        state.restore()
    state.save()
    state.restore()


def test_schedulers_stay_the_same_objects(double: Begin) -> None:
    double(1)
    optimizer = torch.optim.SGD(make_model().parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    state: Any = TorchState(None, optimizer, scheduler=scheduler)
    optimizer.step()
    scheduler.step()
    state.commit()
    for _ in range(2):
        optimizer.step()
        scheduler.step()
        assert scheduler.last_epoch == 2 and optimizer.param_groups[0]["lr"] == 0.1
        state.restore()
        assert state.scheduler is scheduler
        assert scheduler.last_epoch == 1 and optimizer.param_groups[0]["lr"] == 1.0
    state.sync()
    assert state.scheduler is scheduler and scheduler.last_epoch == 1


def test_a_handler_says_what_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match="save"):
        states.StateHandler(1)


# ---- in a real job


@on_ranks(1, 2, 3)
def test_s17_sync_gives_everyone_rank_0s_state() -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + hvd.rank()))
    sampler = ElasticSampler(range(60))
    if hvd.rank() == 0:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        sampler.set_epoch(2)
        sampler.record_batch(0, 2)
    state: Any = TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank())
    state.sync()
    told = (
        [tensor.tolist() for tensor in model.parameters()],
        optimizer.state_dict()["state"][0]["exp_avg"].tolist(),
        optimizer.param_groups[0]["lr"],
        sampler.state_dict(),
        state.epoch,
    )
    assert all(one == told for one in hvd.allgather_object(told))
    assert (state.epoch, sampler.processed_num) == (0, 2 * hvd.size())
    state.epoch = 9
    state.restore()
    assert state.epoch == 0


@on_ranks(1, 2, 3)
def test_s17_commit_interrupts_all_when_rank_0_has_heard() -> None:
    state = TorchState(epoch=0)
    if hvd.rank() == hvd.size() - 1 and hvd.size() > 1:
        state.on_hosts_updated(1, elastic.removed)
        state.on_hosts_updated(2, elastic.added)
    state.commit()
    if hvd.rank() == 0:
        state.on_hosts_updated(1, elastic.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync
