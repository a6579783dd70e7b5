"""Simulated elastic jobs whose launcher is the real one: `decide` of launcher/elastic, under a
virtual clock.

Extends elastic_worlds: states, samplers and streams are the real ones too. Workers start, ask for
their places, are killed, stopped and cut off, and hosts come and go, at times derived from a seed.
All times are in milliseconds.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_data import MOST_RANKS
from elastic_worlds import Reset, Worker, World, broadcast, check, failed

from horovod.common import _elastic_handlers, elastic

HEARTBEAT = 5_000
SURVIVOR = 30_000
PATIENCE = 600_000
HOUR = 3_600_000
NAMES = ("a", "b", "c")


class Driver:
    """The state of a job at the launcher; every call is an event."""

    def __init__(self, library: Path, job: str) -> None:
        self._calls = ctypes.CDLL(str(library))
        self._calls.elastic_begin.restype = ctypes.c_void_p
        self._calls.elastic_decide.restype = ctypes.c_char_p
        self._calls.elastic_deadline.restype = ctypes.c_int64
        self._job = ctypes.c_void_p(self._calls.elastic_begin(job.encode()))

    def decide(self, now: int, event: str) -> list[list[str]]:
        """Returns the actions, as words."""
        lines = self._calls.elastic_decide(self._job, ctypes.c_int64(now), event.encode())
        return [line.split() for line in lines.decode().splitlines()]

    def deadline(self) -> int | None:
        time: int = self._calls.elastic_deadline(self._job)
        return None if time < 0 else time

    def close(self) -> None:
        self._calls.elastic_end(self._job)


class DrivenWorld(World):
    """`alive`: processes by their id, from their start to their end; None until they are ranks.
    `asked`: those that wait for a place. `dismissed`: those that get none. `dark`: until when
    nothing comes from a host, nor arrives there."""

    def __init__(self, seed: int, library: Path) -> None:
        super().__init__(seed)
        self.members_of = {worker: list(self.workers) for worker in self.workers}
        self.now = 0
        self.found: Counter[str] = Counter()
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.slots = [2, 2, 2]
        self.lost_hosts: set[int] = set()
        self.dark: dict[str, int] = {}
        self.alive: dict[str, Worker | None] = {}
        self.ids: dict[Worker, str] = {}
        for number, worker in enumerate(self.workers):
            self.name(worker, f"{number // 2}/{number % 2}/0")
        self.asked: set[str] = set()
        self.dismissed: set[str] = set()
        self.to_kill: set[str] = set()
        self.victims: dict[Worker, str] = {}
        self.next: list[str] | None = None
        self.over = ""
        self.min = self.random.randint(1, min(2, len(self.workers)))
        self.target = self.random.randint(4, MOST_RANKS)
        self.driver = Driver(library, self.job())
        self.event("time")

    def job(self) -> str:
        ids = list(self.alive)
        cooldown = self.random.choice([0, 0, 10])
        numbers = [self.min, self.target, PATIENCE, SURVIVOR, cooldown, 1, len(ids)]
        return " ".join([*map(str, numbers), *ids, self.hosts()])

    def hosts(self) -> str:
        """Those on which workers can be started."""
        found = [host for host in range(len(NAMES)) if host not in self.lost_hosts]
        return " ".join(f"{host} {NAMES[host]} {self.slots[host]}" for host in found)

    def name(self, worker: Worker, id: str) -> None:
        self.ids[worker] = id
        self.alive[id] = worker

    # ---- time

    def after(self, delay: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + delay, next(self.numbers), call))

    def next_time(self) -> int | None:
        times = [time for time in (self.driver.deadline(),) if time is not None]
        times += [self.queue[0][0]] if self.queue else []
        return min(times, default=None)

    def advance(self, until: int) -> None:
        while not self.over and (time := self.next_time()) is not None and time <= until:
            self.happen(time)
        self.now = max(self.now, until)

    def happen(self, time: int) -> None:
        """One event."""
        self.now = max(self.now, time)
        if self.queue and self.queue[0][0] <= self.now:
            heapq.heappop(self.queue)[2]()
            return
        self.event("time")
        deadline = self.driver.deadline()
        assert deadline is None or deadline > self.now, "the launcher spins"

    def pause(self, most: int) -> int:
        return self.random.randint(1, most)

    # ---- the launcher

    def event(self, line: str) -> None:
        for words in self.driver.decide(self.now, line):
            getattr(self, f"on_{words[0]}")(*words[1:])

    def on_start(self, id: str) -> None:
        host, slot, _ = id.split("/")
        assert int(host) not in self.lost_hosts, f"{id} starts on a lost host"
        in_slot = [one for one in self.alive if one.startswith(f"{host}/{slot}/")]
        assert not in_slot, f"{id} starts in the slot of {in_slot}"
        self.alive[id] = None
        self.found["late joiners"] += 1
        fails = self.random.random() < 0.1
        self.after(self.pause(20_000), lambda: self.end(id) if fails else self.ask(id))

    def on_begin(self, generation: str, *ids: str) -> None:
        self.next = list(ids)

    def on_dismiss(self, id: str, way: str) -> None:
        self.dismissed.add(id)
        if id in self.asked or way == "stop":
            self.after(self.pause(2_000), lambda: self.end(id))

    def on_tell(self, added: str, removed: str) -> None:
        self.clock += 1
        result = (elastic.added if added == "1" else 0) | (elastic.removed if removed == "1" else 0)
        for worker in self.workers:
            hear = functools.partial(worker.state.on_hosts_updated, self.clock, result)
            self.after(self.pause(2_000), hear)

    def on_abandon(self, generation: str) -> None:
        """Ranks are connected at once here."""

    def on_reconnect(self, host: str) -> None:
        self.after(self.pause(5_000), lambda: self.find_host(int(host)))

    def on_kill(self, id: str) -> None:
        if self.alive.get(id) in self.workers:
            self.to_kill.add(id)
        else:
            self.after(0, lambda: self.end(id))

    def on_say(self, *words: str) -> None:
        self.found["given up with their host"] += "nothing has come from its host" in " ".join(
            words
        )

    def on_explain(self) -> None:
        assert self.asked, "none waits for those that have not asked"
        self.found["explained waits"] += 1

    def on_close(self) -> None:
        self.over = "a rank has finished"

    def on_end(self, *why: str) -> None:
        self.over = " ".join(why)

    # ---- processes and hosts

    def ask(self, id: str) -> None:
        if id not in self.alive or int(id[0]) in self.lost_hosts:
            return
        if self.is_put_off(id, lambda: self.ask(id)):
            return
        if id in self.dismissed:
            self.found["refused"] += 1
            self.end(id)
            return
        self.asked.add(id)
        self.event(f"asks {id}")
        if self.next is None and self.chance(0.1):
            self.found["asks twice"] += 1
            self.event(f"asks {id}")

    def end(self, id: str, how: str = "ended") -> None:
        if id not in self.alive or self.is_put_off(id, lambda: self.end(id, how)):
            return
        del self.alive[id]
        self.asked.discard(id)
        self.event(f"{how} {id}")

    def is_put_off(self, id: str, call: Callable[[], None]) -> bool:
        """Whether what a worker says, or what it is told, comes later: its host is dark."""
        left = self.dark.get(id[0], 0) - self.now
        if left > 0:
            self.after(left, call)
        return left > 0

    def lose_host(self, host: int) -> None:
        if host in self.lost_hosts:
            return
        self.lost_hosts.add(host)
        for id in [id for id in self.alive if int(id[0]) == host]:
            del self.alive[id]
            self.asked.discard(id)
        self.event(f"gone {host}")

    def find_host(self, host: int) -> None:
        self.lost_hosts.discard(host)
        self.event(f"found {self.hosts()}")

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability * (self.disturbance > 0)

    # ---- what the base class calls

    def place_of(self, worker: Worker) -> tuple[int, int]:
        """One that is cut off has the place of its generation."""
        members = self.workers if worker in self.workers else self.members_of[worker]
        return members.index(worker), len(members)

    def begin_generation(self) -> None:
        self.is_lost = False
        self.next = None
        for worker in self.workers:
            id = self.ids[worker]
            if self.chance(self.disturbance / 4):
                self.found["killed while it asks"] += 1
                self.after(self.pause(2_000), lambda id=id: self.end(id))
            late = 60_000 if self.chance(0.05) else 500
            self.after(self.pause(late), lambda id=id: self.ask(id))
        while self.next is None and not self.over:
            time = self.next_time()
            assert time is not None, "no generation begins, and nothing else happens"
            self.happen(time)
        if self.over:
            self.workers = []
        else:
            self.place(self.next or [])

    def place(self, ids: list[str]) -> None:
        assert all(id in self.asked and id in self.alive for id in ids), f"{ids} did not all ask"
        assert self.min <= len(ids) <= self.target, f"{len(ids)} ranks"
        assert self.alive[ids[0]] in self.workers or not self.workers or self.is_cut(ids[0])
        self.asked -= set(ids)
        former = [id for id in ids if self.alive[id] is not None]
        for id in ids:
            if id not in former:
                self.name(Worker(self, has_state=False), id)
        self.workers = [self.alive[id] for id in ids]  # type: ignore[misc]
        self.members_of.update({worker: list(self.workers) for worker in self.workers})
        for worker in self.workers:
            if self.ids[worker] not in former:
                worker.start()
        for worker in self.workers:
            if self.ids[worker] in former:
                worker.advance(lambda worker=worker: worker.life.send(None))
        self.found["generations"] += 1

    def is_cut(self, id: str) -> bool:
        """It was cut off and is back before it was given up."""
        return self.alive[id] is not None

    def collective(self) -> None:
        slow = self.method(self.workers[0]) == "commit" and self.chance(0.05)
        self.found["slow commits"] += slow
        jump = self.chance(0.01)
        self.found["clock jumps"] += jump
        if self.chance(self.disturbance / 2):
            self.change_hosts()
        self.advance(self.now + self.pause(60_000 if slow else 3_000) + jump * HOUR)
        if self.over:
            self.workers = []
            return
        self.victims = {}
        super().collective()
        for worker, fate in self.victims.items():
            self.found[fate] += 1
            getattr(self, f"meet_{fate}")(worker)

    def announce(self) -> None:
        """The launcher does that."""

    def change_hosts(self) -> None:
        self.found["changed hosts"] += 1
        self.slots = [self.random.randint(0, 2) for _ in self.slots]
        self.event(f"found {self.hosts()}")

    def losses(self) -> list[Worker]:
        for id in self.to_kill & set(self.alive):
            worker = self.alive[id]
            if worker in self.workers:
                self.victims[worker] = "kill"
        self.to_kill.clear()
        if not self.victims and self.random.random() >= self.disturbance:
            return []
        self.is_lost = True
        self.faults += 1
        fate = self.random.choice(["kill", "kill", "stop", "cut", "host", "dark", "error"])
        if fate in ("host", "dark"):
            host = self.ids[self.random.choice(self.workers)][0]
            chosen = [worker for worker in self.workers if self.ids[worker][0] == host]
        else:
            most = 0 if fate == "error" else len(self.workers) - 1
            chosen = self.random.sample(self.workers, self.random.randint(0, most))
        self.victims.update({worker: fate for worker in chosen if worker not in self.victims})
        return list(self.victims)

    # ---- faults of ranks

    def meet_kill(self, worker: Worker) -> None:
        self.after(self.pause(100), lambda: self.end(self.ids[worker]))

    def meet_host(self, worker: Worker) -> None:
        self.after(self.pause(3_000), lambda: self.lose_host(int(self.ids[worker][0])))

    def meet_dark(self, worker: Worker) -> None:
        """The network of a host is down, or all of the host stands still. Of its ranks, others
        watch one only."""
        host = self.ids[worker][0]
        if self.dark.get(host, 0) <= self.now:
            self.dark[host] = self.now + HEARTBEAT + self.pause(100_000)
            self.report_silence(worker)
        self.after(self.dark[host] - self.now, lambda: self.come_back(worker))

    def meet_stop(self, worker: Worker) -> None:
        self.report_silence(worker)
        self.after(HEARTBEAT + self.pause(100_000), lambda: self.come_back(worker))

    def meet_cut(self, worker: Worker) -> None:
        """It and others have lost each other. What it says arrives when the network is back."""
        if self.random.random() < 0.5:
            self.report_silence(worker)
        back = self.pause(100_000)
        self.after(back, functools.partial(self.say_silent, self.ids[worker], self.a_survivor()))
        self.after(back, lambda: self.come_back(worker))

    def report_silence(self, worker: Worker) -> None:
        report = functools.partial(self.say_silent, self.a_survivor(), self.ids[worker])
        self.after(HEARTBEAT, report)

    def a_survivor(self) -> str:
        return self.ids[self.workers[0]] if self.workers else ""

    def say_silent(self, by: str, silent: str) -> None:
        if by and silent:
            self.event(f"silent {by} {silent}")

    def come_back(self, worker: Worker) -> None:
        """Its operation fails, and it asks for a place; or it had finished."""
        id = self.ids[worker]
        while worker.request not in (None, Reset()):
            worker.fails_at = 0
            self.answer(worker)
        if worker.request is None:
            self.end(id, "finished")
        else:
            self.ask(id)


def run_driven_worlds(seeds: range, library: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Runs one job for each seed; returns how often each thing happened."""
    monkeypatch.setattr(_elastic_handlers, "broadcast_object", broadcast)
    found: Counter[str] = Counter()
    for seed in seeds:
        world: Any = DrivenWorld(seed, library)
        try:
            finished = world.run()
            check(world.plan, finished)
        except Exception as error:
            raise failed(error, seed, world.plan, "tests/elastic") from error
        finally:
            world.driver.close()
        found.update(world.found)
        found[world.plan.kind] += bool(finished)
        found["finished"] += bool(finished)
        found["faults"] += world.faults
    return found
