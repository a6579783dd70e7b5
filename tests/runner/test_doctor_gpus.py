"""What the doctor says of GPUs and of NCCL, also with a driver and a library that are stand-ins."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from horovod.doctor import collect as collecting
from horovod.doctor import host, hosts
from horovod.doctor.collect import collect
from horovod.doctor.facts import Facts, Framework
from horovod.doctor.finding import Finding

NCCL = "2.27.3 (/x/libnccl.so.2)"
WITH_GPUS = Facts(
    horovod="1.0",
    frameworks=[Framework("torch", "2.9.1", "horovod.torch")],
    slots=2,
    ranks=4,
    gpus=["H100", "H100"],
    gpu_driver="550.54",
    nccl=NCCL,
    mpi=["MPICH (/usr/bin/mpirun)"],
)
IN_HOST_MEMORY = "2 GPUs: this version reduces tensors in host memory only"


def advised(facts: Facts) -> list[Finding]:
    return [one for one in host.findings(facts) if one.severity != "ok"]


# ---- what follows from facts -------------------------------------------------------------------


def test_gpus_with_all_that_belongs_to_them_are_told_with_what_this_version_does() -> None:
    (found,) = advised(WITH_GPUS)
    assert (found.severity, found.what) == ("advice", IN_HOST_MEMORY)
    assert any("os.environ['CUDA_VISIBLE_DEVICES'] = ''" in step for step in found.fix)
    said = [one.what for one in host.findings(WITH_GPUS)]
    assert f"2 x H100, driver 550.54, NCCL {NCCL}" in said


def test_more_ranks_than_gpus_are_told_besides() -> None:
    found = advised(replace(WITH_GPUS, slots=4))
    assert [one.what for one in found] == [IN_HOST_MEMORY, "4 ranks for 2 GPUs"]


def test_a_driver_that_does_not_answer_is_a_problem() -> None:
    (found,) = advised(replace(WITH_GPUS, gpus=[], gpu_problem="No devices were found"))
    assert found.severity == "problem"
    assert found.what.endswith("its driver does not answer: No devices were found")
    assert any("nvidia-smi" in step for step in found.fix)


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
    found = advised(replace(WITH_GPUS, nccl="", frameworks=there))
    assert [one.what for one in found][:1] == [IN_HOST_MEMORY]
    (nccl,) = found[1:]
    assert nccl.severity == "advice" and nccl.what.startswith("no NCCL is found") and nccl.why
    assert nccl.fix == (f"/usr/bin/python3 -m pip install {package}",)


def test_without_gpus_nobody_asks_for_nccl() -> None:
    assert advised(replace(WITH_GPUS, gpus=[], nccl="")) == []
    several = {"a": replace(WITH_GPUS, gpus=[], nccl=""), "b": replace(WITH_GPUS, gpus=[])}
    assert "NCCL" not in " ".join(one.what for one in hosts.compare(several))


def test_versions_of_nccl_that_differ_between_hosts_with_gpus_are_told() -> None:
    three = {"a": WITH_GPUS, "b": replace(WITH_GPUS, nccl="2.9.6 (libnccl.so.2)")}
    three["no GPU"] = replace(WITH_GPUS, gpus=[], nccl="")
    (found,) = [one for one in hosts.compare(three) if one.severity != "ok"]
    assert (found.severity, found.what) == ("advice", "NCCL differs: 2.27.3 on a; 2.9.6 on b")
    assert 'pip install "nvidia-nccl-cu12==2.27.3"' in found.fix[0]
    three["b"] = replace(WITH_GPUS, nccl="")
    (found,) = [one for one in hosts.compare(three) if one.severity != "ok"]
    assert found.what == "NCCL differs: 2.27.3 on a; missing on b"
    three["b"] = replace(WITH_GPUS, nccl="2.27.3 (/another/libnccl.so.2)")
    (same,) = hosts.compare(three)
    assert "NCCL 2.27.3" in same.what


# ---- how the facts are had ---------------------------------------------------------------------


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, smi: str | None) -> None:
    """A machine with two devices; `smi`: what its nvidia-smi runs."""
    for device in ("0000:01:00.0", "0000:02:00.0"):
        (folder / "root/proc/driver/nvidia/gpus" / device).mkdir(parents=True)
    (folder / "root/sys/module/nvidia").mkdir(parents=True)
    (folder / "root/sys/module/nvidia/version").write_text("550.54.14\n")
    monkeypatch.setattr(collecting, "_ROOT", folder / "root")
    programs = folder / "bin"
    programs.mkdir()
    if smi is not None:
        (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (programs / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")


def library(folder: Path, code: int) -> Path:
    """NCCL as far as one asks for its version."""
    folder.mkdir(parents=True)
    (folder / "nccl.c").write_text(
        f"int ncclGetVersion(int* version) {{ *version = {code}; return 0; }}\n"
    )
    made = folder / "libnccl.so.2"
    subprocess.run(["gcc", "-shared", "-o", made, folder / "nccl.c"], check=True)
    return made


LISTS = 'echo "NVIDIA H100 80GB HBM3, 550.54.15"; echo "NVIDIA H100 80GB HBM3, 550.54.15"'


@pytest.mark.parametrize(("code", "version"), [(22703, "2.27.3"), (2804, "2.8.4")])
def test_gpus_and_the_nccl_of_a_package_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, version: str
) -> None:
    machine(tmp_path, monkeypatch, LISTS)
    made = library(tmp_path / "packages/nvidia/nccl/lib", code)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    facts = collect(1, 1, [])
    assert facts.gpus == ["NVIDIA H100 80GB HBM3"] * 2
    assert (facts.gpu_driver, facts.gpu_problem) == ("550.54.15", "")
    assert facts.nccl == f"{version} ({made})"


def test_gpus_without_a_library_are_found_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, LISTS)

    load = ctypes.CDLL

    def none_there(path: str | None) -> ctypes.CDLL:
        if path is not None and "nccl" in path:  # this machine may have one
            raise OSError(f"{path}: cannot open shared object file")
        return load(path)

    monkeypatch.setattr("ctypes.CDLL", none_there)
    facts = collect(1, 1, [])
    assert (len(facts.gpus), facts.nccl) == (2, "")


@pytest.mark.parametrize(
    ("smi", "told"),
    [
        (None, "nvidia-smi is not in PATH"),
        ("echo warm up; echo No devices were found; exit 6", "No devices were found"),
        ("exit 9", "nvidia-smi ended with code 9"),
    ],
)
def test_devices_whose_driver_does_not_answer_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smi: str | None, told: str
) -> None:
    machine(tmp_path, monkeypatch, smi)
    facts = collect(1, 1, [])
    assert (facts.gpus, facts.gpu_problem, facts.gpu_driver) == ([], told, "550.54.14")
