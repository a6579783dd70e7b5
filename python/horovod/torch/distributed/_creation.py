"""Creates process groups: finds or starts the job."""

from __future__ import annotations

from typing import Any

from torch.distributed import distributed_c10d

from horovod.common import front
from horovod.common._extension import core
from horovod.common._job import Job
from horovod.torch.distributed._arrival import torch_serves
from horovod.torch.distributed._launch import launcher_of_all
from horovod.torch.distributed._members import meet_members
from horovod.torch.distributed._process_group import ProcessGroupHorovod


def create(options: Any) -> ProcessGroupHorovod:
    """Returns the group of `options`, the `_DistributedBackendOptions` of torch. Collective over
    the members of the group.

    Raises: ValueError if the ranks of torch are not those of the job.
    """
    torch_serves()
    is_default = not options.global_ranks_in_group
    has_started = is_default and not core.is_initialized()
    if has_started:
        _start(options)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    _check_rank(ranks[options.group_rank])
    # The store of another group has a prefix, which may differ between its ranks.
    store = options.store if is_default else distributed_c10d._get_default_store()
    members = meet_members(store, ranks, options.timeout, options.group_id, is_world=is_default)

    def on_shutdown() -> None:
        members.lane.close()
        if has_started:
            front.shutdown()

    return ProcessGroupHorovod(members, on_shutdown)


def _start(options: Any) -> None:
    """Starts the job: by the launcher if it has started all ranks, or else by the store of torch,
    as for scripts that start their own processes."""
    store = options.store
    rank, size = options.group_rank, options.group_size
    if launcher_of_all(store, rank, size, options.timeout) is not None:
        front.init()
        return

    def rendezvous(name: str, root_address: str | None) -> str:
        if root_address is not None:
            store.set(f"horovod/{name}", root_address)
        return str(store.get(f"horovod/{name}").decode())

    front.init(Job(rendezvous, rank=rank, size=size))


def _check_rank(rank: int) -> None:
    world = core.world()
    if rank != world.rank:
        raise ValueError(
            f"rank {rank} of torch.distributed is rank {world.rank} of {world.size} of the job: "
            "the numbers must be equal; leave RANK and WORLD_SIZE to the launcher, and call "
            "hvd.init() without comm"
        )
