"""Derives findings about GPUs and NCCL from the facts of one host, and the table of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from horovod.common._gpus import ROCM_IS_UNTESTED, Gpu
from horovod.doctor.facts import Facts, amount
from horovod.doctor.finding import Finding, advice, ok, problem

#: NCCL for CUDA 13 loads with these drivers only.
_DRIVER_FOR_CUDA_13 = 580


def findings(facts: Facts) -> Iterator[Finding]:
    if facts.gpu.rocm:
        yield advice(
            f"ROCm ({facts.gpu.rocm}) is {ROCM_IS_UNTESTED}",
            "programs with tensors on AMD GPUs fail",
            "copy tensors to host memory before operations of Horovod",
        )
    if not facts.gpu.gpus:
        yield from _no_gpu(facts)
        return
    yield ok(f"{_kinds(facts.gpu.gpus)}, {_driver(facts)}, NCCL {facts.gpu.nccl or 'not found'}")
    yield from _nccl(facts)
    yield from _peers(facts)
    count = len(facts.gpu.gpus)
    if count < facts.slots:
        yield advice(
            f"{facts.slots} ranks for {count} GPU{'' if count == 1 else 's'}",
            "scripts that use the GPU of their local rank fail on the other ranks",
            f"use at most as many slots as GPUs: -H {facts.hostname}:{count}; check "
            "CUDA_VISIBLE_DEVICES if there are more",
        )


def table(facts: Facts) -> list[str]:
    """The GPUs, and between which of them there is direct access (P2P)."""
    rows = [("GPU", "model", "memory", "bus id", "UUID", "P2P with")]
    for gpu in facts.gpu.gpus:
        peers = " ".join(map(str, gpu.peers)) or "none"
        memory = amount(gpu.memory_bytes)
        rows.append((str(gpu.index), gpu.name, memory, gpu.bus_id, gpu.uuid, peers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded] if len(rows) > 1 else []


def _no_gpu(facts: Facts) -> Iterator[Finding]:
    if not facts.has_gpu_files and not facts.gpu.driver:
        yield ok("no GPU")
        return
    there = "there is a GPU, but " if facts.has_gpu_files else ""
    yield (problem if facts.has_gpu_files else advice)(
        f"{there}{facts.gpu.problem} ({_driver(facts)})",
        "frameworks use the CPU, or fail",
        facts.gpu.remedy,
    )


def _driver(facts: Facts) -> str:
    version = f"driver {facts.gpu_driver or 'of unknown version'}"
    return version + (f" for CUDA {facts.gpu.cuda}" if facts.gpu.cuda else "")


def _kinds(gpus: list[Gpu]) -> str:
    names = [f"{gpu.name} ({amount(gpu.memory_bytes)})" for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _nccl(facts: Facts) -> Iterator[Finding]:
    report = facts.gpu
    pip = f"{facts.interpreter} -m pip install"
    package = f"{pip} nvidia-nccl-cu{_cuda_major(facts)}"
    if report.nccl_problem:
        yield problem(
            report.nccl_problem,
            "tensors on GPUs cannot be reduced by NCCL",
            f"{package}   (or name another file: export HOROVOD_NCCL_LIBRARY=...)",
        )
    elif not report.nccl:
        yield advice(
            "NCCL was found neither in the packages of this Python nor by the loader",
            "tensors on GPUs are copied through host memory, which is much slower",
            package,
        )
    elif report.nccl_cuda >= 13 and report.cuda and int(report.cuda.partition(".")[0]) < 13:
        yield problem(
            f"NCCL {report.nccl} is for CUDA {report.nccl_cuda}, the driver supports CUDA "
            f"{report.cuda}",
            f"it needs driver {_DRIVER_FOR_CUDA_13} or later, and fails with 'CUDA driver version "
            "is insufficient'",
            f"{pip} --force-reinstall nvidia-nccl-cu12   (or install a newer driver)",
        )


def _cuda_major(facts: Facts) -> int:
    """Returns the CUDA major version that torch was built with (2.9.1+cu130); 12 if torch's version
    does not show it, which current drivers support."""
    builds = [re.search(r"\+cu(\d+)\d$", one.version) for one in facts.frameworks]
    return next((int(build[1]) for build in builds if build), 12)


def _peers(facts: Facts) -> Iterator[Finding]:
    gpus = facts.gpu.gpus
    apart = [
        f"{one.index} and {other.index}"
        for one in gpus
        for other in gpus
        if one.index < other.index and other.index not in one.peers
    ]
    if not apart:
        return
    yield advice(
        f"no direct access (P2P) between GPUs {', '.join(apart[:4])}"
        f"{' and others' if len(apart) > 4 else ''}",
        "NCCL copies between them through host memory",
        "to see why: nvidia-smi topo -p2p r; virtual machines and IOMMUs often disable it",
    )
