"""The launcher of simulated elastic jobs: `decide` of launcher/elastic, under a virtual clock, with
the processes and hosts that it knows. All times are in milliseconds.

What the launcher does is checked here. What ranks do, and what is done to them, is in
driven_worlds.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from elastic_data import MOST_RANKS
from elastic_worlds import Reset, Worker, World

from horovod.common import elastic

HEARTBEAT = 5_000
SURVIVOR = 30_000
PATIENCE = 600_000
COOLDOWN_S = 10
KILL_EVERY = 20_000
HOUR = 3_600_000
NAMES = ("a", "b", "c")
#: Of Horovod: that of the first ranks, and that of misfits.
VERSION, OTHER_VERSION = "1.0", "2.0"


#: Answers in a row that must name a stopped worker, which is given up then.
ANSWERS = 3


class Search:
    """For stopped workers, in a wait. `answers`: how many in a row have named each."""

    def __init__(self, wait: int | None) -> None:
        self.wait = wait
        self.answers: dict[str, int] = {}

    def answer(self, stopped: list[str]) -> None:
        self.answers = {id: self.answers.get(id, 0) + 1 for id in stopped}


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


class LaunchedWorld(World):
    """`alive`: processes by their id, from their start to their end; None until they are ranks.
    `asked`: those that wait for a place. `dismissed`: those that get none. `leaving`: ranks that
    have left and not ended. `terminated`: those with SIGTERM. `stopped`: since when. `dark`: until
    when nothing comes from a host, nor arrives there. `failures`: by host, those that count for
    sure. `waits_since`: when the first of the ranks has asked."""

    def __init__(self, seed: int, library: Path) -> None:
        super().__init__(seed)
        self.now = 0
        self.found: Counter[str] = Counter()
        self.queue: list[tuple[int, int, Callable[[], object]]] = []
        self.numbers = itertools.count()
        self.slots = [2, 2, 2]
        self.lost_hosts: set[int] = set()
        self.dark: dict[str, int] = {}
        self.alive: dict[str, Worker | None] = {}
        self.ids: dict[Worker, str] = {}
        for number, worker in enumerate(self.workers):
            self.name(worker, f"{number // 2}/{number % 2}/0")
        self.ranks = list(self.alive)
        self.asked: set[str] = set()
        self.dismissed: set[str] = set()
        self.leaving: set[str] = set()
        self.terminated: set[str] = set()
        self.stopped: dict[str, int] = {}
        self.search = Search(None)
        self.misfits: set[str] = set()
        self.killed_by_chaos: set[str] = set()
        self.to_kill: list[Worker] = []
        self.failures: Counter[str] = Counter()
        self.waits_since: int | None = None
        self.is_explained = False
        self.said = ""
        self.next: list[str] | None = None
        self.resets = 0
        self.over = ""
        self.choose_settings()
        self.driver = Driver(library, self.job())

    def run(self) -> list[Worker]:
        self.event("time")
        return super().run()

    def choose_settings(self) -> None:
        choose = self.random.choice
        self.min = self.random.randint(1, min(2, len(self.workers)))
        self.target = self.random.randint(4, MOST_RANKS)
        self.cooldown = choose([0, 0, COOLDOWN_S])
        self.heartbeat = choose([0, HEARTBEAT, HEARTBEAT])
        self.kill_every = choose([0, 0, 0, 0, 0, KILL_EVERY])
        self.reset_limit = choose([-1] * 5 + [self.random.randint(0, 4)])
        self.part_of_misfits = choose([0, 0, 0, 0.3])

    def job(self) -> str:
        ids = list(self.alive)
        numbers = [self.min, self.target, 1, PATIENCE, SURVIVOR, self.heartbeat, self.cooldown]
        numbers += [self.kill_every, self.reset_limit, len(ids)]
        return " ".join([*map(str, numbers), *ids, self.hosts()])

    def hosts(self) -> str:
        """Those on which workers can be started. A host without slots may be among them."""
        found = [host for host in range(len(NAMES)) if host not in self.lost_hosts]
        found = [host for host in found if self.slots[host] > 0 or self.random.random() < 0.5]
        return " ".join(f"{host} {NAMES[host]} {self.slots[host]}" for host in found)

    def name(self, worker: Worker, id: str) -> None:
        self.ids[worker] = id
        self.alive[id] = worker

    # ---- time

    def after(self, delay: int, call: Callable[[], object]) -> None:
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

    def wait_for_generation(self) -> None:
        until = self.now + HOUR
        while self.next is None and not self.over:
            time = self.next_time()
            assert time is not None, "no generation begins, and nothing else happens"
            assert time <= until, "no generation begins"
            self.happen(time)

    def pause(self, most: int) -> int:
        return self.random.randint(1, most)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability * (self.disturbance > 0)

    # ---- the launcher

    def event(self, line: str) -> None:
        for words in self.driver.decide(self.now, line):
            getattr(self, f"on_{words[0]}")(*words[1:])
        if not any(self.is_member(id) for id in self.asked):
            self.waits_since = None
            self.is_explained = False
        elif self.waits_since is None:
            self.waits_since = self.now

    def is_member(self, id: str) -> bool:
        return self.alive.get(id) is not None and id not in self.dismissed

    def is_last(self) -> bool:
        return self.resets == self.reset_limit

    def on_start(self, id: str) -> None:
        host, slot, _ = id.split("/")
        assert int(host) not in self.lost_hosts, f"{id} starts on a lost host"
        assert int(slot) < self.slots[int(host)], f"{id} starts in a slot that was removed"
        assert self.cooldown or self.failures[host] < 2, f"{id} starts where two have failed"
        assert not self.is_last(), f"{id} starts after the last reset"
        in_slot = [one for one in self.alive if one.startswith(f"{host}/{slot}/")]
        assert not in_slot, f"{id} starts in the slot of {in_slot}"
        self.alive[id] = None
        self.found["late joiners"] += 1
        if self.part_of_misfits and self.random.random() < self.part_of_misfits:
            self.misfits.add(id)
        fails = self.random.random() < 0.1
        self.after(self.pause(20_000), lambda: self.end(id) if fails else self.ask(id))

    def on_begin(self, generation: str, *ids: str) -> None:
        assert not self.is_last(), "a generation begins after the last reset"
        self.resets += 1
        self.next = list(ids)

    def on_dismiss(self, id: str, way: str) -> None:
        self.dismissed.add(id)
        self.found["rejected"] += "was rejected" in self.said
        if "did not ask for its next place" in self.said:
            assert not self.was_stopped(id), f"{id} is stopped, and the others wait for it"
        if id in self.asked or way == "stop":
            self.after(self.pause(2_000), lambda: self.end(id))

    def was_stopped(self, id: str) -> bool:
        """All the time while others waited for it, so that the launcher should have noticed."""
        begin = self.waits_since or 0
        is_dark = self.dark.get(id[0], 0) > begin
        return self.heartbeat > 0 and not is_dark and self.stopped.get(id, self.now) <= begin

    def on_tell(self, added: str, removed: str) -> None:
        assert not self.is_last(), "ranks are told to begin anew after the last reset"
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
        if self.said.startswith("--chaos"):
            self.said = ""
            self.found["kills of --chaos"] += 1
            in_next = set(self.next or ())
            members = {one for one in self.alive if self.is_member(one) or one in in_next}
            members -= self.killed_by_chaos
            assert id in members and len(members) > 1, f"--chaos kills {id} of {members}"
            self.killed_by_chaos.add(id)
        self.after(self.pause(100), lambda: self.kill(id))

    def on_say(self, *words: str) -> None:
        self.said = " ".join(words)
        self.found["given up with their host"] += "nothing has come from its host" in self.said

    def on_explain(self) -> None:
        assert self.waits_since is not None, "none waits for those that have not asked"
        assert not self.is_explained, "the wait is explained again"
        self.is_explained = True
        self.found["explained waits"] += 1

    def on_look(self, only_in_init: str = "") -> None:
        if only_in_init:
            return  # ranks are connected at once here
        self.after(self.pause(1_000), self.answer_look)

    def on_close(self) -> None:
        self.over = "a rank has finished"

    def on_end(self, *why: str) -> None:
        self.over = " ".join(why)
        self.found["ended by the reset limit"] += "--reset-limit" in self.over
        if "no worker is left" in self.over:
            assert not self.leaving & set(self.alive), "the job ends before those that leave"

    # ---- processes and hosts

    def ask(self, id: str) -> None:
        if id not in self.alive or int(id[0]) in self.lost_hosts:
            return
        if self.is_put_off(id, lambda: self.ask(id)):
            return
        if id in self.terminated:
            self.leave(id)
            return
        if id in self.dismissed:
            self.found["refused"] += 1
            self.end(id)
            return
        self.asked.add(id)
        asks = f"asks {id} {OTHER_VERSION if id in self.misfits else VERSION}"
        self.event(asks)
        if self.next is None and self.chance(0.1):
            self.found["asks twice"] += 1
            self.event(asks)

    def end(self, id: str, how: str = "ended") -> None:
        if id not in self.alive or self.is_put_off(id, lambda: self.end(id, how)):
            return
        by_user = id in self.killed_by_chaos or id in self.dismissed
        self.failures[id[0]] += how == "ended" and not by_user
        self.forget(id)
        self.event(f"{how} {id}")

    def forget(self, id: str) -> None:
        del self.alive[id]
        self.asked.discard(id)
        self.stopped.pop(id, None)

    def kill(self, id: str) -> None:
        """The others of its generation notice in their next operation."""
        worker = self.alive.get(id)
        if worker in self.workers and worker.request != Reset():
            self.to_kill.append(worker)
        else:
            self.end(id)

    def terminate(self, id: str) -> None:
        """SIGTERM. A rank leaves at its next commit, or at once if it has no generation."""
        worker = self.alive.get(id)
        if worker is None:
            self.end(id)
            return
        self.terminated.add(id)
        if worker in self.workers and worker.request == Reset() and id not in self.stopped:
            self.leave(id)

    def leave(self, id: str) -> None:
        """Says so, and ends later, which may take long."""
        if id not in self.alive or self.is_put_off(id, lambda: self.leave(id)):
            return
        self.asked.discard(id)
        if self.is_member(id):
            self.found["leavers"] += 1
            self.leaving.add(id)
            self.failures[id[0]] += 1
        self.event(f"leaves {id}")
        assert self.over or id in self.dismissed, f"the others wait for {id}, which leaves"
        self.found["all have left"] += not any(map(self.is_member, self.alive))
        self.after(self.pause(20_000), lambda: self.end(id))

    def stop(self, id: str, time: int) -> None:
        self.stopped[id] = self.now
        self.after(time, functools.partial(self.stopped.pop, id, None))

    def answer_look(self) -> None:
        """Dark hosts do not answer."""
        if self.search.wait != self.waits_since:
            self.search = Search(self.waits_since)
        found = [id for id in self.stopped if self.dark.get(id[0], 0) <= self.now]
        self.search.answer(found)
        awaited = [id for id in found if self.is_member(id) and id not in self.asked]
        in_place = [id for id in awaited if id not in self.dismissed]
        self.event(" ".join(["stopped", *found]))
        if self.waits_since is None:
            return
        for id in in_place:
            is_given_up = self.search.answers[id] >= ANSWERS
            self.found["given up while stopped"] += is_given_up
            is_dismissed = self.over or id in self.dismissed
            assert not is_given_up or is_dismissed, f"the others wait for {id}, which is stopped"
            assert is_given_up or not is_dismissed, f"{id} may be stopped for a moment"

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
            self.kill_with_host(id)
        self.event(f"gone {host}")

    def kill_with_host(self, id: str) -> None:
        worker = self.alive[id]
        self.to_kill += [worker] if worker in self.workers and worker.request != Reset() else []
        self.forget(id)

    def find_host(self, host: int) -> None:
        self.lost_hosts.discard(host)
        self.event(f"found {self.hosts()}")

    def change_hosts(self) -> None:
        self.found["changed hosts"] += 1
        self.slots = [self.random.randint(0, 2) for _ in self.slots]
        self.event(f"found {self.hosts()}")
