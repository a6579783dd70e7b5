"""Elastic training in PyTorch: states, the sampler, and the loop in a real job."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from ranks import needs_job, on_ranks, run_alone, tell

import horovod.torch as hvd
from horovod.common import elastic
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic import state as states

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
    wanted = ["optimizer_state", "sampler_state", "broadcast_object"]
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


def test_a_handler_says_what_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match="save"):
        states.StateHandler(1)


# ---- the sampler


class As:
    """Plays rank `rank` of `size` for the samplers that are made or reset meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, rank: int, size: int) -> None:
        module = "horovod.torch.elastic.sampler"
        self.monkeypatch.setattr(f"{module}.rank", lambda: rank)
        self.monkeypatch.setattr(f"{module}.size", lambda: size)


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> As:
    return As(monkeypatch)


def deal(playing: As, size: int, samples: int, **state: int) -> list[list[int]]:
    """What each rank gets."""
    dealt = []
    for rank in range(size):
        playing(rank, size)
        sampler = ElasticSampler(range(samples), shuffle=False)
        sampler.load_state_dict({"epoch": 0, "processed_num": 0, **state})
        dealt.append(list(sampler))
        assert len(sampler) == len(dealt[-1])
    return dealt


def test_indices_are_dealt_in_turn_and_the_head_fills_up(playing: As) -> None:
    assert deal(playing, 2, 6) == [[0, 2, 4], [1, 3, 5]]
    assert deal(playing, 3, 7) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert deal(playing, 1, 3) == [[0, 1, 2]]
    assert deal(playing, 2, 0) == [[], []]


def test_what_is_processed_is_not_dealt_again(playing: As) -> None:
    assert deal(playing, 2, 8, processed_num=4) == [[4, 6], [5, 7]]
    assert deal(playing, 3, 8, processed_num=4) == [[4, 7], [5, 4], [6, 5]]
    assert deal(playing, 4, 5, processed_num=4) == [[4], [4], [4], [4]]
    assert deal(playing, 2, 8, processed_num=10) == [[], []]


def test_the_order_is_pythons_by_seed_and_epoch(playing: As) -> None:
    playing(0, 1)
    sampler = ElasticSampler(range(50), seed=7)
    orders = []
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        expected = list(range(50))
        random.Random(7 + epoch).shuffle(expected)
        assert list(sampler) == list(sampler) == expected
        orders.append(expected)
    assert orders[0] != orders[1]


def test_batches_are_recorded_for_all_ranks_and_count_after_a_reset(playing: As) -> None:
    playing(1, 2)
    sampler = ElasticSampler(range(12), shuffle=False)
    sampler.record_batch(0, 2)
    sampler.record_batch(1, 1)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 6}
    assert len(sampler) == 6  # the epoch under way goes on
    playing(0, 3)
    sampler.reset()
    assert list(sampler) == [6, 9]
    sampler.set_epoch(1)
    assert sampler.state_dict() == {"epoch": 1, "processed_num": 0}
    assert sampler.processed_indices == set()


def test_a_sampler_in_a_state_is_dealt_anew_after_a_reset(playing: As) -> None:
    playing(0, 2)
    sampler = ElasticSampler(range(8), shuffle=False)
    state = TorchState(sampler=sampler)
    sampler.record_batch(0, 1)
    state.save()
    sampler.record_batch(1, 1)
    playing(1, 3)
    state.on_reset()
    assert list(sampler) == [5, 4]
    state.restore()
    assert list(sampler) == [3, 6]


def test_data_loaders_take_the_sampler(playing: As) -> None:
    playing(1, 2)
    sampler = ElasticSampler(range(6), shuffle=False)
    data: Any = torch.arange(6)
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
    assert [batch.tolist() for batch in loader] == [[1, 3], [5]]


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


@on_ranks(2, 3)
def test_a_sampler_deals_each_index_to_one_rank() -> None:
    sampler = ElasticSampler(range(6 * hvd.size()))
    dealt = [index for part in hvd.allgather_object(list(sampler)) for index in part]
    assert sorted(dealt) == list(range(6 * hvd.size()))


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


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(4 * hvd.size(), 3, generator=generator, dtype=torch.float64)
    return x[4 * hvd.rank() : 4 * hvd.rank() + 4]


def train_20_steps(disturb: Callable[[Any], None]) -> tuple[list[Any], int]:
    """Parameters at the end, and how often training was called."""
    hvd.init()
    torch.manual_seed(hvd.rank())  # rank 0's parameters are everyone's
    model = torch.nn.Linear(3, 2).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters()
    )
    state: Any = TorchState(model, optimizer, step=0)
    calls = []

    @hvd.elastic.run
    def train(state: Any) -> list[Any]:
        calls.append(state.step)
        while state.step < 20:
            optimizer.zero_grad()
            model(batch(state.step)).square().sum().backward()
            optimizer.step()
            disturb(state)
            state.step += 1
            if state.step % 3 == 0:
                state.commit()
        return [parameter.tolist() for parameter in model.parameters()]

    found = train(state)
    hvd.shutdown()
    return found, len(calls)


def once_at(step: int, action: Callable[[Any], None]) -> Callable[[Any], None]:
    left = [step]

    def disturb(state: Any) -> None:
        if left and state.step == left[0]:
            left.pop()
            action(state)

    return disturb


def lose(state: Any) -> None:
    raise hvd.HorovodInternalError("injected")


def lose_on_one_rank(state: Any) -> None:
    if hvd.rank() == hvd.size() - 1:
        lose(state)


def add_hosts(state: Any) -> None:
    state.on_hosts_updated(1, elastic.added)


def remove_hosts(state: Any) -> None:
    state.on_hosts_updated(1, elastic.removed)


def train_through_everything() -> None:
    undisturbed, calls = train_20_steps(lambda state: None)
    tell([undisturbed, calls])
    for action in (lose, lose_on_one_rank, add_hosts, remove_hosts):
        tell(list(train_20_steps(once_at(10, action))))


@needs_job
@pytest.mark.parametrize("np", [1, 2])
def test_s17_disturbed_training_ends_as_if_undisturbed(np: int) -> None:
    """After a loss it goes back to step 9, after an interrupt it goes on at step 12."""
    job = run_alone(np, train_through_everything)
    assert job.returncode == 0, job.output
    expected, calls = job.told[0][0]
    assert calls == 1
    for told in job.told:
        assert len(told) == 5, job.output
        assert all(one == [expected, 2] for one in told[1:])
