"""What ranks agree on at a commit: whether the state is written to the state folder, whether ranks
leave the job because they got SIGTERM, and whether hosts have changed.

All ranks reduce a few numbers at each commit, when they have saved. What they then write is of the
same commit, and a rank that leaves does so when all others have saved. Used by the training thread;
the signal handler runs in it, too.
"""

from __future__ import annotations

import array
import contextlib
import errno
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from horovod.common import _state_files, _state_parts
from horovod.common._departure import Departure
from horovod.common._extension import core
from horovod.common._submission import run_in_place
from horovod.common.elastic import State
from horovod.common.exceptions import HostsUpdatedInterrupt

_logger = logging.getLogger("horovod")

_MAX = 4  #: the reduction

#: Without HOROVOD_STATE_SECONDS, the time between two writes is as many times that of a write.
_TIMES_COST = 19
_ERRNO_BITS = 12

#: The folder is mistyped, is a file, or belongs to others.
_NO_FOLDER = (
    errno.EACCES,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)


class StateFolder(NamedTuple):
    """Where committed states are written, and how often. 0 s: by the cost of writing."""

    path: Path
    seconds: float

    @classmethod
    def of_job(cls) -> StateFolder | None:
        """As the variables say; `init` has checked them."""
        path = os.environ.get("HOROVOD_STATE_DIR", "")
        if not path:
            return None
        seconds = float(os.environ.get("HOROVOD_STATE_SECONDS") or 0)
        return cls(Path(path).absolute(), seconds)


def _check_folder(path: Path) -> None:
    """Raises: ValueError if this is no folder to write to. A full disk may have room later."""
    try:
        _state_files.try_to_write(path)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            reason = os.strerror(errno.ENOTDIR if error.errno == errno.EEXIST else error.errno)
            raise ValueError(
                f"the state cannot be written to HOROVOD_STATE_DIR={path}: {reason}; use another "
                "folder (--state-dir)"
            ) from None


class _Agreed(NamedTuple):
    """The largest of each number over all ranks. Those of rank 0: `is_due`, `nonce`, and what it
    knows of changed hosts."""

    leaves: int  # a rank does
    is_due: int  # the commit is to be written
    number: int  # of this commit, written or not
    nonce: int
    failure: int  # of the last write: see _failure_code
    layout: int  # of the last write
    minus_layout: int
    cost: int  # of the last write, in microseconds
    updated_at: int = 0  # hosts, in microseconds by the clock of the sender; 0: they have not
    update: int = 0  # what became of them


def _largest(values: _Agreed) -> _Agreed:
    """Reduces the numbers over all ranks. Collective."""
    numbers = array.array("q", values)
    address, count = numbers.buffer_info()
    tensor = address, (count,), core.DTYPES["int64"], numbers
    run_in_place(core.Operation(core.ALLREDUCE, _MAX), "elastic_commit", [tensor])
    return _Agreed(*numbers)


def _microseconds(timestamp: float | None) -> int:
    """Returns the time, rounded up, so that it is not before the update of this timestamp."""
    if timestamp is None:
        return 0
    return min(max(math.ceil(1e6 * timestamp) + 1, 1), 2**62)


class Kept(NamedTuple):
    """Where the last commit is. `is_own`: this rank has written it."""

    path: Path
    is_own: bool

    def __str__(self) -> str:
        if self.is_own:
            return f"its last commit was written to {self.path}"
        return f"the last commit was written to {self.path} before"


class Commits:
    """What `state.commit` does when it has saved.

    `is_elastic`: the other ranks go on when one leaves. Otherwise all leave together.
    `largest`: collective, see `_largest`.
    """

    def __init__(
        self,
        state: State,
        folder: StateFolder | None,
        departure: Departure,
        is_elastic: bool,
        largest: Callable[[_Agreed], _Agreed] | None = None,
    ) -> None:
        self._state = state
        self._folder = folder
        self._departure = departure
        self._is_elastic = is_elastic
        self._largest = largest or _largest
        self._number = 0  # of the last commit, written or not
        self._rank = 0  # in the last generation
        self._nonce = _state_files.nonce_of_all()
        self._failure = 0
        self._layout = 0
        self._cost = 0  # of the last write, in microseconds
        self._slowest = 0  # the same on the slowest rank, as rank 0 knows it
        self._next_at = 0.0  # by the monotonic clock
        self._has_warned = False
        self._has_warned_of_job = False
        self._held: int | None = None  # the folder, by rank 0
        self._unwritten = False  # the last save
        if folder is not None:
            state.stored()  # whether the state can be written
            _check_folder(folder.path)

    def load(self) -> bool:
        """Loads the newest commit of the folder, if there is one. Called on rank 0."""
        if self._folder is None:
            return False
        found = _state_files.read_newest(self._folder.path, _state_parts.joined)
        if found is None:
            return False
        commit, stored = found
        with _state_files.fitting(commit):
            self._state.load_stored(stored)
        _logger.warning("continues from commit %d in %s", commit.number, self._folder.path)
        return True

    def begin(self) -> None:
        """Called in each generation before the state is synced: ranks that joined learn the number
        of the last commit. The state that is synced has a number of its own. Collective."""
        if self._folder is None:
            return
        if core.world().rank == 0:
            self._hold(self._folder.path)
            self._number = max(self._number, self._newest_number())
        self._number += 1
        self._agree()

    def _hold(self, path: Path) -> None:
        """Not an error: a job that is requeued may meet the end of its last instance."""
        if self._held is not None:
            return
        try:
            self._held = _state_files.hold(path)
        except BlockingIOError:
            if not self._has_warned_of_job:
                self._has_warned_of_job = True
                _logger.warning("another job writes to %s: use one folder per job", path)

    def close(self) -> None:
        """Another process may be rank 0 before this one has ended."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def after_save(self) -> None:
        """Collective.

        Raises: SystemExit if this rank leaves, HostsUpdatedInterrupt if another one does, or if
        hosts have changed.
        """
        self._unwritten = True
        self._number += 1
        agreed = self._agree(self._is_due(), known=self._state.known_updates())
        if self._folder is not None and (agreed.is_due or agreed.leaves):
            self._write(self._folder, agreed)
        if agreed.leaves:
            self._leave(agreed)
        if agreed.updated_at:
            self._state.act_on_updates(1e-6 * agreed.updated_at, agreed.update)

    def finish(self) -> None:
        """Writes the last commit, if it was not written yet. Collective."""
        if self._folder is None:
            return
        agreed = self._agree(self._unwritten)
        if agreed.is_due:
            self._write(self._folder, agreed)
            self._complete(self._folder, agreed)

    def keep(self) -> Kept | None:
        """Writes all of the last commit, since there is no next generation in which ranks could
        write their parts. Others that are left may do so, too. Returns where it is, or warns. Not
        collective."""
        if self._folder is None:
            return None
        nonce = _state_files.nonce_of_one(self._rank)
        own = _state_files.commit_in(self._folder.path, self._number, nonce)
        try:
            kept = _state_files.write_alone(
                own, lambda: _state_parts.part_of(self._state.stored(), 0, 1).content
            )
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            said = f"rank {self._rank}: the last commit could not be written to"
            _logger.warning("%s %s: %s. %s", said, self._folder.path, reason, self._new_start())
            return None
        return Kept(kept.path, kept == own)

    def _agree(self, is_due: bool = False, known: tuple[float | None, int] = (None, 0)) -> _Agreed:
        """`is_due`: the last commit is to be written, if this is rank 0."""
        self._rank = core.world().rank
        is_first = self._rank == 0
        if is_first and is_due:  # another job may have written meanwhile
            self._number = max(self._number, self._newest_number() + 1)
        own = _Agreed(
            leaves=int(self._departure.is_requested),
            is_due=int(is_first and is_due),
            number=self._number,
            nonce=self._nonce if is_first else 0,
            failure=self._failure,
            layout=self._layout,
            minus_layout=-self._layout if self._layout else -(2**62),
            cost=self._cost,
            updated_at=_microseconds(known[0]) if is_first else 0,
            update=known[1] if is_first else 0,
        )
        agreed = self._largest(own)
        self._number = agreed.number
        self._failure = 0
        if is_first:
            self._report(agreed)
        return agreed

    def _is_due(self) -> bool:
        return self._folder is not None and time.monotonic() >= self._next_at

    def _newest_number(self) -> int:
        with contextlib.suppress(OSError):
            return _state_files.newest_number(self._folder.path) if self._folder else 0
        return 0

    def _write(self, folder: StateFolder, agreed: _Agreed) -> None:
        begin = time.monotonic()
        world = core.world()
        commit = _state_files.commit_in(folder.path, agreed.number, agreed.nonce)
        try:
            part = _state_parts.part_of(self._state.stored(), world.rank, world.size)
            self._layout = part.layout
            try:
                _state_files.write_part(commit, world.rank, world.size, part.content)
                self._unwritten = False
            finally:  # also if the disk is full
                if world.rank == 0:
                    _state_files.remove_old(commit)
        except OSError as error:
            self._failure = (error.errno or errno.EIO) << _ERRNO_BITS | world.rank % 2**_ERRNO_BITS
        end = time.monotonic()
        self._cost = int(1e6 * (end - begin))
        cost = 1e-6 * max(self._cost, self._slowest)
        self._next_at = end + (folder.seconds or _TIMES_COST * cost)

    def _report(self, agreed: _Agreed) -> None:
        """Warns once: training continues. Called on rank 0."""
        if self._folder is None:
            return
        self._slowest = agreed.cost
        text = self._problem(agreed)
        if text and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "a commit could not be written to %s: %s. Training continues. %s. This is the only "
                "warning",
                self._folder.path,
                text,
                self._new_start(),
            )

    def _new_start(self) -> str:
        if self._folder is not None and _state_files.has_complete(self._folder.path):
            return "A new start begins with the last commit that was written"
        return "No commit was written so far: a new start begins from the beginning"

    def _problem(self, agreed: _Agreed) -> str:
        if agreed.failure:
            number, rank = divmod(agreed.failure, 2**_ERRNO_BITS)
            return f"rank {rank}: {os.strerror(number)}"
        is_comparable = agreed.layout > 0 and agreed.minus_layout > -(2**62)
        if is_comparable and agreed.layout != -agreed.minus_layout:
            return "ranks have tensors of different sizes in their states"
        return ""

    def _leave(self, agreed: _Agreed) -> None:
        """All parts must be written before the first rank ends, since launchers then end others."""
        if self._folder is not None:
            self._complete(self._folder, agreed)
        if self._departure.is_requested or not self._is_elastic:
            self._departure.leave()
        raise HostsUpdatedInterrupt(skip_sync=True)

    def _complete(self, folder: StateFolder, agreed: _Agreed) -> None:
        """Waits until all ranks have written this commit, and learns what has failed. If it is the
        last one, there is none whose writing would remove the third. Collective."""
        self._agree()
        if self._rank == 0:
            with contextlib.suppress(OSError):
                commit = _state_files.commit_in(folder.path, agreed.number, agreed.nonce)
                _state_files.remove_old(commit)
