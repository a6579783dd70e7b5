"""Creates process groups: finds or starts the job, and chooses how operations of a group run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from horovod.common import front
from horovod.common._extension import core
from horovod.common._job import Job
from horovod.common.process_sets import global_process_set, registered_set
from horovod.torch.distributed._lane import Lane
from horovod.torch.distributed._launch import launcher_of_all
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._messages import Messages
from horovod.torch.distributed._negotiated import Negotiated
from horovod.torch.distributed._ordered import Ordered
from horovod.torch.distributed._process_group import ProcessGroupHorovod

#: How many groups this process has created, by generation, name and ranks.
_created: Counter[tuple[Any, ...]] = Counter()


def create(options: Any) -> ProcessGroupHorovod:
    """Returns the group of `options`, the `_DistributedBackendOptions` of torch. Collective over
    the members of the group.

    Raises: ValueError if the ranks of torch are not those of the job.
    """
    is_default = not options.global_ranks_in_group
    has_started = is_default and not core.is_initialized()
    if has_started:
        _start(options)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    _check_ranks(ranks, options)
    name = _short(options.group_id)
    world = core.world()
    meetings = Meetings(
        options.store, world.rank, ranks, options.timeout, _life(world.generation, name, ranks)
    )
    lane = _lane(name, meetings)

    def on_shutdown() -> None:
        lane.close()
        if has_started:
            front.shutdown()

    rank = options.group_rank
    messages = Messages(name, rank, meetings)
    return ProcessGroupHorovod(
        rank, options.group_size, options.group_id, lane, meetings, messages, on_shutdown
    )


def _life(generation: int, name: str, ranks: list[int]) -> str:
    """Returns what distinguishes this group from earlier ones in the same store, which may outlive
    the job. All members have created the group equally often."""
    key = (generation, name, tuple(ranks))
    _created[key] += 1
    return f"{generation}.{_created[key]}"


def _start(options: Any) -> None:
    """Starts the job: by the launcher if it has started all ranks, or else by the store of torch,
    as for scripts that start their own processes."""
    store = options.store
    if launcher_of_all(store, options.group_rank, options.group_size) is not None:
        front.init()
        return

    def rendezvous(name: str, root_address: str | None) -> str:
        if root_address is not None:
            store.set(f"horovod/{name}", root_address)
        return str(store.get(f"horovod/{name}").decode())

    front.init(Job(rendezvous, rank=options.group_rank, size=options.group_size))


def _check_ranks(ranks: list[int], options: Any) -> None:
    world = core.world()
    own = ranks[options.group_rank]
    if own != world.rank or max(ranks) >= world.size:
        raise ValueError(
            f"rank {own} of torch.distributed is rank {world.rank} of {world.size} of the job: the "
            "numbers must be equal; leave RANK and WORLD_SIZE to the launcher, and call hvd.init() "
            "without comm"
        )
    if ranks != sorted(ranks):
        raise ValueError(
            f"the backend hvd needs groups in ascending order of ranks, got {ranks}; leave "
            "sort_ranks of new_group at True"
        )


def _lane(name: str, meetings: Meetings) -> Lane:
    ranks = meetings.ranks
    if len(ranks) == core.world().size:
        return Negotiated(name, global_process_set, meetings)
    process_set = registered_set(ranks)
    if process_set is not None:
        return Negotiated(name, process_set, meetings)
    meetings.meet("group", f"new_group({ranks})")
    return Ordered(name, ranks)


def _short(group_id: str) -> str:
    """Returns the name of a group for messages. torch calls the world "0" or "default_pg"."""
    return str(group_id).removeprefix("default_pg").strip("/") or "0"
