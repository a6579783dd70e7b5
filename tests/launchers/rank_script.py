"""What the ranks of these tests run: `rank_script.py FOLDER WHAT`. Without a framework, so that a
job starts in a fraction of a second. Each rank tells where it is and what it has computed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from rank_jobs import begin_telling, say_begun, tell

from horovod.common._extension import core
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, _get_process_set_ids_and_ranks

ENDED_WITH_THE_OTHERS = 9
START_METHODS = ("fork", "spawn", "forkserver")

hvd = HorovodBasics(__file__)


def allreduce(name: str, value: float, process_set: int = 0) -> float:
    values = np.full(1000, value, np.float32)
    tensor = values.ctypes.data, values.shape, core.DTYPES["float32"], values
    operation = core.Operation(core.ALLREDUCE, process_set=process_set)
    core.finish(core.submit_tensors(operation, name, tensor, tensor, None))
    assert (values == values[0]).all()
    return float(values[0])


def place() -> dict[str, Any]:
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    return {name: getattr(hvd, name)() for name in names}


def begin(rank: int, **arguments: Any) -> None:
    """Starts the runtime and tells as `rank`, by the launcher's count."""
    hvd.init(**arguments)
    begin_telling(sys.argv[1], rank)


def work() -> None:
    """The sum of all ranks' numbers, beside the place."""
    tell({**place(), "sum": allreduce("x", hvd.rank() + 1), "by_mpi": hvd.mpi_enabled()})


def plain() -> None:
    hvd.init()
    begin_telling(sys.argv[1], hvd.rank())
    work()


def twice() -> None:
    """Starts, ends, and starts again."""
    plain()
    hvd.shutdown()
    hvd.init()
    work()


def beside_torch() -> None:
    """torch.distributed meets at the same place, and works beside."""
    import torch
    import torch.distributed

    plain()
    torch.distributed.init_process_group("gloo")
    ones = torch.ones(3)
    torch.distributed.all_reduce(ones)
    assert ones.tolist() == [hvd.size()] * 3
    assert allreduce("beside", 1) == hvd.size()
    torch.distributed.destroy_process_group()


def backend_of_torch() -> None:
    """A script of torch.distributed, without a word about us except the name. What it starts is
    found by init."""
    import torch
    import torch.distributed

    torch.distributed.init_process_group("hvd")
    ones = torch.ones(3)
    torch.distributed.all_reduce(ones)
    assert ones.tolist() == [torch.distributed.get_world_size()] * 3
    plain()
    torch.distributed.destroy_process_group()
    assert not hvd.is_initialized()


def one_dies() -> None:
    """The last rank ends without a word, the others learn of it in an operation."""
    plain()
    allreduce("all have told", 1)  # some launchers kill the others at once
    if hvd.rank() == hvd.size() - 1:
        os._exit(3)
    try:
        while True:
            allreduce("y", 1)
    except HorovodInternalError as error:
        tell(str(error))
    sys.exit(ENDED_WITH_THE_OTHERS)


def one_never_starts() -> None:
    """The last rank does not call init."""
    rank = launchers_rank()
    begin_telling(sys.argv[1], rank)
    if rank == launchers_size() - 1:
        return
    try:
        hvd.init()
    except ValueError as error:
        tell(str(error))
    sys.exit(ENDED_WITH_THE_OTHERS)


def refused() -> None:
    """No rank can start, and each tells why."""
    begin_telling(sys.argv[1], launchers_rank())
    try:
        hvd.init()
    except ValueError as error:
        tell(str(error))


def launchers_rank() -> int:
    names = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
    return next(int(os.environ[name]) for name in names if name in os.environ)


def launchers_size() -> int:
    names = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")
    return next(int(os.environ[name]) for name in names if name in os.environ)


def in_two_parts() -> None:
    """Ranks 0 and 2 are one job, 1 and 3 another; afterwards all are one."""
    rank = launchers_rank()
    begin(rank, comm=[rank % 2, rank % 2 + 2])
    work()
    hvd.shutdown()
    hvd.init()
    work()


def only_some() -> None:
    """Ranks 0 and 3 are a job; the others never call init."""
    rank = launchers_rank()
    if rank not in (0, 3):
        return
    begin(rank, comm=[0, 3])
    work()


def not_of_the_part() -> None:
    """Every rank asks for a job of rank 0 alone."""
    rank = launchers_rank()
    begin_telling(sys.argv[1], rank)
    try:
        hvd.init(comm=[0])
        work()
    except ValueError as error:
        tell(str(error))


def mpi_before() -> None:
    """MPI runs when this starts, and works afterwards."""
    from mpi4py import MPI

    plain()
    tell(MPI.COMM_WORLD.allreduce(hvd.rank() + 1))
    hvd.shutdown()
    tell(MPI.COMM_WORLD.allreduce(1))


def mpi_after() -> None:
    """This has run and ended when MPI starts."""
    plain()
    hvd.shutdown()
    from mpi4py import MPI

    tell(MPI.COMM_WORLD.allreduce(1))


def mpi_between() -> None:
    """MPI starts while this runs."""
    plain()
    from mpi4py import MPI

    tell(MPI.COMM_WORLD.allreduce(allreduce("between", 1)))


def by_communicator() -> None:
    """The job is a communicator: the ranks of MPI in the opposite order, without the first."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    own = everyone.Get_rank()
    part = everyone.Split(0 if own > 0 else 1, key=-own)
    begin(own, comm=part)
    work()
    tell(everyone.allreduce(1))


def sets_by_communicator() -> None:
    """Sets of a job by communicator: two by one Split, one of some ranks, one by ranks; then the
    same communicators in one list with that of the job."""
    from mpi4py import MPI

    own = MPI.COMM_WORLD.Get_rank()
    halves = MPI.COMM_WORLD.Split(own % 2, key=-own)
    middle = MPI.COMM_WORLD.Split(0 if own in (1, 2) else MPI.UNDEFINED)
    sets = [ProcessSet(halves), ProcessSet(middle), ProcessSet({3, 0})]
    begin(own, comm=MPI.COMM_WORLD, process_sets=iter(sets))
    tell([about(one) for one in sets])
    hvd.init(comm=MPI.COMM_WORLD, process_sets=sets[:own])  # asks nobody while it runs
    MPI.COMM_WORLD.Barrier()
    hvd.shutdown()
    tell([(one.process_set_id, one.ranks) for one in sets])
    hvd.init(comm=[MPI.COMM_WORLD, halves, middle], process_sets=sets[2:])
    tell(sorted(_get_process_set_ids_and_ranks().items()))
    MPI.COMM_WORLD.Barrier()
    hvd.shutdown()
    mine = ProcessSet(MPI.COMM_SELF)
    hvd.init(comm=halves, process_sets=[mine])
    tell(about(mine))
    MPI.COMM_WORLD.Barrier()


def about(one: ProcessSet) -> Any:
    total = None
    if one.included():
        assert one.process_set_id is not None
        total = allreduce("set", hvd.rank() + 1, one.process_set_id)
    return one.process_set_id, one.ranks, one.size(), total


def sets_that_do_not_fit() -> None:
    """Every rank is told the same, and can start afterwards."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    own = world.Get_rank()
    begin_telling(sys.argv[1], own)
    null, pair = MPI.COMM_NULL, world.Split(own // 2)
    alone = world.Split(0 if own < 2 else 1)
    of_all = world.Dup()
    wrong: list[tuple[Any, list[Any]]] = [
        (world, [pair] if own else [pair, pair]),
        (world, [pair, null]),
        (world, [pair if own else null]),
        (world, [pair, [own]]),
        (world, [world.Split(own % 2), [0, 1] if own == 0 else pair]),
        (world, [pair, alone]),
        (world, [of_all]),
        (pair, [world.Split(own % 2)]),
        (None, [pair]),
        (null, []),
        ([world, [0, 1]], []),
        (pair.Create_intercomm(0, world, 2 - 2 * (own // 2)), []),
    ]
    texts = []
    for comm, sets in wrong:
        try:
            hvd.init(comm=comm, process_sets=[ProcessSet(one) for one in sets])
            hvd.shutdown()
            texts.append("")
        except (ValueError, NotImplementedError) as error:
            texts.append(str(error))
    tell(texts)
    hvd.init(comm=world)
    work()


def myself(what: str) -> list[str]:
    return [sys.executable, __file__, sys.argv[1], what]


def wrapper() -> None:
    """Never calls init; what it starts, in one way after the other, is the rank."""
    subprocess.run(myself("plain"), check=True)
    shell = ["bash", "-c", shlex.join(myself("plain")) + "; exit $?"]
    subprocess.run(shell, check=True, start_new_session=True)
    orphan = ["bash", "-c", f"setsid {shlex.join(myself('plain'))} &"]
    subprocess.run(orphan, check=True, stdout=subprocess.PIPE)  # which the orphan has as well
    for method in ("spawn", "forkserver", "fork"):
        in_child(method, plain)


def children_that_leave() -> None:
    """Rank 1 is a child, by each method, that ends without shutdown; rank 0 tells what it sees."""
    for method in START_METHODS:
        if launchers_rank() == 1:
            in_child(method, plain)
        else:
            in_child("spawn", await_the_end)


def await_the_end() -> None:
    plain()
    try:
        allreduce("never", 1)
    except HorovodInternalError as error:
        tell(str(error))


def in_two_processes() -> None:
    """The same without more ways than one, for launchers whose start takes longer."""
    for _ in range(2):
        subprocess.run(myself("plain"), check=True)


def rivals() -> None:
    """Of two children the second is told which process is the rank."""
    first = subprocess.Popen(myself("until_told"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdin is not None and first.stdout is not None
    first.stdout.readline()
    begin_telling(sys.argv[1], launchers_rank())
    tell(first.pid)
    subprocess.run(myself("refused"), check=True)
    first.communicate(b"\n")
    assert first.returncode == 0


def until_told() -> None:
    hvd.init()
    print("here", flush=True)
    sys.stdin.readline()


def parent() -> None:
    """Has called init; none of its children is a rank, until it calls shutdown."""
    multiprocessing.set_start_method("forkserver")
    multiprocessing.forkserver.ensure_running()  # before there is a rank
    plain()
    for method in START_METHODS:
        in_child(method, refused)
    subprocess.run(myself("refused"), check=True)
    subprocess.run(myself("refused"), check=True, close_fds=False)
    shell = ["bash", "-c", shlex.join(myself("refused")) + "; exit $?"]
    subprocess.run(shell, check=True, start_new_session=True)
    tell(allreduce("the rank still works", 1))
    hvd.shutdown()


def parent_before_child() -> None:
    """The same, and afterwards a child is the rank."""
    parent()
    in_child("fork", plain)
    subprocess.run(myself("plain"), check=True)


def in_child(method: str, what: Callable[[], None]) -> None:
    child = multiprocessing.get_context(method).Process(target=what)  # type: ignore[attr-defined]
    child.start()
    child.join()
    assert child.exitcode == 0, f"{method}: {child.exitcode}"


def main() -> None:
    # torch.distributed.launch puts --local-rank=N before them
    sys.argv[1:] = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    say_begun(sys.argv[1])
    what: Callable[[], None] = globals()[sys.argv[2]]
    what()


if __name__ == "__main__":
    main()
