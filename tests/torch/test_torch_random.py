"""Random operations against what one process computes for all ranks.

All ranks draw the same programs from a seed, one for each thread. In a program several operations
are in flight at a time; each rank waits for them in an order of its own, and some ranks take the
memory away from tensors in flight.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from cases import EVERY_CASE, MOVING, REDUCING
from cases import check as check_case
from ranks import MANY, NARROW, needs_job, on_ranks, run_alone, tell
from reference import EVERY_TYPE, FLOATS, INTEGERS, every, expected, same, value

import horovod.torch as hvd

Check = Callable[[], None]
NUMBERS = [*FLOATS, *INTEGERS]
OPS = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max]


class Draw(NamedTuple):
    """What an operation is made of: numbers that all ranks draw alike, those of this rank, and a
    name."""

    common: random.Random
    own: random.Random
    name: str

    def dtype(self) -> torch.dtype:
        return self.common.choice(NUMBERS)

    def op(self) -> int:
        return self.common.choice(OPS)

    def salt(self) -> int:
        return self.common.randrange(1 << 20)

    def elements(self) -> int:
        return self.common.choice([1, 2, 17, 300, 5000])


def any_case(draw: Draw) -> Check:
    """One of all kinds of operations; the inputs are dropped at once."""
    kind = draw.common.choice(list(EVERY_CASE))
    types = EVERY_TYPE if kind in MOVING else NUMBERS
    dtype = draw.common.choice([*types, torch.bool] if kind in REDUCING else types)
    handle, wanted = EVERY_CASE[kind](hvd.global_process_set, dtype, draw.name, draw.salt())
    return lambda: check_case(hvd.synchronize(handle), wanted, (draw.name, kind, dtype))


def shared_inputs(draw: Draw) -> Check:
    """Overlapping parts of one tensor, read by several operations at the same time."""
    dtype, op, salt, count = draw.dtype(), draw.op(), draw.salt(), draw.elements()
    first, last = sorted(draw.common.randrange(count + 1) for _ in range(2))
    base = value(hvd.rank(), (count,), dtype, salt)
    whole = expected(every((count,), dtype, salt), op)
    one = hvd.allreduce_async(base, name=f"{draw.name}.one", op=op)
    parts = hvd.grouped_allreduce_async(
        [base[first:last], base, base[first:]], name=f"{draw.name}.parts", op=op
    )
    moved = hvd.broadcast_async(base[:last], 0, f"{draw.name}.moved")

    def check() -> None:
        check_case(hvd.synchronize(one), whole, draw.name)
        check_case(hvd.synchronize(parts), [whole[first:last], whole, whole[first:]], draw.name)
        check_case(hvd.synchronize(moved), value(0, (count,), dtype, salt)[:last], draw.name)
        same(base, value(hvd.rank(), (count,), dtype, salt), draw.name)

    return check


def parts_in_place(draw: Draw) -> Check:
    """Parts of one storage that do not overlap, each changed in place by another operation."""
    dtype, op, salt, count = draw.dtype(), draw.op(), draw.salt(), draw.elements()
    cut = draw.common.randrange(count + 1)
    base = value(hvd.rank(), (count,), dtype, salt)
    handles = [
        hvd.allreduce_async_(base[:cut], name=f"{draw.name}.first", op=op),
        hvd.broadcast_async_(base[cut:], 0, f"{draw.name}.second"),
    ]
    wanted = expected(every((count,), dtype, salt), op)
    wanted[cut:] = value(0, (count,), dtype, salt)[cut:]

    def check() -> None:
        for handle in handles:
            hvd.synchronize(handle)
        same(base, wanted, draw.name)

    return check


def overlapping_in_place(draw: Draw) -> Check:
    """Overlapping parts of one tensor in one group: each is the reduction of what it was before."""
    dtype, op, salt, count = draw.dtype(), draw.op(), draw.salt(), draw.elements()
    first, last = sorted(draw.common.randrange(count + 1) for _ in range(2))
    base = value(hvd.rank(), (count,), dtype, salt)
    whole = [base[:last], base[first:], base]
    group = draw.common.choice([[base, base], [base, base[:last]], [base[first:], base], whole])
    handle = hvd.grouped_allreduce_async_(group, name=draw.name, op=op)
    wanted = expected(every((count,), dtype, salt), op)

    def check() -> None:
        hvd.synchronize(handle)
        same(base, wanted, draw.name)

    return check


def take_memory_away(tensor: torch.Tensor, own: random.Random) -> None:
    """In one of the ways that leave the storage itself alone."""
    if own.random() < 0.5:
        tensor.data = torch.zeros(3, dtype=tensor.dtype)
    else:
        tensor.set_()  # type: ignore[call-overload]


def losing_memory(draw: Draw) -> Check:
    """Some ranks give their tensors other memory in flight; the others get the right result."""
    dtype, op, salt, count = draw.dtype(), draw.op(), draw.salt(), draw.elements()
    tensors = [value(hvd.rank(), (count,), dtype, salt + turn) for turn in range(2)]
    wanted = [expected(every((count,), dtype, salt + turn), op) for turn in range(2)]
    if draw.common.random() < 0.5:
        handle = hvd.grouped_allreduce_async_(tensors, name=draw.name, op=op)
    else:
        handle = hvd.grouped_allreduce_async(tensors, name=draw.name, op=op)
    loses = draw.own.random() < 0.5
    if loses:
        for tensor in tensors:
            take_memory_away(tensor, draw.own)

    def check() -> None:
        results = hvd.synchronize(handle)
        if not loses:
            check_case(results, wanted, draw.name)

    return check


def resized_too_early(draw: Draw) -> Check:
    """Memory that is in use is not freed, unless this rank was the last and all is done."""
    salt, count = draw.salt(), draw.elements()
    tensor = value(hvd.rank(), (count,), torch.float32, salt)
    handle = hvd.allreduce_async_(tensor, name=draw.name, op=hvd.Sum)
    try:
        tensor.untyped_storage().resize_(4 * count)
    except RuntimeError as error:
        assert draw.name in str(error), error
    wanted = expected(every((count,), torch.float32, salt), hvd.Sum)
    return lambda: check_case(hvd.synchronize(handle), wanted, draw.name)


def negated(draw: Draw) -> Check:
    """The memory of the input holds the negative values."""
    dtype, op, salt, count = draw.common.choice(FLOATS), draw.op(), draw.salt(), draw.elements()
    view = torch._neg_view(-value(hvd.rank(), (count,), dtype, salt))
    handle = hvd.allreduce_async(view, name=draw.name, op=op)
    wanted = expected(every((count,), dtype, salt), op)
    return lambda: check_case(hvd.synchronize(handle), wanted, draw.name)


KINDS: list[Callable[[Draw], Check]] = [
    any_case,
    any_case,
    any_case,
    shared_inputs,
    parts_in_place,
    overlapping_in_place,
    losing_memory,
    resized_too_early,
    negated,
]


def run_program(seed: int, rounds: int) -> None:
    """Half of the names come back in the next rounds, for other operations."""
    common, own = random.Random(seed), random.Random(f"{seed} {hvd.rank()}")
    for turn in range(rounds):
        checks = []
        for index in range(common.randint(1, 6)):
            name = f"{seed}.{turn}.{index}" if common.random() < 0.5 else f"{seed}.{index}"
            checks.append(common.choice(KINDS)(Draw(common, own, name)))
        own.shuffle(checks)
        for check in checks:
            check()


class Program(threading.Thread):
    """Runs a program and keeps what went wrong."""

    def __init__(self, seed: int, rounds: int) -> None:
        super().__init__()
        self.seed = seed
        self.rounds = rounds
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            run_program(self.seed, self.rounds)
        except Exception as problem:
            self.problem = problem


@on_ranks(2, 3, NARROW, MANY)
@pytest.mark.filterwarnings("ignore")
def test_random_operations_from_several_threads_give_what_one_process_computes() -> None:
    for first_seed in (0, 10):
        programs = [Program(first_seed + number, rounds=10) for number in range(3)]
        for program in programs:
            program.start()
        for program in programs:
            program.join()
        for program in programs:
            if program.problem is not None:
                raise AssertionError(f"seed {program.seed}") from program.problem


class Last(Program):
    """Tells when it is done."""

    def run(self) -> None:
        threading.main_thread().join()
        super().run()
        tell(repr(self.problem))


def threads_outlive_main() -> None:
    hvd.init()
    for seed in (20, 21):
        Last(seed, rounds=5).start()


@needs_job
def test_threads_that_outlive_main_go_on_with_their_operations() -> None:
    job = run_alone(2, threads_outlive_main)
    assert job.returncode == 0, job.output
    assert job.told == [["None", "None"]] * 2, job.told
