"""What the doctor says of GPUs and of NCCL, also with a driver and a library that are stand-ins."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horovod.common import _gpus
from horovod.common._gpus import Gpu, GpuReport
from horovod.doctor import collect as collecting
from horovod.doctor import gpus, host, hosts
from horovod.doctor.collect import collect
from horovod.doctor.facts import GIB, MIB, Facts, Framework, as_json, from_json
from horovod.doctor.finding import Finding

NCCL = "2.27.3 (/x/libnccl.so.2)"
H100 = Gpu(0, "H100", "GPU-1", "0000:01:00.0", 80 * GIB, [1])
REPORT = GpuReport(
    driver="/usr/lib/libcuda.so.1",
    cuda="12.4",
    gpus=[H100, replace(H100, index=1, uuid="GPU-2", bus_id="0000:02:00.0", peers=[0])],
    nccl=NCCL,
    nccl_code=22703,
)
WITH_GPUS = Facts(
    horovod="1.0",
    frameworks=[Framework("torch", "2.9.1", "horovod.torch")],
    slots=2,
    ranks=4,
    has_gpu_files=True,
    gpu_driver="550.54",
    gpu=REPORT,
    mpi=["MPICH (/usr/bin/mpirun)"],
)
NO_GPU = GpuReport(problem="the library of the driver cannot be loaded", remedy="install it")


def with_report(facts: Facts = WITH_GPUS, **changes: Any) -> Facts:
    return replace(facts, gpu=replace(facts.gpu, **changes))


def advised(facts: Facts) -> list[Finding]:
    return [one for one in host.findings(facts) if one.severity != "ok"]


# ---- what follows from facts -------------------------------------------------------------------


def test_gpus_with_all_that_belongs_to_them_are_fine() -> None:
    assert advised(WITH_GPUS) == []
    said = [one.what for one in host.findings(WITH_GPUS)]
    assert f"2 x H100 (80 GiB), driver 550.54 for CUDA 12.4, NCCL {NCCL}" in said
    assert gpus.table(WITH_GPUS) == [
        "GPU  model  memory  bus id        UUID   P2P with",
        "0    H100   80 GiB  0000:01:00.0  GPU-1  1",
        "1    H100   80 GiB  0000:02:00.0  GPU-2  0",
    ]


def test_facts_with_gpus_pass_through_json() -> None:
    assert from_json(as_json(WITH_GPUS)) == WITH_GPUS


def test_more_ranks_than_gpus_are_told() -> None:
    (found,) = advised(replace(WITH_GPUS, slots=4))
    assert found.what == "4 ranks for 2 GPUs"


def test_gpus_without_direct_access_are_told() -> None:
    apart = [replace(one, peers=[]) for one in REPORT.gpus]
    (found,) = advised(with_report(gpus=apart))
    assert found.severity == "advice"
    assert found.what == "no direct access (P2P) between GPUs 0 and 1"
    assert gpus.table(with_report(gpus=apart))[1].endswith("GPU-1  none")


def test_a_gpu_whose_driver_cannot_be_used_is_a_problem() -> None:
    broken = GpuReport(driver="/x/libcuda.so.1", cuda="12.4", problem="broken", remedy="restart")
    (found,) = advised(replace(WITH_GPUS, gpu=broken))
    assert found.severity == "problem" and found.fix == ("restart",)
    assert found.what == "there is a GPU, but broken (driver 550.54 for CUDA 12.4)"
    (found,) = advised(replace(WITH_GPUS, gpu=broken, has_gpu_files=False))
    assert found.severity == "advice"  # a driver without a GPU


@pytest.mark.parametrize(
    ("torch", "package"),
    [
        ("2.9.1", "nvidia-nccl-cu12"),
        ("2.4.0+cpu", "nvidia-nccl-cu12"),
        ("2.4.0+cu118", "nvidia-nccl-cu11"),
        ("2.9.1+cu130", "nvidia-nccl-cu13"),
    ],
)
def test_gpus_without_nccl_are_told_with_the_package_that_fits(torch: str, package: str) -> None:
    there = [Framework("torch", torch, "horovod.torch")]
    (nccl,) = advised(replace(with_report(nccl="", nccl_code=0), frameworks=there))
    assert nccl.severity == "advice" and nccl.what.startswith("NCCL was found neither") and nccl.why
    assert nccl.fix == (f"/usr/bin/python3 -m pip install {package}",)


def test_an_nccl_that_cannot_be_used_is_a_problem() -> None:
    (old,) = advised(
        with_report(nccl_problem="NCCL 2.9.6 (/x) is too old: 2.16 or later is needed")
    )
    assert old.severity == "problem" and "HOROVOD_NCCL_LIBRARY" in old.fix[0]
    (newer,) = advised(with_report(nccl_cuda=13))
    assert newer.what == f"NCCL {NCCL} is for CUDA 13, the driver supports CUDA 12.4"
    assert newer.severity == "problem" and "driver 580" in newer.why
    assert advised(with_report(nccl_cuda=13, cuda="13.0")) == []


def test_little_shared_memory_is_told_with_nccl_in_mind() -> None:
    small = {"shm_bytes": 64 * MIB, "shm_free_bytes": 60 * MIB, "frameworks": []}
    found = [one for one in advised(replace(WITH_GPUS, **small)) if "/dev/shm" in one.what]
    assert found[0].severity == "problem" and "'unhandled system error'" in found[0].why
    assert any("--shm-size" in step for step in found[0].fix)
    found = [
        one for one in advised(replace(WITH_GPUS, gpu=NO_GPU, **small)) if "/dev/shm" in one.what
    ]
    assert found[0].severity == "advice" and "NCCL" not in found[0].why


def test_little_locked_memory_is_told() -> None:
    (found,) = advised(replace(WITH_GPUS, locked_bytes=8 * MIB))
    assert found.what == "8 MiB of memory may be locked"
    assert any("--ulimit memlock=-1" in step for step in found.fix)


def test_without_gpus_nobody_asks_for_nccl() -> None:
    without = replace(WITH_GPUS, gpu=NO_GPU, has_gpu_files=False)
    assert advised(without) == []
    assert gpus.table(without) == []
    several = {"a": without, "b": with_report(without, nccl=NCCL)}
    assert "NCCL" not in " ".join(one.what for one in hosts.compare(several))


def test_versions_of_nccl_that_differ_between_hosts_with_gpus_are_told() -> None:
    three = {"a": WITH_GPUS, "b": with_report(nccl="2.9.6 (libnccl.so.2)")}
    three["no GPU"] = replace(WITH_GPUS, gpu=NO_GPU)
    (found,) = [one for one in hosts.compare(three) if one.severity != "ok"]
    assert (found.severity, found.what) == ("problem", "NCCL differs: 2.27.3 on a; 2.9.6 on b")
    assert 'pip install "nvidia-nccl-cu12==2.27.3"' in found.fix[0]
    three["b"] = with_report(nccl="")
    (found,) = [one for one in hosts.compare(three) if one.severity != "ok"]
    assert found.what == "NCCL differs: 2.27.3 on a; missing on b"
    three["b"] = with_report(nccl="2.27.3 (/another/libnccl.so.2)")
    (same,) = hosts.compare(three)
    assert "NCCL 2.27.3" in same.what


# ---- how the facts are had ---------------------------------------------------------------------


def library(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "library.c").write_text(source)
    made = folder / name
    subprocess.run(["gcc", "-shared", "-o", made, folder / "library.c"], check=True)
    return made


@pytest.mark.parametrize(
    ("code", "version", "usable"), [(22703, "2.27.3", True), (2804, "2.8.4", False)]
)
def test_the_nccl_of_a_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, version: str, usable: bool
) -> None:
    source = f"int ncclGetVersion(int* version) {{ *version = {code}; return 0; }}\n"
    made = library(tmp_path / "nvidia/nccl/lib", "libnccl.so.2", source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = _gpus.ask()
    assert report.nccl == f"{version} ({made})"
    assert (report.nccl_code, "too old" in report.nccl_problem) == (code * usable, not usable)


def test_a_library_that_the_user_names_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_NCCL_LIBRARY", "/nowhere/libnccl.so.2")
    report = _gpus.ask()
    assert (report.nccl, report.nccl_code) == ("", 0)
    assert report.nccl_problem == "HOROVOD_NCCL_LIBRARY=/nowhere/libnccl.so.2 cannot be loaded"


def test_a_driver_that_lacks_functions_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path, "libcuda.so.1", "int cuInit(unsigned flags) { return 0; }\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    report = _gpus.ask()
    assert "the driver is too old" in report.problem and "cuDriverGetVersion" in report.problem


def test_a_driver_that_does_not_return_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "#include <unistd.h>\nint cuInit(unsigned flags) { for (;;) pause(); }\n"
    library(tmp_path, "libcuda.so.1", source)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(_gpus, "_SECONDS", 1)
    assert _gpus.ask().problem == "the driver has not answered within 1 s"


def test_a_driver_that_ends_the_process_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "#include <stdlib.h>\nint cuInit(unsigned flags) { abort(); }\n"
    library(tmp_path, "libcuda.so.1", source)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert "asking the driver failed" in _gpus.ask().problem


def test_gpu_files_and_the_kernel_module_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.54.14\n")
    monkeypatch.setattr(collecting, "_ROOT", tmp_path)
    facts = collect(1, 1, [])
    assert (facts.has_gpu_files, facts.gpu_driver) == (True, "550.54.14")
