"""Gathers the facts of this host, without judging them."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from horovod import __version__
from horovod.common import _gpus as _gpu_driver
from horovod.doctor import environment, frameworks, network
from horovod.doctor.facts import Facts

#: Parent of /proc, /sys and /dev, for cgroups and GPUs; tests use trees of their own.
_ROOT = Path("/")
#: Limit for a program, so that a hanging driver does not block the other checks.
_PROGRAM_SECONDS = 10
_FLAVOURS = (
    ("IBM Spectrum MPI", "Spectrum MPI"),
    ("Open MPI", "Open MPI"),
    ("OpenRTE", "Open MPI"),
    ("Intel(R) MPI", "Intel MPI"),
    ("HYDRA", "MPICH"),
    ("MPICH", "MPICH"),
)


def collect(slots: int, ranks: int, only: list[str] | None = None) -> Facts:
    """`only`: load only these of the installed frameworks."""
    there, probes = frameworks.start(only)
    facts = Facts(
        frameworks=there,
        hostname=socket.gethostname(),
        kernel=platform.release(),
        python=platform.python_version(),
        interpreter=sys.executable,
        other_python=_other_python(),
        horovod=__version__,
        native_problem=_native_problem(),
        has_cloudpickle=importlib.util.find_spec("cloudpickle") is not None,
        slots=slots,
        ranks=ranks,
        strange_variables=environment.strange(os.environ),
        interfaces=network.interfaces(),
        has_infiniband=Path("/sys/class/infiniband").is_dir(),
        mpi=_mpi(),
        pmix=ctypes.util.find_library("pmix") or "",
    )
    _limits(facts)
    _memory(facts)
    _gpus(facts)
    frameworks.wait(probes)
    return facts


def _native_problem() -> str:
    try:
        from horovod import _core
    except ImportError as error:
        return str(error)
    theirs = _core.version()
    return (
        "" if theirs == __version__ else f"its version is {theirs}, the package's is {__version__}"
    )


def _other_python() -> str:
    """Returns the `python` of PATH, which usually starts scripts, if it cannot import horovod."""
    found = shutil.which("python") or shutil.which("python3")
    # Compares without resolving links: a virtual environment's Python links to the system's.
    if found is None or os.path.abspath(found) == os.path.abspath(sys.executable):
        return ""
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('horovod') is None)"
    return found if _run(found, "-c", ask)[0] != 0 else ""


def _run(*command: str) -> tuple[int, str]:
    """Returns the exit code (-1: it could not be started, or timed out) and the output."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return -1, f"timed out after {_PROGRAM_SECONDS} s"
    except OSError as error:
        return -1, str(error)
    return ended.returncode, ended.stdout.decode(errors="replace")


# ---- limits ------------------------------------------------------------------------------------


def _limits(facts: Facts) -> None:
    facts.open_files, facts.open_files_most = map(
        _limit, resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    facts.locked_bytes = _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    facts.core_file_bytes = _limit(resource.getrlimit(resource.RLIMIT_CORE)[0])
    processes = [_cgroup("pids.max", "pids")]
    if os.geteuid() != 0:  # the limit does not apply to root
        processes.append(_limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]))
    facts.processes = min((one for one in processes if one is not None), default=None)
    facts.cores = len(os.sched_getaffinity(0))
    facts.core_quota = _core_quota()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    facts.omp_threads = int(threads) if threads.isdecimal() else 0


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _cgroup_folders(controller: str) -> list[Path]:
    """The folders of both versions, from our own group up to the root: each may set a limit."""
    found = []
    for line in _read(_ROOT / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _ROOT / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            root = _ROOT / "sys/fs/cgroup" / controller
        else:
            continue
        own = Path(path.lstrip("/"))
        found += [root / own, *(root / above for above in own.parents), root]
    return found


def _cgroup_values(name: str, controller: str) -> list[str]:
    return [text for folder in _cgroup_folders(controller) if (text := _read(folder / name))]


def _cgroup(name: str, controller: str) -> int | None:
    numbers = [int(text) for text in _cgroup_values(name, controller) if text.isdecimal()]
    # Version 1 reports "no limit" as a number larger than any machine could have.
    return min((one for one in numbers if one < 1 << 60), default=None)


def _core_quota() -> float | None:
    """Returns the lowest quota of our own group and those above it; each has its own period."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        second_version = _read(folder / "cpu.max").split()
        first_version = [_read(folder / f"cpu.cfs_{part}_us") for part in ("quota", "period")]
        for words in (second_version, first_version):
            if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
                quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _memory(facts: Facts) -> None:
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    facts.available_bytes = int(available[1]) * 1024 if available else 0
    limits = (
        _cgroup("memory.max", "memory"),
        _cgroup("memory.limit_in_bytes", "memory"),
    )
    facts.memory_limit_bytes = min((one for one in limits if one is not None), default=None)
    staging = os.environ.get("HOROVOD_STAGING_BYTES", "")
    facts.staging_bytes = int(staging) if staging.isdecimal() else Facts().staging_bytes
    try:
        shm = os.statvfs("/dev/shm")
        facts.shm_bytes = shm.f_blocks * shm.f_frsize
        facts.shm_free_bytes = shm.f_bavail * shm.f_frsize
    except OSError:
        facts.shm_bytes = facts.shm_free_bytes = 0


# ---- what else may be there --------------------------------------------------------------------


def _gpus(facts: Facts) -> None:
    devices = list((_ROOT / "proc/driver/nvidia/gpus").glob("*"))
    devices = devices or list((_ROOT / "dev").glob("nvidia[0-9]*"))
    facts.has_gpu_files = bool(devices)
    facts.gpu_driver = _read(_ROOT / "sys/module/nvidia/version")
    facts.gpu = _gpu_driver.ask()


def _mpi() -> list[str]:
    found = []
    folders = [Path(folder).resolve() for folder in os.environ.get("PATH", "").split(os.pathsep)]
    for folder in dict.fromkeys(folders):
        program = folder / "mpirun"
        if os.access(program, os.X_OK) and program.is_file():
            _, text = _run(str(program), "--version")
            flavour = next((name for mark, name in _FLAVOURS if mark in text), "unknown")
            found.append(f"{flavour} ({program})")
    return found
