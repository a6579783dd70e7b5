"""Compares an allreduce inside a compiled program of JAX with mpi4jax and with JAX's own processes.

    ./dev bench with_jax [--np 2] [--sizes 16 64K 64M] [--rounds 9] [--json FILE]

All contestants are in the same processes, which Open MPI starts, as mpi4jax needs it. A call is a
program compiled by jax.jit that sums an array of float32 over all ranks, up to its result. JAX's
own processes (`jax.distributed`) use Gloo on CPUs.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import installing, options, peers, together
from harness.jobs import Launch, Missing
from harness.places import cores
from harness.results import Work
from harness.together import Bench, Ranks, Task

NAMES = ["mpi4jax", "jax.distributed"]
SIZES = [16, 1 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
FLOAT_BYTES = 4
MPI4JAX = ("mpi4jax==0.9.1.post2", "mpi4py==4.1.2")
#: With nvcc on PATH it would also be compiled for GPUs, which needs more than nvcc.
WITHOUT_CUDA = {"CUDA_PATH": "/var/empty", "PATH": "/usr/bin:/bin"}


def work_of(np: int) -> Work:
    return Work("jax.jit", "allreduce", "float32", np)


# ---- on each rank ------------------------------------------------------------------------------


def start_jax(ranks: Ranks) -> None:
    """Connects JAX's own processes, before anything else creates its backend."""
    import jax
    import torch
    import torch.distributed as gloo

    port = torch.zeros(1, dtype=torch.int64)
    if ranks.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port[0] = free.getsockname()[1]
    gloo.broadcast(port, 0)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{int(port)}", ranks.size, ranks.rank)


class Compiled:
    """A compiled program and its argument. A call waits for the result."""

    def __init__(self, program: Callable[[Any], Any], argument: Any) -> None:
        self.program, self.argument = program, argument

    def __call__(self) -> object:
        return self.program(self.argument).block_until_ready()

    def is_correct(self, size: int) -> bool:
        import numpy as np

        result = self.program(self.argument).addressable_data(0)
        return bool(np.all(np.asarray(result) == size * (size + 1) / 2))


def ours(argument: Any) -> Compiled:
    import jax

    import horovod.jax as hvd

    return Compiled(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum)), argument)


def own_processes(argument: Any) -> Compiled:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.process_count(),), ("ranks",))
    spec = PartitionSpec("ranks")
    shards = NamedSharding(mesh, spec)
    shape = (jax.process_count() * argument.shape[0],)
    whole = jax.make_array_from_single_device_arrays(shape, shards, [argument])
    summed = jax.shard_map(
        lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=spec, out_specs=spec
    )
    return Compiled(jax.jit(summed), whole)


def with_mpi(argument: Any) -> Compiled:
    import jax
    import mpi4jax
    from mpi4py import MPI

    return Compiled(jax.jit(lambda x: mpi4jax.allreduce(x, op=MPI.SUM)), argument)


MAKERS = {"ours": ours, "mpi4jax": with_mpi, "jax.distributed": own_processes}


def task(ranks: Ranks, size: int) -> Task:
    import jax.numpy as jnp

    argument = jnp.full(size // FLOAT_BYTES, ranks.rank + 1.0, jnp.float32)
    made = {name: MAKERS[name](argument) for name in MAKERS if ranks.has(name)}
    return Task(work_of(ranks.size), size, made, lambda name: made[name].is_correct(ranks.size), 2)


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    start_jax(ranks)
    import horovod.jax as hvd

    for size in arguments.sizes:
        together.compete(ranks, task(ranks, size), arguments.rounds, arguments.seconds)
    hvd.barrier()
    ranks.end()


# ---- the bench that starts them ----------------------------------------------------------------


def mpi4jax_folder() -> Path:
    """Compiles mpi4jax for Open MPI."""
    installing.debian("openmpi-bin", "libopenmpi-dev")
    folder = installing.pypi("mpi4jax", *MPI4JAX, env=WITHOUT_CUDA)
    return next((folder / "lib").glob("python3.*/site-packages"))


def started_by_mpi(build: Path, np: int, script: str, words: list[str]) -> Launch:
    if importlib.util.find_spec("jax") is None:
        raise Missing("JAX is not in this environment")
    command = [*peers.openmpi(4, "vader,self")(np), sys.executable, script, *words]
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // np))}
    paths = os.pathsep.join([str(mpi4jax_folder()), os.environ.get("PYTHONPATH", "")])
    return Launch(command, {**threads, "PYTHONPATH": paths})


def main() -> int:
    parser = options.parser(__doc__, [2], None, NAMES)
    parser.add_argument("--sizes", **options.listed(options.size), default=SIZES, help="bytes")
    arguments = together.parse_worker(parser)
    if arguments.worker:
        work(arguments)
        return 0
    return together.main(
        Bench(
            "with_jax",
            together.script_path(__file__),
            lambda np: [work_of(np)],
            extra=["--sizes", *map(str, arguments.sizes)],
            launch=started_by_mpi,
        ),
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
