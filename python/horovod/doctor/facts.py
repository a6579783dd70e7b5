"""The facts about a host. Values that are sent as JSON; the defaults are those of a healthy
host."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any

from horovod.common._gpus import GpuReport, from_values

GIB = 1 << 30
MIB = 1 << 20


@dataclass
class Framework:
    """An installed package, and what happened when its own interpreter loaded it."""

    name: str
    version: str = ""
    adapter: str = ""  #: our module for it; empty: none in this version
    failed: str = ""  #: which of the two modules did not load; at exit: all that were loaded
    problem: str = ""  #: the last line of the error
    is_loaded: bool = True  #: False: not tried
    is_slow: bool = False  #: it did not load in time
    at_exit: bool = False  #: all loaded, but the interpreter failed when it ended


@dataclass
class Interface:
    name: str
    addresses: list[str] = field(default_factory=list)
    is_up: bool = True
    loopback: bool = False
    mtu: int = 1500
    mbit_s: int = 0  #: as the driver reports it; 0: unknown
    packets: int = 0
    errors: int = 0


@dataclass
class Facts:
    hostname: str = "host"
    kernel: str = "6.1.0"
    python: str = "3.11.2"
    interpreter: str = "/usr/bin/python3"
    other_python: str = ""  #: the `python` of PATH, if it cannot import horovod
    horovod: str = ""
    native_problem: str = ""  #: why our compiled library does not load
    has_cloudpickle: bool = True
    frameworks: list[Framework] = field(default_factory=list)

    slots: int = 0  #: ranks to run on this host; 0: not given
    ranks: int = 0  #: ranks to run on all hosts
    staging_bytes: int = 2 * MIB  #: shared memory per rank
    cores: int = 8
    core_quota: float | None = None  #: CPUs granted to the container; None: no limit
    omp_threads: int = 0  #: OMP_NUM_THREADS; 0: not set

    open_files: int | None = 65536  #: for all limits, None: no limit
    open_files_most: int | None = 1048576  #: the hard limit, up to which a user may raise it
    processes: int | None = None
    locked_bytes: int | None = None
    core_file_bytes: int | None = None
    available_bytes: int = 64 * GIB
    memory_limit_bytes: int | None = None  #: of the container
    shm_bytes: int = 32 * GIB  #: of /dev/shm
    shm_free_bytes: int = 32 * GIB

    interfaces: list[Interface] = field(default_factory=list)
    has_infiniband: bool = False
    has_gpu_files: bool = False  #: the kernel has a GPU
    gpu_driver: str = ""  #: version of the kernel module
    gpu: GpuReport = field(default_factory=GpuReport)
    mpi: list[str] = field(default_factory=list)  #: kind and path of each mpirun in PATH
    pmix: str = ""  #: name of the library
    strange_variables: list[tuple[str, str]] = field(
        default_factory=list
    )  #: name, and nearest known name

    def interface_with(self, address: str) -> Interface | None:
        for one in self.interfaces:
            if address in one.addresses:
                return one
        return None


def version_numbers(text: str) -> tuple[int, ...]:
    """Returns a sort key: 2.9.1 is before 2.10.0. Empty if the text begins with no number."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def amount(count: int) -> str:
    if count < GIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / GIB:.1f} GiB" if count < 10 * GIB else f"{count / GIB:.0f} GiB"


def as_json(facts: Facts) -> str:
    return json.dumps(dataclasses.asdict(facts))


def from_json(text: str) -> Facts:
    """Raises ValueError or TypeError if another version wrote the text."""
    values: dict[str, Any] = json.loads(text)
    values["frameworks"] = [Framework(**one) for one in values["frameworks"]]
    values["interfaces"] = [Interface(**one) for one in values["interfaces"]]
    values["gpu"] = from_values(values["gpu"])
    values["strange_variables"] = [(name, near) for name, near in values["strange_variables"]]
    return Facts(**values)
