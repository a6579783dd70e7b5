"""What the ranks of these tests run: `rank_script.py FOLDER WHAT`. Without a framework, so that a
job starts in a fraction of a second. Each rank tells where it is and what it has computed."""

from __future__ import annotations

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
from horovod.common.exceptions import HorovodInternalError

FLOAT32 = 7
SUM = 1
ENDED_WITH_THE_OTHERS = 9

hvd = HorovodBasics(__file__)


def allreduce(name: str, value: float) -> float:
    values = np.full(1000, value, np.float32)
    inputs = [(values.ctypes.data, values.shape, FLOAT32)]
    handle = core.submit(core.ALLREDUCE, name, inputs, [values.ctypes.data], values, SUM)
    core.finish(handle)
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


def main() -> None:
    # torch.distributed.launch puts --local-rank=N before them
    sys.argv[1:] = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    say_begun(sys.argv[1])
    what: Callable[[], None] = globals()[sys.argv[2]]
    what()


if __name__ == "__main__":
    main()
