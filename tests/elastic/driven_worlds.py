"""Simulated elastic jobs whose launcher is the real one.

Extends elastic_worlds: states, samplers and streams are the real ones too. Workers start, ask for
their places, are killed, stopped, cut off and sent SIGTERM, and hosts come and go, at times derived
from a seed. All times are in milliseconds.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from elastic_worlds import Reset, Worker, broadcast, check, failed
from launched_worlds import HEARTBEAT, HOUR, LaunchedWorld

from horovod.common import _elastic_handlers
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class DrivenWorld(LaunchedWorld):
    """`left`: the ranks that leave in this operation. `committed`: what each rank that has left at
    a commit had committed there."""

    def __init__(self, seed: int, library: Path) -> None:
        super().__init__(seed, library)
        self.members_of = {worker: list(self.workers) for worker in self.workers}
        self.victims: dict[Worker, str] = {}
        self.left: list[Worker] = []
        self.committed: list[tuple[Any, Any]] = []
        for worker in self.workers:
            self.watch_commits(worker)

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
                self.after(self.pause(2_000), lambda id=id: self.kill(id))
            if self.chance(self.disturbance / 4):
                self.after(self.pause(2_000), lambda id=id: self.terminate(id))
            late = self.pause(60_000 if self.chance(0.05) else 500)
            if self.chance(0.05):
                self.found["stopped before it asks"] += 1
                late = self.pause(100_000)
                self.stop(id, late)
            self.after(late, lambda id=id: self.ask(id))
        self.wait_for_generation()
        if self.over:
            self.workers = []
        else:
            self.place(self.next or [])

    def place(self, ids: list[str]) -> None:
        assert all(id in self.asked and id in self.alive for id in ids), f"{ids} did not all ask"
        assert self.min <= len(ids) <= self.target, f"{len(ids)} ranks"
        assert not self.misfits & set(ids), f"{ids} have different versions"
        assert all(int(id[2]) < self.slots[int(id[0])] for id in ids), f"{ids}: a slot was removed"
        former = [id for id in ids if self.alive[id] is not None]
        assert former == [id for id in self.ranks if id in former], f"{ids} were {self.ranks}"
        assert ids[0] in former, f"{ids[0]} is new, and has no state"
        self.ranks = ids
        self.asked -= set(ids)
        self.waits_since = None
        self.is_explained = False
        for id in ids:
            if id not in former:
                self.name(Worker(self, has_state=False), id)
        self.workers = [self.alive[id] for id in ids]  # type: ignore[misc]
        self.members_of.update({worker: list(self.workers) for worker in self.workers})
        for worker in self.workers:
            if self.ids[worker] not in former:
                worker.start()
                self.watch_commits(worker)
        for worker in self.workers:
            if self.ids[worker] in former:
                worker.advance(lambda worker=worker: worker.life.send(None))
        self.found["generations"] += 1

    def collective(self) -> None:
        slow = self.method(self.workers[0]) == "commit" and self.chance(0.05)
        self.found["slow commits"] += slow
        jump = self.chance(0.01)
        self.found["clock jumps"] += jump
        if self.chance(self.disturbance / 2):
            self.change_hosts()
        if self.chance(self.disturbance / 4):
            self.send_signals()
        self.advance(self.now + self.pause(60_000 if slow else 3_000) + jump * HOUR)
        if self.over:
            self.workers = []
            return
        self.victims, self.left = {}, []
        super().collective()
        self.workers = [worker for worker in self.workers if worker not in self.left]
        for worker, fate in self.victims.items():
            if worker not in self.left:
                self.found[fate] += 1
                getattr(self, f"meet_{fate}")(worker)
        for worker in self.left:
            self.after(self.pause(500), functools.partial(self.leave, self.ids[worker]))
        if not self.workers:
            self.begin_generation()  # with ranks that were cut off, or the job ends

    def announce(self) -> None:
        """The launcher does that."""

    def watch_commits(self, worker: Worker) -> None:
        worker.state.after_save(functools.partial(self.agree, worker))

    def agree(self, worker: Worker) -> None:
        """As _elastic_commits does."""
        leavers = [one for one in self.workers if self.ids[one] in self.terminated]
        if not leavers:
            worker.state.check_host_updates()
        elif worker.fails_at is not None:
            raise HorovodInternalError("a rank was lost")
        elif worker in leavers:
            raise SystemExit
        else:
            raise HostsUpdatedInterrupt(skip_sync=True)

    def call(self, worker: Worker, method: str) -> None:
        try:
            super().call(worker, method)
        except SystemExit:
            worker.life.close()
            worker.request = None
            self.found["left at a commit"] += 1
            self.left.append(worker)
            self.committed.append((worker.state.history, worker.state.used))

    def losses(self) -> list[Worker]:
        self.victims = {worker: "kill" for worker in self.to_kill if worker in self.workers}
        self.to_kill.clear()
        is_more = self.random.random() < self.disturbance
        if not self.victims and not is_more:
            return []
        self.is_lost = True
        self.faults += 1
        if not is_more:
            return list(self.victims)
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

    def send_signals(self) -> None:
        """SIGTERM to a rank, to all of a host, or to all."""
        of = self.ids[self.random.choice(self.workers)]
        start = self.random.choice([*[of] * 6, *[f"{of[0]}/"] * 3, ""])
        for id in [id for id in self.alive if id.startswith(start)]:
            self.after(self.pause(3_000), functools.partial(self.terminate, id))

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
        """In an operation, where others notice, or not."""
        time = HEARTBEAT + self.pause(100_000)
        self.stop(self.ids[worker], time)
        if self.random.random() < 0.5:
            self.report_silence(worker)
        self.after(time, lambda: self.come_back(worker))

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


def check_committed(committed: list[tuple[Any, Any]], finished: list[Worker]) -> None:
    """What a rank has trained on counts when it has left at a commit."""
    for history, used in committed:
        for worker in finished:
            whole = worker.state.history
            assert whole[: len(history)] == history, "epochs of one that left are missing"
            if used:
                rest = whole[len(history)][0]
                assert rest[: len(used)] == used, "samples of one that left are missing"


def run_driven_worlds(seeds: range, library: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Runs one job for each seed; returns how often each thing happened."""
    monkeypatch.setattr(_elastic_handlers, "broadcast_object", broadcast)
    found: Counter[str] = Counter()
    for seed in seeds:
        world: Any = DrivenWorld(seed, library)
        try:
            finished = world.run()
            check(world.plan, finished)
            check_committed(world.committed, finished)
        except Exception as error:
            raise failed(error, seed, world.plan, "tests/elastic") from error
        finally:
            world.driver.close()
        found.update(world.found)
        found[world.plan.kind] += bool(finished)
        found["finished"] += bool(finished)
        found["faults"] += world.faults
    return found
