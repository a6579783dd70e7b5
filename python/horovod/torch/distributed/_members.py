"""The ranks of a process group, and what their operations run on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed.distributed_c10d

from horovod.common._extension import core
from horovod.common.process_sets import global_process_set, registered_set
from horovod.torch.distributed._lane import Lane
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._messages import Messages
from horovod.torch.distributed._negotiated import Negotiated
from horovod.torch.distributed._ordered import Ordered

_PrefixStore: Any = torch.distributed.distributed_c10d.PrefixStore

#: How many groups this process has created, by generation, name and ranks.
_created: Counter[tuple[Any, ...]] = Counter()


@dataclass(frozen=True)
class Members:
    """`rank`: of this process, in the group. `ranks`: all of them, global. `name`: in torch.
    `store`: that of the group in torch, which may have the keys of earlier groups."""

    rank: int
    ranks: list[int]
    name: str
    store: Any
    lane: Lane
    meetings: Meetings
    messages: Messages

    def split(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None,
        name: str | None,
        store: Any = None,
    ) -> Members | None:
        """Returns those of a group of `ranks`, which count in this one; None on other ranks.
        Collective over `ranks`. `store`: None: a part of that of this group."""
        if self.rank not in ranks:
            return None
        chosen = [self.ranks[rank] for rank in ranks]
        name = name or f"{self.name}:split:{'-'.join(map(str, ranks))}"
        if store is None:
            store = _PrefixStore(f"{name}/", self.store)
        return meet_members(store, chosen, timeout or self.meetings.timeout, name)


def meet_members(store: Any, ranks: list[int], timeout: timedelta, group_id: str) -> Members:
    """Returns the members of a new group. Collective over `ranks`, of which this process is one.

    Raises: ValueError if the ranks are not those of the job.
    """
    _check_ranks(ranks)
    world = core.world()
    rank = ranks.index(world.rank)
    name = _short(group_id)
    meetings = Meetings(store, world.rank, ranks, timeout, _life(world.generation, name, ranks))
    messages = Messages(name, rank, meetings)
    return Members(rank, ranks, group_id, store, _lane(name, meetings), meetings, messages)


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


def _life(generation: int, name: str, ranks: list[int]) -> str:
    """Returns what distinguishes this group from earlier ones in the same store, which may outlive
    the job. All members have created the group equally often."""
    key = (generation, name, tuple(ranks))
    _created[key] += 1
    return f"{generation}.{_created[key]}"


def _lane(name: str, meetings: Meetings) -> Lane:
    ranks = meetings.ranks
    if len(ranks) == core.world().size:
        return Negotiated(name, global_process_set, meetings)
    process_set = registered_set(ranks)
    if process_set is not None:
        return Negotiated(name, process_set, meetings)
    meetings.meet("group", f"new_group({ranks})")
    return Ordered(name, meetings)


def _short(group_id: str) -> str:
    """Returns the name of a group for messages. torch calls the world "0" or "default_pg"."""
    return str(group_id).removeprefix("default_pg").strip("/") or "0"
