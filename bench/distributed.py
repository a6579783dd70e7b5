"""Measures collectives of torch.distributed by the backend "hvd", compared with Gloo.

    ./dev bench distributed [--np 2 4] [--kinds all_reduce ...] [--types float32 ...]
                            [--lengths 8 64K 4M] [--rounds 9] [--json FILE]

The same functions of torch.distributed on two groups of the same processes, blocking and with
async_op. The size is the larger buffer of a rank. all_reduce sums; rank 0 is the root.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from harness import options, together
from harness.results import Work
from harness.together import Bench, Ranks, Task

TYPES = ("float32", "bfloat16", "int64")
LENGTHS = (8, 64 << 10, 4 << 20)

#: Makes the calls of one kind: arguments are torch.distributed, the group, and the whole buffer.
#: Each returned function takes `async_op`.
Call = Callable[..., Any]


def all_reduce(dist: Any, group: Any, whole: Any) -> Call:
    return lambda **how: dist.all_reduce(whole, group=group, **how)


def broadcast(dist: Any, group: Any, whole: Any) -> Call:
    return lambda **how: dist.broadcast(whole, 0, group=group, **how)


def all_gather(dist: Any, group: Any, whole: Any) -> Call:
    part = whole.chunk(dist.get_world_size())[0].clone()
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    return lambda **how: gather(whole, part, group=group, **how)


def reduce_scatter(dist: Any, group: Any, whole: Any) -> Call:
    part = whole.chunk(dist.get_world_size())[0].clone()
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    return lambda **how: scatter(part, whole, group=group, **how)


def all_to_all(dist: Any, group: Any, whole: Any) -> Call:
    dealt = whole.clone()
    return lambda **how: dist.all_to_all_single(dealt, whole, group=group, **how)


def send_recv(dist: Any, group: Any, whole: Any) -> Call:
    """Each rank sends to the next one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = whole.clone()

    def call(async_op: bool) -> Any:
        sent = dist.isend(whole, (rank + 1) % size, group=group)
        got = dist.irecv(received, (rank - 1) % size, group=group)
        sent.wait()
        return got if async_op else got.wait()

    return call


KINDS = {
    made.__name__: made
    for made in (all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, send_recv)
}


def tasks(ranks: Ranks, work: Work, lengths: Sequence[int]) -> list[Task]:
    import torch
    import torch.distributed as dist

    made = []
    dtype = getattr(torch, work.type)
    for length in lengths:
        elements = max(1, length // dtype.itemsize // ranks.size) * ranks.size
        contestants: dict[str, Callable[[], object]] = {}
        for label, group in (("ours", ranks.group_of_ours()), ("Gloo", dist.group.WORLD)):
            call = KINDS[work.kind](dist, group, torch.zeros(elements, dtype=dtype))
            contestants[label] = blocking(call)
            contestants[f"{label}, asynchronous"] = waited_for(call)
        made.append(Task(work, length, contestants))
    return made


def blocking(call: Call) -> Callable[[], object]:
    return lambda: call(async_op=False)


def waited_for(call: Call) -> Callable[[], object]:
    return lambda: call(async_op=True).wait()


def works(np: int, kinds: Sequence[str], types: Sequence[str]) -> list[Work]:
    return [Work("torch", kind, type, np) for kind in kinds for type in types]


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    for work in works(ranks.size, arguments.kinds, arguments.types):
        for task in tasks(ranks, work, arguments.lengths):
            together.compete(ranks, task, arguments.rounds, arguments.seconds)
    ranks.end()


def main() -> int:
    parser = options.parser(__doc__, [2, 4], None, ["gloo"])
    parser.add_argument("--kinds", **options.listed(options.one_of(KINDS)), default=list(KINDS))
    parser.add_argument("--types", **options.listed(options.one_of(TYPES)), default=list(TYPES))
    parser.add_argument("--lengths", **options.listed(options.size), default=list(LENGTHS))
    arguments = together.parse_worker(parser)
    if arguments.worker:
        work(arguments)
        return 0
    chosen = ["--kinds", *arguments.kinds, "--types", *arguments.types]
    bench = Bench(
        "distributed",
        together.script_path(__file__),
        lambda np: works(np, arguments.kinds, arguments.types),
        [*chosen, "--lengths", *map(str, arguments.lengths)],
    )
    return together.main(bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
