"""The ranks of a process group, and what their operations run on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from horovod.common._extension import core
from horovod.common.process_sets import global_process_set, registered_set
from horovod.torch.distributed._lane import Lane
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._messages import Messages
from horovod.torch.distributed._negotiated import Negotiated
from horovod.torch.distributed._ordered import Ordered

#: That of all groups of the world in torch.
_WORLD = "0"
_LONGEST_NAME = 40

#: How many groups this process has created, by generation and name.
_created: Counter[tuple[int, str]] = Counter()


@dataclass(frozen=True)
class Members:
    """`rank`: of this process, in the group. `ranks`: all of them, global. `name`: in torch, where
    it may differ between the ranks. `store`: that of the world, which may have the keys of earlier
    groups."""

    rank: int
    ranks: list[int]
    name: str
    store: Any
    lane: Lane
    meetings: Meetings
    messages: Messages

    def split(
        self, ranks: Sequence[int], timeout: timedelta | None, name: str | None
    ) -> Members | None:
        """Returns those of a group of `ranks`, which count in this one; None on other ranks.
        Collective over `ranks`."""
        if self.rank not in ranks:
            return None
        chosen = [self.ranks[rank] for rank in ranks]
        name = name or f"{self.name}:split:{'-'.join(map(str, ranks))}"
        limit = timeout or self.meetings.timeout
        return meet_members(self.store, chosen, limit, name, is_world=False)


def meet_members(
    store: Any, ranks: list[int], timeout: timedelta, torch_name: str, *, is_world: bool
) -> Members:
    """Returns the members of a new group. Collective over `ranks`, of which this process is one.
    `store`: that of the world in torch. `is_world`: whether the group is the world.

    Raises: ValueError if the ranks are not those of the job.
    """
    _check_ranks(ranks)
    world = core.world()
    rank = ranks.index(world.rank)
    name, life = _identity(world.generation, _WORLD if is_world else _text(ranks))
    meetings = Meetings(store, world.rank, ranks, timeout, life)
    messages = Messages(name, rank, meetings)
    return Members(rank, ranks, torch_name, store, _lane(name, meetings), meetings, messages)


def _check_ranks(ranks: list[int]) -> None:
    world = core.world()
    if world.rank not in ranks or max(ranks) >= world.size:
        raise ValueError(
            f"ranks {ranks} of torch.distributed are not among the {world.size} ranks of the job, "
            f"of which this process is rank {world.rank}; leave RANK and WORLD_SIZE to the launcher"
        )
    if ranks != sorted(ranks):
        raise ValueError(
            f"the backend hvd needs groups in ascending order of ranks, got {ranks}; leave "
            "sort_ranks of new_group at True"
        )


def _identity(generation: int, text: str) -> tuple[str, str]:
    """Returns the name of a new group, which describes its ranks as `text`, and what distinguishes
    it from all others in the store, which may outlive the job.

    The names of torch do neither: some count the groups that this process has created, of which
    other members may have created more or fewer. All members have created those of the same ranks
    equally often.
    """
    _created[generation, text] += 1
    number = _created[generation, text]
    name = text if number == 1 or text == _WORLD else f"{text}.{number}"
    return name, f"{generation}.{text}.{number}"


def _text(ranks: list[int]) -> str:
    """Returns a short text for `ranks`, which differs from that of other ranks."""
    text = "ranks-" + "-".join(map(str, ranks))
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"ranks-{ranks[0]}-to-{ranks[-1]}-{digest}"


def _lane(name: str, meetings: Meetings) -> Lane:
    ranks = meetings.ranks
    if len(ranks) == core.world().size:
        return Negotiated(name, global_process_set, meetings)
    process_set = registered_set(ranks)
    if process_set is not None:
        return Negotiated(name, process_set, meetings)
    meetings.meet("group", f"new_group({ranks})")
    return Ordered(name, meetings)
