"""Measures collectives of torch.distributed by the backend "hvd", compared with Gloo.

    ./dev bench distributed [--np 2 4] [--kinds all_reduce ...] [--types float32 ...]
                            [--lengths 8 64K 4M] [--rounds 9] [--json FILE]

The same functions of torch.distributed on two groups of the same processes, blocking and with
async_op. The size is the larger buffer of a rank. all_reduce and reduce sum; rank 0 is the root. A
barrier has neither type nor size. Results are checked.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness import options, together
from harness.results import Work
from harness.together import Bench, Ranks, Task

TYPES = ("float32", "bfloat16", "int64")
LENGTHS = (8, 64 << 10, 4 << 20)
NO_TYPE = "alone"  #: of a barrier
#: By which a rank is late to the barrier that is checked.
LATE_S = 0.02

#: Takes `async_op`.
Call = Callable[..., Any]


class Case(NamedTuple):
    """The calls of one kind on a group. All buffers hold zeros, so sums in place stay small."""

    call: Call
    given: Any
    made: Any  #: may be `given`
    #: From what all ranks give, by rank: what a rank gets. None: anything.
    expected: Callable[[list[Any], int], Any]


def all_reduce(dist: Any, group: Any, whole: Any) -> Case:
    call = functools.partial(dist.all_reduce, whole, group=group)
    return Case(call, whole, whole, lambda given, rank: total(given))


def reduce(dist: Any, group: Any, whole: Any) -> Case:
    """Other ranks than the root may keep what they gave, or not."""
    call = functools.partial(dist.reduce, whole, 0, group=group)
    return Case(call, whole, whole, lambda given, rank: None if rank else total(given))


def broadcast(dist: Any, group: Any, whole: Any) -> Case:
    call = functools.partial(dist.broadcast, whole, 0, group=group)
    return Case(call, whole, whole, lambda given, rank: given[0])


def all_gather(dist: Any, group: Any, whole: Any) -> Case:
    part = whole.chunk(dist.get_world_size())[0].clone()
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    call = functools.partial(gather, whole, part, group=group)
    return Case(call, part, whole, lambda given, rank: joined(given))


def gather(dist: Any, group: Any, whole: Any) -> Case:
    parts = list(whole.chunk(dist.get_world_size()))
    part = parts[0].clone()
    to = parts if dist.get_rank() == 0 else None
    call = functools.partial(dist.gather, part, to, 0, group=group)
    return Case(call, part, whole, lambda given, rank: None if rank else joined(given))


def scatter(dist: Any, group: Any, whole: Any) -> Case:
    parts = list(whole.chunk(dist.get_world_size()))
    part = parts[0].clone()
    call = functools.partial(
        dist.scatter, part, parts if dist.get_rank() == 0 else None, 0, group=group
    )
    return Case(call, whole, part, lambda given, rank: given[0].chunk(len(given))[rank])


def reduce_scatter(dist: Any, group: Any, whole: Any) -> Case:
    part = whole.chunk(dist.get_world_size())[0].clone()
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    call = functools.partial(scatter, part, whole, group=group)
    return Case(call, whole, part, lambda given, rank: total(chunks_of(given, rank)))


def all_to_all(dist: Any, group: Any, whole: Any) -> Case:
    dealt = whole.clone()
    call = functools.partial(dist.all_to_all_single, dealt, whole, group=group)
    return Case(call, whole, dealt, lambda given, rank: joined(chunks_of(given, rank)))


def send_recv(dist: Any, group: Any, whole: Any) -> Case:
    """Each rank sends to the next one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = whole.clone()

    def call(async_op: bool) -> Any:
        sent = dist.isend(whole, (rank + 1) % size, group=group)
        got = dist.irecv(received, (rank - 1) % size, group=group)
        sent.wait()
        return got if async_op else got.wait()

    return Case(call, whole, received, lambda given, rank: given[rank - 1])


def chunks_of(given: list[Any], rank: int) -> list[Any]:
    return [one.chunk(len(given))[rank] for one in given]


def total(parts: list[Any]) -> Any:
    return sum(parts[1:], parts[0])


def joined(parts: list[Any]) -> Any:
    import torch

    return torch.cat(parts)


KINDS = {
    made.__name__: made
    for made in (
        all_reduce,
        reduce,
        broadcast,
        all_gather,
        gather,
        scatter,
        reduce_scatter,
        all_to_all,
        send_recv,
    )
}
BARRIER = "barrier"


def is_correct(case: Case, work: Callable[[], object], ranks: Ranks) -> bool:
    """Collective: runs the call once on small numbers, which all types can add exactly."""
    import torch

    numbers = torch.arange(case.given.numel()) % 7
    given = [(numbers + rank).to(case.given.dtype) for rank in range(ranks.size)]
    case.made.fill_(-1)
    case.given.copy_(given[ranks.rank])
    work()
    expected = case.expected(given, ranks.rank)
    is_right = expected is None or torch.equal(case.made, expected)
    for buffer in (case.given, case.made):
        buffer.zero_()
    return is_right


def waits_for_all(wait: Callable[[], object], ranks: Ranks) -> bool:
    """Collective: whether no rank leaves a barrier before the last one has come to it."""
    if ranks.rank == ranks.size - 1:
        time.sleep(LATE_S)
    came = time.monotonic()
    wait()
    left = time.monotonic()
    return left >= ranks.greatest([came])[0]


def barrier(ranks: Ranks, work: Work) -> Task:
    import torch.distributed as dist

    contestants: dict[str, Callable[[], object]] = {}
    for label, group in groups(ranks).items():
        call = functools.partial(dist.barrier, group=group)
        for name, how in ways(label).items():
            contestants[name] = how(call)
    return Task(work, 0, contestants, lambda name: waits_for_all(contestants[name], ranks))


def groups(ranks: Ranks) -> dict[str, Any]:
    import torch.distributed as dist

    return {"ours": ranks.group_of_ours(), "Gloo": dist.group.WORLD}


def ways(label: str) -> dict[str, Callable[[Call], Callable[[], object]]]:
    return {label: blocking, f"{label}, asynchronous": waited_for}


def tasks(ranks: Ranks, work: Work, lengths: Sequence[int]) -> list[Task]:
    import torch
    import torch.distributed as dist

    if work.kind == BARRIER:
        return [barrier(ranks, work)]
    made = []
    dtype = getattr(torch, work.type)
    for length in lengths:
        elements = max(1, length // dtype.itemsize // ranks.size) * ranks.size
        cases: dict[str, Case] = {}
        contestants: dict[str, Callable[[], object]] = {}
        for label, group in groups(ranks).items():
            case = KINDS[work.kind](dist, group, torch.zeros(elements, dtype=dtype))
            for name, how in ways(label).items():
                cases[name], contestants[name] = case, how(case.call)
        made.append(Task(work, length, contestants, checker(cases, contestants, ranks)))
    return made


def checker(
    cases: Mapping[str, Case], contestants: Mapping[str, Callable[[], object]], ranks: Ranks
) -> Callable[[str], bool]:
    return lambda name: is_correct(cases[name], contestants[name], ranks)


def blocking(call: Call) -> Callable[[], object]:
    return lambda: call(async_op=False)


def waited_for(call: Call) -> Callable[[], object]:
    return lambda: call(async_op=True).wait()


def works(np: int, kinds: Sequence[str], types: Sequence[str]) -> list[Work]:
    with_types = [Work("torch", kind, type, np) for kind in kinds for type in types]
    made = [each for each in with_types if each.kind != BARRIER]
    return [*made, *[Work("torch", BARRIER, NO_TYPE, np)] * (BARRIER in kinds)]


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    for work in works(ranks.size, arguments.kinds, arguments.types):
        for task in tasks(ranks, work, arguments.lengths):
            together.compete(ranks, task, arguments.rounds, arguments.seconds)
    ranks.end()


def main() -> int:
    parser = options.parser(__doc__, [2, 4], None, ["gloo"])
    kinds = [*KINDS, BARRIER]
    parser.add_argument("--kinds", **options.listed(options.one_of(kinds)), default=list(kinds))
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
