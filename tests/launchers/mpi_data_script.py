"""What the ranks of test_mpi_data.py run: `mpi_data_script.py FOLDER WHAT`. Operations of every
kind by the interface that all bindings use, against NumPy, which knows what every rank sends."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from rank_jobs import begin_telling, say_begun, tell

from horovod.common._extension import core
from horovod.common.basics import HorovodBasics

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)

hvd = HorovodBasics(__file__)


def values_of(rank: int, shape: tuple[int, ...], dtype: str, shift: int = 0) -> np.ndarray:
    """Small whole numbers, which every type can add up."""
    count = int(np.prod(shape))
    numbers = (np.arange(count) * 7 + rank * 3 + shift) % 5
    return numbers.reshape(shape).astype(dtype)


def described(arrays: list[np.ndarray]) -> list[tuple[Any, ...]]:
    """As the runtime takes them."""
    return [(one.ctypes.data, one.shape, core.DTYPES[one.dtype.name], one) for one in arrays]


class Operation:
    """One that is under way; `finish` returns its outputs."""

    def __init__(self, kind: int, name: str, inputs: list[np.ndarray], **options: Any) -> None:
        self.inputs = inputs
        self.outputs = [np.empty_like(one) for one in inputs]
        if kind == core.REDUCESCATTER:
            size, rank = core.process_set(options.get("process_set", 0))
            self.outputs = [np.array_split(one, size)[rank].copy() for one in inputs]
        self.gathers = kind in (core.ALLGATHER, core.ALLTOALL)
        wanted = None if self.gathers else described(self.outputs)
        operation = core.Operation(kind, **options)
        self.handle = core.submit_tensors(operation, name, described(inputs), wanted, None)

    def finish(self) -> list[np.ndarray]:
        core.wait(self.handle)
        if self.gathers:
            for index, one in enumerate(self.inputs):
                memory, shape = core.output(self.handle, index)
                self.outputs[index] = np.frombuffer(memory, one.dtype).reshape(shape).copy()
        core.free(self.handle)
        return self.outputs


def run(kind: int, name: str, value: np.ndarray, **options: Any) -> np.ndarray:
    return Operation(kind, name, [value], **options).finish()[0]


def expect(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    assert found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    exact = not np.issubdtype(found.dtype, np.floating)
    rounding = 0 if exact else 2 * np.finfo(found.dtype).eps  # thirds
    np.testing.assert_allclose(found, wanted.astype(found.dtype), rounding, err_msg=what)


def inputs_of(ranks: list[int], shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    return [values_of(rank, shape, dtype) for rank in ranks]


def check_reductions(ranks: list[int], dtype: str, process_set: int) -> None:
    shape = (len(ranks) * 2 + 1, 300)
    everyone = np.stack(inputs_of(ranks, shape, dtype)).astype(np.float64)
    wanted = {
        SUM: everyone.sum(0),
        MIN: everyone.min(0),
        MAX: everyone.max(0),
        PRODUCT: everyone.prod(0),
        AVERAGE: np.trunc(everyone.mean(0)) if dtype == "int64" else everyone.mean(0),
    }
    place = core.process_set(process_set)[1]
    mine = values_of(hvd.rank(), shape, dtype)
    for op, result in wanted.items():
        common = {"op": op, "process_set": process_set}
        what = f"{dtype} op {op} set {process_set}"
        expect(run(core.ALLREDUCE, f"allreduce {what}", mine, **common), result, what)
        if op in (SUM, AVERAGE):
            rows = np.array_split(result, len(ranks))[place]
            expect(run(core.REDUCESCATTER, f"scatter {what}", mine, **common), rows, what)
    scaled = {"op": SUM, "prescale": 2.0, "postscale": 0.5, "process_set": process_set}
    expect(run(core.ALLREDUCE, f"scaled {dtype} {process_set}", mine, **scaled), wanted[SUM], dtype)


def check_moves(ranks: list[int], dtype: str, process_set: int) -> None:
    what, common = f"{dtype} set {process_set}", {"process_set": process_set}
    size, place = core.process_set(process_set)
    rows = [(index + 1, 3) for index in range(size)]
    gathered = [values_of(rank, rows[index], dtype) for index, rank in enumerate(ranks)]
    found = run(core.ALLGATHER, f"gather {what}", gathered[place], **common)
    expect(found, np.concatenate(gathered), what)

    root = ranks[-1]
    found = run(
        core.BROADCAST, f"cast {what}", values_of(hvd.rank(), (50, 3), dtype), root=root, **common
    )
    expect(found, values_of(root, (50, 3), dtype), what)

    def splits(index: int) -> list[int]:  # also none
        return [(index + peer) % 3 for peer in range(size)]

    sent = [values_of(rank, (sum(splits(i)), 2), dtype) for i, rank in enumerate(ranks)]
    parts = [np.split(one, np.cumsum(splits(i))[:-1]) for i, one in enumerate(sent)]
    found = run(core.ALLTOALL, f"all {what}", sent[place], splits=splits(place), **common)
    expect(found, np.concatenate([parts[peer][place] for peer in range(size)]), what)


def check_all(ranks: list[int], process_set: int = 0) -> None:
    for dtype in ("float32", "float16", "int64"):
        check_reductions(ranks, dtype, process_set)
        check_moves(ranks, dtype, process_set)


def check_batches(everyone: list[int]) -> None:
    """Many at once, some with several tensors, so that several are one call."""
    shapes = [(5,), (1,), (40, 3), (7, 2)]
    begun = [
        Operation(
            core.ALLREDUCE,
            f"batch {number}",
            [values_of(hvd.rank(), shape, "float32", number) for shape in shapes],
        )
        for number in range(30)
    ]
    for number, operation in enumerate(begun):
        for shape, found in zip(shapes, operation.finish(), strict=True):
            wanted = sum(values_of(rank, shape, "float32", number) for rank in everyone)
            expect(found, np.asarray(wanted), f"batch {number}")


def check_what_mpi_has_not(everyone: list[int]) -> None:
    """Truth values, and Adasum, whose rule no MPI knows."""
    truths = [np.arange(6) % (rank + 2) == 0 for rank in everyone]
    found = run(core.ALLREDUCE, "truths", truths[hvd.rank()], op=MAX)
    expect(found, np.logical_or.reduce(truths), "truths")
    direction = np.zeros(8, np.float32)
    direction[hvd.rank()] = 3.0
    found = run(core.ALLREDUCE, "adasum", direction, op=ADASUM)  # at right angles: the sum
    expect(found, np.array([3.0] * hvd.size() + [0.0] * (8 - hvd.size())), "adasum")


def begin() -> None:
    hvd.init()
    begin_telling(sys.argv[1], hvd.rank())
    assert hvd.mpi_enabled() and hvd.mpi_built() and hvd.mpi_threads_supported()


def everything() -> None:
    begin()
    everyone = list(range(hvd.size()))
    check_all(everyone)
    check_batches(everyone)
    check_what_mpi_has_not(everyone)
    check_sets(everyone)
    check_messages(everyone)
    check_join(everyone)
    hvd.shutdown()
    assert not hvd.mpi_enabled()
    hvd.init()  # MPI goes on
    check_all(everyone)
    tell([hvd.rank(), hvd.size()])


def short() -> None:
    begin()
    check_reductions(list(range(hvd.size())), "float32", 0)
    tell([hvd.rank(), hvd.size()])


def check_sets(everyone: list[int]) -> None:
    """Sets come and go; some overlap, and one has a single rank."""
    hvd.shutdown()
    core.init([everyone[:1]], True)
    alone = 1
    if hvd.rank() == 0:
        check_all(everyone[:1], alone)
    some = everyone[1:]
    number = core.add_process_set(some)
    if hvd.rank() in some:
        check_all(some, number)
    check_all(everyone)
    core.remove_process_set(number)
    again = core.add_process_set(some)
    assert again > number
    if hvd.rank() in some:
        check_reductions(some, "float16", again)
    core.remove_process_set(again)


def check_messages(everyone: list[int]) -> None:
    """From the last rank to the first one: not by MPI, which has no communicator of these two. The
    group of the two may have the address of one that has been removed."""
    sender, receiver = everyone[-1], everyone[0]
    if len(everyone) == 1 or hvd.rank() not in (sender, receiver):
        return
    how = core.Operation(core.MESSAGE, root=sender, receiver=receiver)
    for count in (1, 100_000):
        memory = np.full(count, float(hvd.rank()))
        tensors = described([memory])
        core.finish(core.submit_tensors(how, "message", tensors, tensors, None))
        expect(memory, np.full(count, float(sender)), "message")


def check_join(everyone: list[int]) -> None:
    """The last rank has nothing more to do; the others go on without it."""
    if hvd.rank() != everyone[-1]:
        found = run(core.ALLREDUCE, "without the last", np.full(100, 2.0, np.float32))
        expect(found, np.full(100, 2.0 * (len(everyone) - 1)), "without the last")
    core.finish(core.submit_tensors(core.Operation(core.JOIN), "join", [], None, None))


def mpi_loaded() -> list[str]:
    maps = Path("/proc/self/maps").read_text().split()
    return sorted(
        {Path(word).name for word in maps if "/libmpi" in word and "/libmpi4" not in word}
    )


def without_asking() -> None:
    """MPI is not loaded unless it is requested."""
    hvd.init()
    begin_telling(sys.argv[1], hvd.rank())
    expect(run(core.ALLREDUCE, "x", np.ones(3, np.float32)), np.full(3, hvd.size()), "x")
    assert not hvd.mpi_enabled()
    tell(mpi_loaded())


def beside_mpi4py() -> None:
    """Either may start MPI first: both use the same one, and mpi4py works while operations run."""
    if os.environ["FIRST"] == "mpi4py":
        importlib.import_module("mpi4py.MPI")
    begin()
    from mpi4py import MPI

    size = hvd.size()
    for number in range(20):
        under_way = Operation(core.ALLREDUCE, f"beside {number}", [np.ones(100000, np.float32)])
        assert MPI.COMM_WORLD.allreduce(1) == size
        expect(under_way.finish()[0], np.full(100000, size), "beside")
    hvd.shutdown()
    assert MPI.COMM_WORLD.allreduce(2) == 2 * size
    tell(len([name for name in mpi_loaded() if name.startswith(("libmpi.so", "libmpich.so"))]))


def by_communicator() -> None:
    """The job is a communicator: the ranks of MPI in the opposite order, without the first."""
    from mpi4py import MPI

    own = MPI.COMM_WORLD.Get_rank()
    part = MPI.COMM_WORLD.Split(0 if own > 0 else 1, key=-own)
    hvd.init(comm=part)
    begin_telling(sys.argv[1], own)
    check_all(list(range(hvd.size())))
    tell([hvd.rank(), hvd.size()])


def by_list() -> None:
    """The job is every other rank, beside one of the rest."""
    own = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
    hvd.init(comm=[own % 2, own % 2 + 2])
    begin_telling(sys.argv[1], own)
    check_all(list(range(hvd.size())))
    tell([hvd.rank(), hvd.size()])


def refused() -> None:
    own = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "0"
    begin_telling(sys.argv[1], int(own))
    try:
        hvd.init()
    except ValueError as error:
        tell(str(error))


def main() -> None:
    say_begun(sys.argv[1])
    what: Callable[[], None] = globals()[sys.argv[2]]
    what()


if __name__ == "__main__":
    main()
