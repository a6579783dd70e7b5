"""What the GPU driver and NCCL of this host say. `ask` looks in a process of its own: a library
that is loaded early is the one that a framework gets later, and a broken driver may not return."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Of the other process. The driver takes a second per GPU if nothing keeps it loaded.
_SECONDS = 60
_TEXT_BYTES = 256
_OLDEST_NCCL = 21600
_DRIVER = "libcuda.so.1"
_NCCL = "libnccl.so.2"
_ROCM = "libamdhip64.so"

ROCM_IS_UNTESTED = "untested, and this version has no kernels for it: its tensors are rejected"

_REMEDIES = {
    34: "remove the folder of this stub library, which is made for linking only, from "
    "LD_LIBRARY_PATH",
    100: "check nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs GPUs: docker run --gpus all",
    803: "the library and the kernel module of the driver differ: restart the machine after an "
    "update of the driver, or the container",
    804: "install a newer driver",
}


@dataclass
class Gpu:
    """A GPU as this process sees it."""

    index: int = 0  #: CUDA_VISIBLE_DEVICES changes it
    name: str = ""
    uuid: str = ""  #: as nvidia-smi prints it
    bus_id: str = ""
    memory_bytes: int = 0
    peers: list[int] = field(default_factory=list)  #: whose memory it can access directly (P2P)


@dataclass
class GpuReport:
    """`problem` is empty if at least one GPU can be used."""

    driver: str = ""  #: path of its library; empty: it cannot be loaded
    cuda: str = ""  #: the newest version that the driver supports, "12.9"
    problem: str = ""
    remedy: str = ""
    gpus: list[Gpu] = field(default_factory=list)
    nccl: str = ""  #: version and path; empty: none was found
    nccl_code: int = 0  #: 22703 for version 2.27.3; 0: none that can be used
    nccl_cuda: int = 0  #: major version of CUDA of its package; 0: unknown
    nccl_problem: str = ""
    rocm: str = ""  #: path of the library of ROCm; empty: it cannot be loaded


def nccl_of_python() -> str:
    """Returns the file of NCCL in the package `nvidia.nccl` of this Python; empty: there is
    none."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or []) if found else []
    paths = [os.path.join(folder, "nccl", "lib", _NCCL) for folder in folders]
    return next((path for path in paths if os.path.isfile(path)), "")


def ask() -> GpuReport:
    """Blocks for seconds if there are GPUs."""
    command = [sys.executable, "-m", __name__]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return GpuReport(
            problem=f"the driver has not answered within {_SECONDS} s",
            remedy="check nvidia-smi and the kernel log; the machine may need a restart",
        )
    try:
        return from_values(json.loads(asked.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        last = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
        return GpuReport(problem=f"asking the driver failed: {last}", remedy="check nvidia-smi")


@functools.cache
def ask_once() -> GpuReport:
    return ask()


def from_values(values: dict[str, Any]) -> GpuReport:
    """The inverse of dataclasses.asdict. Raises TypeError for other keys."""
    gpus = [Gpu(**one) for one in values.pop("gpus")]
    return GpuReport(**values, gpus=gpus)


def lines(report: GpuReport) -> Iterator[str]:
    """The report for `horovodrun --check-build`."""
    if report.driver:
        yield f"driver {report.driver}, CUDA {report.cuda or 'unknown'}"
    if report.problem:
        yield f"no GPU can be used: {report.problem}"
    for gpu in report.gpus:
        peers = ", P2P with " + ", ".join(map(str, gpu.peers)) if gpu.peers else ""
        size = f"{gpu.memory_bytes >> 20} MiB"
        yield f"GPU {gpu.index}: {gpu.name}, {size}, {gpu.bus_id}, {gpu.uuid}{peers}"
    yield f"NCCL {report.nccl or 'was not found'}"
    if report.nccl_problem:
        yield report.nccl_problem
    if report.rocm:
        yield f"ROCm {report.rocm}: {ROCM_IS_UNTESTED}"


# ---- in the process of its own -----------------------------------------------------------------


def _look() -> GpuReport:
    report = GpuReport()
    _look_at_driver(report)
    _look_at_nccl(report)
    with contextlib.suppress(OSError):
        ctypes.CDLL(_ROCM)
        report.rocm = _file_of("libamdhip64")
    return report


def _look_at_driver(report: GpuReport) -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        report.problem = f"the library of the driver cannot be loaded: {error}"
        report.remedy = "install the driver; in a container: docker run --gpus all"
        return
    report.driver = _file_of("libcuda.so")
    try:
        started = driver.cuInit(0)
        version, count = ctypes.c_int(), ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(version)) == 0:
            report.cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        if started == 0:
            started = driver.cuDeviceGetCount(ctypes.byref(count)) or (100 * (count.value == 0))
        if started != 0:
            report.problem = f"the driver cannot be used, {_text_of(driver, started)}"
            report.remedy = _REMEDIES.get(started, "check nvidia-smi and the kernel log")
            return
        report.gpus = [_gpu(driver, index, count.value) for index in range(count.value)]
    except AttributeError as error:  # a function is missing
        report.problem = f"the driver is too old: {error}"
        report.remedy = "install a newer driver"


def _text_of(driver: ctypes.CDLL, result: int) -> str:
    texts = []
    for function in (driver.cuGetErrorName, driver.cuGetErrorString):
        text = ctypes.c_char_p()
        function(result, ctypes.byref(text))
        texts.append((text.value or b"unknown").decode())
    return f"{texts[0]} ({result}): {texts[1]}"


def _gpu(driver: ctypes.CDLL, index: int, count: int) -> Gpu:
    name, bus_id = (ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2))
    uuid, memory = ctypes.create_string_buffer(16), ctypes.c_size_t()
    driver.cuDeviceGetName(name, _TEXT_BYTES, index)
    driver.cuDeviceGetPCIBusId(bus_id, _TEXT_BYTES, index)
    driver.cuDeviceGetUuid_v2(uuid, index)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), index)
    digits = uuid.raw.hex()
    parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
    return Gpu(
        index=index,
        name=name.value.decode(errors="replace"),
        uuid="GPU-" + "-".join(parts),
        bus_id=bus_id.value.decode(errors="replace"),
        memory_bytes=memory.value,
        peers=[other for other in range(count) if _can_access(driver, index, other)],
    )


def _can_access(driver: ctypes.CDLL, index: int, other: int) -> bool:
    can = ctypes.c_int()
    return other != index and not (
        driver.cuDeviceCanAccessPeer(ctypes.byref(can), index, other) or can.value == 0
    )


def _look_at_nccl(report: GpuReport) -> None:
    """The runtime looks in the same places, after the libraries that the process has loaded."""
    for path in _nccl_places():
        try:
            version = ctypes.c_int()
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
        except (OSError, AttributeError):
            continue
        code = version.value
        report.nccl = f"{_nccl_version(code)} ({_file_of('libnccl') or path})"
        if code < _OLDEST_NCCL:
            report.nccl_problem = f"NCCL {report.nccl} is too old: 2.16 or later is needed"
        else:
            report.nccl_code = code
            report.nccl_cuda = _cuda_of_package(report.nccl)
        return
    if knob := os.environ.get("HOROVOD_NCCL_LIBRARY"):
        report.nccl_problem = f"HOROVOD_NCCL_LIBRARY={knob} cannot be loaded"


def _nccl_places() -> list[str]:
    if knob := os.environ.get("HOROVOD_NCCL_LIBRARY"):
        return [knob]
    return [*filter(None, [nccl_of_python()]), _NCCL]


def _nccl_version(code: int) -> str:
    """Decodes two digits per part before 2.9, and three for the first part since."""
    major = 10000 if code >= 10000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def _cuda_of_package(nccl: str) -> int:
    """The packages of both versions of CUDA install the same files."""
    import importlib.metadata  # 40 ms, which the processes of a job must not spend

    there = []
    for cuda in (12, 13):
        try:
            importlib.metadata.version(f"nvidia-nccl-cu{cuda}")
        except importlib.metadata.PackageNotFoundError:
            continue
        there.append(cuda)
    return there[0] if len(there) == 1 and "/nvidia/nccl/" in nccl else 0


def _file_of(prefix: str) -> str:
    """The file of a loaded library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if os.path.basename(path).startswith(prefix):
            return path
    return ""


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(_look())))
