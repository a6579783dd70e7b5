"""Simulated elastic jobs: a sequence of losses and joins that is derived from a seed.

Each rank is a generator that yields the collective operation it takes part in, so that one thread
runs all ranks. States, samplers and streams are the real ones. What a rank has trained on is
recorded in its state, in place of parameters: `used` changes with every step, as parameters do, and
is saved, restored and sent with them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Generator
from typing import Any, NamedTuple

import pytest
from elastic_data import KINDS, MOST_RANKS, Plan

from horovod.common import _elastic_handlers, elastic
from horovod.common._elastic_handlers import SAMPLERS, HandledState
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

EXACTLY_ONCE = "tests/common/test_elastic_exactly_once.py"


class Step(NamedTuple):
    """An allreduce: gives what the batches of all ranks add to the parameters."""

    batch: tuple[int, ...]


class AnyRank(NamedTuple):
    flag: bool


class Call(NamedTuple):
    """A method of the state."""

    method: str


class Reset(NamedTuple):
    """Shut down, and ready for the next generation."""


Request = Step | AnyRank | Call | Reset
Life = Generator[Request, Any, None]


class Worker:
    """One process. `request`: what it waits for; None when its training function has returned."""

    def __init__(self, world: World, has_state: bool) -> None:
        self.world = world
        self.has_state = has_state
        self.received = 0  # broadcasts of the current call
        self.fails_at: int | None = None  # the broadcast that is an error here

    def start(self) -> None:
        plan = self.world.plan
        self.data = KINDS[plan.kind](lambda: self.world.place_of(self), plan)
        self.state: Any = HandledState(
            broadcast,
            lambda: 0,
            SAMPLERS,
            progress=self.data.progress,
            epoch=0,
            ranks=1,
            used=(),
            history=(),
        )
        self.life = self.run()
        self.request: Request | None = None
        self.advance(lambda: self.life.send(None))

    def advance(self, step: Any) -> None:
        try:
            self.request = step()
        except StopIteration:
            self.request = None

    def run(self) -> Life:
        """As `run` does."""
        is_reset_due, is_sync_due = False, True
        while True:
            try:
                if is_reset_due:
                    self.state.forget_host_updates()
                    yield Reset()
                    self.state.on_reset()
                    is_reset_due = False
                if (yield AnyRank(is_sync_due)):
                    yield Call("sync")
                yield from self.train()
                yield AnyRank(False)
                return
            except HorovodInternalError:
                self.state.restore()
                is_sync_due = True
            except HostsUpdatedInterrupt as interrupt:
                is_sync_due = not interrupt.skip_sync
            is_reset_due = True

    def train(self) -> Life:
        """A user's training function."""
        plan, state, data = self.world.plan, self.state, self.data
        progress = data.progress
        while state.epoch < plan.epochs:
            progress.set_epoch(state.epoch)
            for number, batch in enumerate(data.batches(), 1):
                state.used += ((yield Step(tuple(batch))),)
                data.record(number, batch)
                state.ranks = progress.num_replicas
                if number % plan.steps_per_commit == 0:
                    yield Call("commit")
                elif number % plan.steps_per_check == 0:
                    yield Call("check_host_updates")
            state.history += ((state.used, progress.repeated_num, state.ranks),)
            state.used = ()
            state.epoch += 1
            yield Call("commit")


class World:
    """The launcher and the network. `workers`: in the order of their ranks."""

    current: Any = None  #: the World that runs

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.randint
        kind = list(KINDS)[seed % len(KINDS)]
        numbers = pick(0, 25), pick(1, 2), pick(1, 4), pick(1, 3), pick(1, 3)
        self.plan = Plan(kind, *numbers, shuffle=self.random.random() < 0.5)
        self.disturbance = self.random.choice([0, 0.05, 0.1, 0.3])
        self.clock = 0
        self.is_lost = False
        self.sent: list[Any] = []
        self.acting: Any = None
        self.faults = 0
        self.workers = [Worker(self, has_state=True) for _ in range(pick(1, 4))]
        World.current = self
        for worker in self.workers:
            worker.start()

    # ---- what workers call

    def place_of(self, worker: Worker) -> tuple[int, int]:
        return self.workers.index(worker), len(self.workers)

    def broadcast(self, obj: Any) -> Any:
        worker = self.acting
        number = worker.received
        worker.received += 1
        if worker.fails_at is not None and number >= worker.fails_at:
            raise HorovodInternalError("a rank was lost")
        if worker is self.root:
            self.sent.append(obj)
        elif number >= len(self.sent):
            raise HorovodInternalError("rank 0 was lost")
        return self.sent[number]

    # ---- one collective operation

    def run(self) -> list[Worker]:
        """Returns the workers that have finished; none if all that had the state were lost."""
        while all(worker.request is not None for worker in self.workers):
            if not self.workers or not self.workers[0].has_state:
                return []
            if self.workers[0].request == Reset():
                self.begin_generation()
            else:
                self.collective()
        return [worker for worker in self.workers if worker.request is None]

    def collective(self) -> None:
        kinds = {(type(worker.request), self.method(worker)) for worker in self.workers}
        assert len(kinds) == 1, f"ranks wait for each other for ever: {kinds}"
        self.root = self.workers[0]
        self.announce()
        dying = self.losses()
        is_submitted = not self.is_lost or self.random.random() < 0.7
        self.sent = []
        batches = [getattr(worker.request, "batch", ()) for worker in self.workers]
        total = tuple(index for batch in batches for index in batch)
        flag = any(getattr(worker.request, "flag", False) for worker in self.workers)
        for worker in list(self.workers):
            if self.is_lost and not is_submitted:
                worker.fails_at = 0
            elif self.is_lost and self.random.random() < 0.6:
                worker.fails_at = self.random.randint(0, 2)
            else:
                worker.fails_at = None
            self.answer(worker, total, flag)
        self.workers = [worker for worker in self.workers if worker not in dying]
        self.drain()

    def method(self, worker: Worker) -> str:
        return getattr(worker.request, "method", "")

    def answer(self, worker: Worker, total: tuple[int, ...] = (), flag: bool = False) -> None:
        request = worker.request
        if isinstance(request, Call):
            self.call(worker, request.method)
        elif worker.fails_at is not None:
            self.throw(worker, HorovodInternalError("a rank was lost"))
        else:
            value = total if isinstance(request, Step) else flag
            worker.advance(lambda: worker.life.send(value))

    def call(self, worker: Worker, method: str) -> None:
        self.acting = worker
        worker.received = 0
        try:
            getattr(worker.state, method)()
        except (HorovodInternalError, HostsUpdatedInterrupt) as error:
            self.throw(worker, error)
            return
        worker.has_state |= method == "sync"
        worker.advance(lambda: worker.life.send(None))

    def throw(self, worker: Worker, error: Exception) -> None:
        worker.advance(lambda: worker.life.throw(error))

    def drain(self) -> None:
        """When the job has ended, every operation is an error until all ranks begin anew."""
        while self.is_lost or any(worker.request == Reset() for worker in self.workers):
            late = [w for w in self.workers if w.request not in (None, Reset())]
            for worker in late:
                worker.fails_at = 0
                self.answer(worker)
            if not late:
                return

    # ---- disturbances

    def losses(self) -> list[Worker]:
        """The workers that die in this operation. It may be none: an error on one rank."""
        if self.random.random() >= self.disturbance:
            return []
        self.is_lost = True
        self.faults += 1
        return self.random.sample(self.workers, self.random.randint(0, len(self.workers) - 1))

    def announce(self) -> None:
        if self.random.random() >= self.disturbance:
            return
        self.clock += 1
        update = self.random.choice([elastic.added, elastic.removed, elastic.mixed])
        for worker in self.workers:
            if self.random.random() < 0.7:
                worker.state.on_hosts_updated(self.clock, update)

    def begin_generation(self) -> None:
        self.is_lost = False
        if len(self.workers) > 1 and self.random.random() < 0.3:
            del self.workers[self.random.randrange(len(self.workers))]
        room = MOST_RANKS - len(self.workers)
        joined = [
            Worker(self, has_state=False) for _ in range(self.random.randint(0, min(2, room)))
        ]
        former = list(self.workers)
        self.workers += joined
        for worker in joined:
            worker.start()
        for worker in former:
            worker.advance(lambda worker=worker: worker.life.send(None))


def broadcast(obj: Any, name: str = "") -> Any:
    return World.current.broadcast(obj)


def check(plan: Plan, finished: list[Worker]) -> None:
    """Every sample of every epoch counts once, except the repeats that are reported."""
    data = KINDS[plan.kind]
    for worker in finished:
        history = worker.state.history
        assert len(history) == plan.epochs
        for epoch, (steps, repeated, ranks) in enumerate(history):
            times = Counter(item for step in steps for item in step)
            assert sorted(times) == list(data.items(plan, epoch)), "samples are missing"
            assert times.total() - plan.samples == repeated < ranks, "samples were repeated"
            data.check_steps(plan, epoch, steps)
        assert history == finished[0].state.history, "ranks differ"


def seeds(usual: int) -> range:
    """As in core/sim/seeds.h."""
    first = int(os.environ.get("HVD_SIM_FROM", "1"))
    return range(first, first + int(os.environ.get("HVD_SIM_SEEDS", usual)))


def failed(error: Exception, seed: int, plan: Plan, tests: str) -> AssertionError:
    """With one command that repeats it. `tests`: where those with "counts_once" in their names take
    their seeds from `seeds`."""
    again = f"HVD_SIM_FROM={seed} HVD_SIM_SEEDS=1 python -m pytest {tests} -k counts_once"
    return AssertionError(f"{again}\nseed {seed}, {plan}: {error}")


def run_worlds(seeds: range, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Runs one job for each seed; returns how many finished, and how many faults they had."""
    monkeypatch.setattr(_elastic_handlers, "broadcast_object", broadcast)
    found: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed)
        try:
            finished = world.run()
            check(world.plan, finished)
        except Exception as error:
            raise failed(error, seed, world.plan, EXACTLY_ONCE) from error
        found[world.plan.kind] += bool(finished)
        found["finished"] += bool(finished)
        found["faults"] += world.faults
    return found
