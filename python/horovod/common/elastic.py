"""Elastic training: the state that training keeps, and the loop that restarts after a change.

A *state* holds the values that training needs to continue. `commit` saves it on every rank. When a
rank is lost, the other ranks restore their last save. New ranks receive the state of rank 0.
Independent of frameworks: a binding provides the broadcast of objects and adds states for its
models.
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
    """Returns whether this process belongs to an elastic job, whose number of ranks may change.

    Reads the environment, which the launcher sets for every process.
    """
    return os.environ.get("HOROVOD_ELASTIC", "0").lower() in ("1", "true", "yes", "on")


class _Update(NamedTuple):
    """`timestamp`: clock of the sender; a later update has a larger one."""

    timestamp: float
    result: int


class Stored(NamedTuple):
    """A saved state, for the state folder. `shared`: the same on all ranks, arrays of a framework
    in dicts and lists. `own`: may differ between ranks; the values of rank 0 count."""

    shared: dict[str, Any]
    own: dict[str, Any]


class State(abc.ABC):
    """The values that training needs to continue. Subclasses implement `save`, `restore`, `sync`.

    Used by the training thread; any thread may call `on_hosts_updated`.
    `bcast_object`: `object -> rank 0's object`, collective. `get_rank`: returns the rank of this
    process.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._updates: collections.deque[_Update] = collections.deque()
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._announcements: Callable[[], tuple[float, int] | None] = lambda: None
        self._after_save: Callable[[], None] | None = None

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Registers functions that are called after each reset, in this order, without arguments.

        They see the new number of ranks, so they can set values that depend on it, such as the
        learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the job has restarted with other ranks, before the state is synced."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Called when hosts were added or removed (`update_res`). Takes effect at the next
        `commit`.
        """
        self._updates.append(_Update(timestamp, update_res))

    def commit(self) -> None:
        """Saves the state and checks whether hosts were added or removed. Call it on all ranks.

        If a rank is lost, all work since the last commit is lost. Saving copies models to memory,
        so do not commit after each small step.
        Raises: HostsUpdatedInterrupt, and HorovodInternalError if the job has ended, which `run`
        handles. Then nothing is saved: the loss of a rank may have left wrong values on a device.
        """
        self.settle()
        self.save()
        (self._after_save or self.check_host_updates)()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if rank 0 knows of changed hosts.
        Collective."""
        self.act_on_updates(*self._bcast_object(self.known_updates()))

    def known_updates(self) -> tuple[float | None, int]:
        """Returns the newest timestamp of the changes that this process knows, None if there are
        none, and all their results."""
        if (announced := self._announcements()) is not None:
            self.on_hosts_updated(*announced)
        known = list(self._updates)
        latest = max((update.timestamp for update in known), default=None)
        result = functools.reduce(int.__or__, (update.result for update in known), no_update)
        return latest, result

    def act_on_updates(self, latest: float | None, result: int) -> None:
        """Raises HostsUpdatedInterrupt if there are changes among those that rank 0 knows. Called
        on all ranks with what `known_updates` has returned on rank 0."""
        if latest is not None:
            self._forget_updates(latest)
        if result != no_update:
            raise HostsUpdatedInterrupt(result == removed)

    def listen_to(self, announcements: Callable[[], tuple[float, int] | None]) -> None:
        """Sets where `check_host_updates` looks for changes of hosts, besides what
        `on_hosts_updated` was called with: a function that returns the timestamp and the result of
        a change, or None, without blocking."""
        self._announcements = announcements

    def after_save(self, call: Callable[[], None]) -> None:
        """Sets what `commit` calls when it has saved, on all ranks: a collective operation, which
        also acts on the updates that rank 0 knows. By default it is `check_host_updates`."""
        self._after_save = call

    def stored(self) -> Stored:
        """Returns the last saved copy, for the state folder (HOROVOD_STATE_DIR).

        It is read before the next save. Raises: NotImplementedError if the class has no such copy.
        """
        raise NotImplementedError(f"{type(self).__name__} has no stored()")

    def load_stored(self, stored: Stored) -> None:
        """Takes a copy from the state folder as the last saved one, and restores it.

        Raises: ValueError if it does not fit, since the script has changed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no load_stored()")

    def forget_host_updates(self) -> None:
        """Called before a reset, which takes the hosts as they are. What is known by then must not
        cause another reset."""
        self._updates.clear()

    def _forget_updates(self, until: float) -> None:
        """What rank 0 knew is acted upon now, on the other ranks too, whichever is rank 0 next."""
        later = [update for update in self._updates if update.timestamp > until]
        self._updates = collections.deque(later)

    def settle(self) -> None:  # noqa: B027 (a hook)
        """Hook for subclasses whose values are on a device: called before `commit` saves. Waits
        until they are complete, and raises HorovodInternalError if the job has ended meanwhile."""

    @abc.abstractmethod
    def save(self) -> None:
        """Keeps a copy of the state in memory."""

    @abc.abstractmethod
    def restore(self) -> None:
        """Restores the last saved copy."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks and saves it. Collective."""

    def reset(self) -> None:  # noqa: B027 (a hook)
        """Hook for subclasses: called after a reset, before the callbacks."""


class ObjectState(State):
    """A state of plain attributes: `kwargs` has their names and initial values.

    Values must support deepcopy and pickle. The initial values are saved.
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

    def stored(self) -> Stored:
        return Stored({}, {"attributes": dict(self._saved)})

    def load_stored(self, stored: Stored) -> None:
        """Subclasses check their part first, set it, and then call this."""
        attributes = stored.own["attributes"]
        check_same("attributes of the state", self._saved, attributes)
        self._saved = attributes
        self.restore()

    def receive(self) -> None:
        """Hook for subclasses: copies the state of rank 0 to all ranks without saving it.
        Collective. `sync` saves when all parts have arrived: if a rank is lost before, the last
        save is still complete."""
        if self._names:
            self._assign(self._bcast_object({name: getattr(self, name) for name in self._names}))

    def sync(self) -> None:
        self.receive()
        self.save()


def check_same(what: str, ours: Iterable[Any], stored: Iterable[Any]) -> None:
    """Raises ValueError unless the state folder has the names or sizes that this script has."""
    if sorted(ours) != sorted(stored):
        raise ValueError(f"{what} are {sorted(stored)} there and {sorted(ours)} here")


def run_fn(
    func: Callable[..., Any],
    reset: Callable[[], Any],
    any_rank: Callable[[bool], bool] = bool,
) -> Callable[..., Any]:
    """Returns a function that calls `func(state, *args, **kwargs)` until it returns, and its
    result.

    After HorovodInternalError the state is restored; after HostsUpdatedInterrupt it is kept. Then
    `reset()` restarts the job and the state is synced, unless hosts were only removed, since then
    all ranks have it. HorovodMismatchError is raised to the caller: ranks would disagree again.

    `any_rank`: collective, returns whether the argument is true on any rank. The ranks decide by it
    whether to sync. They may differ: a rank that is lost while hosts are removed is an error on
    some ranks and an interrupt on others, and a new rank always needs the state.
    """

    @functools.wraps(func)
    def repeated(state: State, *args: Any, **kwargs: Any) -> Any:
        is_reset_due = False
        is_sync_due = True
        while True:
            try:
                if is_reset_due:
                    state.forget_host_updates()
                    reset()
                    state.on_reset()
                    is_reset_due = False
                if any_rank(is_sync_due):
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
