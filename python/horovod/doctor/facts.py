"""What is known of a host. Values that travel as JSON; the defaults are those of a healthy host."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any

GIB = 1 << 30
MIB = 1 << 20


@dataclass
class Framework:
    """A package that is installed, as an interpreter of its own met it."""

    name: str
    version: str = ""
    adapter: str = ""  #: our module for it; empty: there is none in this version
    failed: str = ""  #: the module that did not load, of the two; at exit: all that were
    problem: str = ""  #: the last line of why
    is_loaded: bool = True  #: False: nobody has tried
    is_slow: bool = False  #: its time was up
    at_exit: bool = False  #: all had loaded, and the interpreter failed when it ended


@dataclass
class Interface:
    name: str
    addresses: list[str] = field(default_factory=list)
    is_up: bool = True
    loopback: bool = False
    mtu: int = 1500
    mbit_s: int = 0  #: what the driver says; 0: it says nothing
    packets: int = 0
    errors: int = 0


@dataclass
class Facts:
    hostname: str = "host"
    kernel: str = "6.1.0"
    python: str = "3.11.2"
    interpreter: str = "/usr/bin/python3"
    other_python: str = ""  #: what `python` in PATH is, if it cannot import horovod
    horovod: str = ""
    native_problem: str = ""  #: why our compiled library does not load
    has_cloudpickle: bool = True
    frameworks: list[Framework] = field(default_factory=list)

    slots: int = 0  #: ranks that are to run there; 0: nobody has said
    ranks: int = 0  #: the same of all hosts
    staging_bytes: int = 2 * MIB  #: shared memory a rank
    cores: int = 8
    core_quota: float | None = None  #: of the container; None: no limit
    omp_threads: int = 0  #: OMP_NUM_THREADS; 0: not set

    open_files: int | None = 65536  #: of all limits None: no limit
    open_files_most: int | None = 1048576  #: to which a user may raise it
    processes: int | None = None
    locked_bytes: int | None = None
    core_file_bytes: int | None = None
    available_bytes: int = 64 * GIB
    memory_limit_bytes: int | None = None  #: of the container
    shm_bytes: int = 32 * GIB  #: of /dev/shm
    shm_free_bytes: int = 32 * GIB

    interfaces: list[Interface] = field(default_factory=list)
    has_infiniband: bool = False
    gpus: list[str] = field(default_factory=list)
    gpu_driver: str = ""
    gpu_problem: str = ""
    nccl: str = ""  #: version and path
    mpi: list[str] = field(default_factory=list)  #: flavour and path of each mpirun in PATH
    pmix: str = ""  #: name of the library
    strange_variables: list[tuple[str, str]] = field(default_factory=list)  #: name, what is near

    def interface_with(self, address: str) -> Interface | None:
        for one in self.interfaces:
            if address in one.addresses:
                return one
        return None


def version_numbers(text: str) -> tuple[int, ...]:
    """To compare by: 2.9.1 is before 2.10.0. Empty where it begins with no number."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def as_json(facts: Facts) -> str:
    return json.dumps(dataclasses.asdict(facts))


def from_json(text: str) -> Facts:
    """Raises ValueError or TypeError for what another version has written."""
    values: dict[str, Any] = json.loads(text)
    values["frameworks"] = [Framework(**one) for one in values["frameworks"]]
    values["interfaces"] = [Interface(**one) for one in values["interfaces"]]
    values["strange_variables"] = [(name, near) for name, near in values["strange_variables"]]
    return Facts(**values)
