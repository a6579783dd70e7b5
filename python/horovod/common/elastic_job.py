"""The place of this process in an elastic job, whose number of ranks may change.

The launcher decides which workers (processes) are ranks. Each decision begins a generation. A
worker keeps its process from one generation to the next; its rank may change:

    hvd.init()              # generation 0, or the generation in which a replacement joins
    ...                     # until HorovodInternalError or HostsUpdatedInterrupt
    hvd.shutdown()
    next_generation()       # blocks until the launcher has assigned a place
    hvd.init()              # forms the generation with the other workers

`next_generation`, `init` and `leave` are called by the training thread. Any thread may call the
others.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from horovod.common._extension import core


class Update(NamedTuple):
    """The launcher has announced that the next generation will have other workers.

    `added`: workers wait to join. `removed`: workers of this generation will leave. Both may be
    true. `timestamp`: seconds by the launcher's clock; a later announcement has a larger one.
    """

    added: bool
    removed: bool
    timestamp: float


def is_elastic() -> bool:
    """Returns whether an elastic job has started this process."""
    return core.is_elastic()


def generation() -> int:
    """Returns the generation for which the launcher has assigned a place, from 0.

    -1: none yet. This is a worker that was started later and has not called `init`.
    Raises: ValueError outside of elastic jobs.
    """
    return core.place()[0]


def pending_update() -> Update | None:
    """Returns the newest announcement that was not taken yet, or None. Does not block.

    Announcements are taken with it: the next call returns None, unless there is a newer one. If
    several are pending, `added` and `removed` are those of all of them. Announcements from before
    this worker got its place are dropped.
    Raises: HorovodInternalError if the launcher is lost, ValueError outside of elastic jobs.
    """
    update = core.pending_update()
    return None if update is None else Update(*update)


def next_generation() -> None:
    """Blocks until the launcher has assigned this worker a place in a new generation.

    Call it after `shutdown`. Afterwards `init` forms that generation, and the variables that
    describe the rank (HOROVOD_RANK, HOROVOD_SIZE, ...) have their new values in `os.environ`.
    The lowest survivor of the previous generation is rank 0.
    Raises: HorovodShutdownError if this worker has no place any more: its host or slot was removed.
    HorovodInternalError if there is no next generation: the job ends, or the launcher is lost. Do
    not call it again then; let the process end. ValueError outside of elastic jobs, or if Horovod
    is still initialized.
    """
    core.ask_for_place()
    core.await_place()
    adopt_place()


def leave() -> None:
    """Tells the launcher that this process leaves the job for good.

    The others begin their next generation without it, and do not wait for its end. Call it when all
    ranks have what they need of this one, such as after a commit. Let the process end then.
    Raises: HorovodInternalError if the launcher is lost. ValueError outside of elastic jobs.
    """
    core.leave_job()


def adopt_place() -> None:
    """Sets the variables of this process that describe its rank to those of its place."""
    for line in core.place()[1].splitlines():
        name, _, value = line.partition("=")
        os.environ[name] = value
