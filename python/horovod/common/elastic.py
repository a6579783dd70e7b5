"""Training that survives a change of ranks: the state that is kept, and the loop that tries again.

A *state* holds what training needs to go on. `commit` saves it on every rank; when a rank is lost,
all go back to what they saved; whoever joins gets rank 0's. Needs no framework: a binding gives its
broadcast of objects, and adds states for its models.
"""

from __future__ import annotations

import abc
import collections
import copy
import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodMismatchError,
    HostsUpdatedInterrupt,
)

#: What became of the hosts, as two bits.
no_update = 0
removed = 1
added = 2
mixed = removed | added


def is_elastic() -> bool:
    """Whether this process belongs to an elastic job, so that other ranks may come and go.

    By the environment, where the launcher puts it anew for every process.
    """
    return os.environ.get("HOROVOD_ELASTIC", "0").lower() in ("1", "true", "yes", "on")


class _Update(NamedTuple):
    """`timestamp`: of whoever tells; a later update has a larger one."""

    timestamp: float
    result: int


class State(abc.ABC):
    """What training needs to go on. `save`, `restore` and `sync` are given by subclasses.

    Used by the thread that trains; `on_hosts_updated` may be called by any.
    `bcast_object`: `object -> rank 0's object`, collective. `get_rank`: this process' rank.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._updates: collections.deque[_Update] = collections.deque()
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """After every reset these are called, in this order, without arguments.

        There the number of ranks is the new one: for what depends on it, as the learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called when the job has begun anew with other ranks, before the state is synced."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Called when hosts came or went; `update_res` says which. Takes effect at `commit`."""
        self._updates.append(_Update(timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, then looks whether hosts came or went. Call it on all ranks alike.

        What happened since the last commit is lost when a rank is, so commit often; but saving
        copies models to memory, so not after each small step.
        Raises: HostsUpdatedInterrupt, which `run` handles.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks together, if rank 0 heard of other hosts."""
        known = list(self._updates)
        latest = max((update.timestamp for update in known), default=None)
        result = functools.reduce(int.__or__, (update.result for update in known), no_update)
        latest, result = self._bcast_object((latest, result))
        if latest is not None:
            self._forget_updates(latest)
        if result != no_update:
            raise HostsUpdatedInterrupt(result == removed)

    def _forget_updates(self, until: float) -> None:
        """What rank 0 knew is acted upon now, on the other ranks too, whichever is rank 0 next."""
        later = [update for update in self._updates if update.timestamp > until]
        self._updates = collections.deque(later)

    @abc.abstractmethod
    def save(self) -> None:
        """Keeps a copy of the state in memory."""

    @abc.abstractmethod
    def restore(self) -> None:
        """Goes back to the last save."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Makes rank 0's state everyone's; it counts as saved. Collective."""

    def reset(self) -> None:  # noqa: B027 (a hook)
        """For subclasses: what must be done after a reset, before the callbacks."""


class ObjectState(State):
    """A state of plain attributes: `kwargs` gives their names and first values.

    Values: whatever can be deep-copied and pickled. The first values count as saved.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._names = list(kwargs)
        self._saved: dict[str, Any] = {}
        self._assign(kwargs)
        self._save_attributes()

    def _assign(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _save_attributes(self) -> None:
        self._saved = copy.deepcopy({name: getattr(self, name) for name in self._names})

    def save(self) -> None:
        self._save_attributes()

    def restore(self) -> None:
        self._assign(copy.deepcopy(self._saved))

    def sync(self) -> None:
        if self._names:
            self._assign(self._bcast_object({name: getattr(self, name) for name in self._names}))
        self._save_attributes()


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """`func(state, *args, **kwargs)`, called again until it returns; its result is returned.

    HorovodInternalError: the state is restored. HostsUpdatedInterrupt: it is as it was. After both
    `reset()` begins the job anew, and the state is synced, unless hosts were only removed: then
    everybody has it. When ranks disagree, trying again does not help: HorovodMismatchError passes.
    """

    @functools.wraps(func)
    def repeated(state: State, *args: Any, **kwargs: Any) -> Any:
        is_reset_due = False
        is_sync_due = True
        while True:
            try:
                if is_reset_due:
                    reset()
                    state.on_reset()
                    is_reset_due = False
                if is_sync_due:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodMismatchError:
                raise
            except HorovodInternalError:
                state.restore()
                is_sync_due = True
            except HostsUpdatedInterrupt as interrupt:
                is_sync_due = not interrupt.skip_sync
            is_reset_due = True

    return repeated
