"""What CMake says where something is missing: one sentence, with the packages that have it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from devtool.paths import ROOT

WHEEL = "or install a wheel of horovod, which needs no compiler and none of the libraries."
NO_PREFIX = [f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("INCLUDE", "LIBRARY")]
LIBRARIES = (
    "horovod cannot be compiled without fmt, spdlog, Highway, nlohmann-json, libsodium, yaml-cpp, "
    "Python's headers: install libfmt-dev libspdlog-dev libhwy-dev nlohmann-json3-dev "
    "libsodium-dev libyaml-cpp-dev python3-dev (Debian, Ubuntu) or fmt-devel spdlog-devel "
    "highway-devel json-devel libsodium-devel libsodium-static yaml-cpp-devel yaml-cpp-static "
    f"python3-devel (Fedora, RHEL with EPEL), {WHEEL}"
)


def error_of(folder: Path, *options: str, **environment: str) -> str:
    """Configures as pip does; returns the text of CMake's only error, without its line breaks."""
    cmake = str(shutil.which("cmake"))
    command = [cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), "-DHVD_TESTS=OFF"]
    env = {**{k: v for k, v in os.environ.items() if k not in ("CC", "CXX")}, **environment}
    ended = subprocess.run([*command, *options], capture_output=True, text=True, env=env)
    assert ended.returncode != 0
    head, _, text = ended.stderr.partition("(message):\n")
    assert head.startswith("CMake Error at cmake/") and head.count("\n") == 0, ended.stderr
    return " ".join(text.partition("Call Stack")[0].split())


def test_all_libraries_that_are_missing_are_named_in_one_sentence(tmp_path: Path) -> None:
    absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "spdlog", "HWY")]
    absent += ["-DHVD_PYTHON=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON"]
    absent += ["-DCMAKE_FIND_ROOT_PATH=/nowhere", *NO_PREFIX]
    assert error_of(tmp_path, *absent) == LIBRARIES


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    assert error_of(tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_HWY=ON") == (
        "horovod cannot be compiled without Highway: install libhwy-dev (Debian, Ubuntu) or "
        f"highway-devel (Fedora, RHEL with EPEL), {WHEEL}"
    )


def test_a_compiler_that_is_too_old_is_named(tmp_path: Path) -> None:
    compiler = tmp_path / "g++-11"
    compiler.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=11 "$@"\n')
    compiler.chmod(0o755)
    text = error_of(tmp_path / "build", CXX=str(compiler))
    assert re.fullmatch(
        re.escape(f"horovod cannot be compiled by {compiler}, which is GNU 11.")
        + r"[\d.]+: install GCC 12 or Clang 16 and set CXX \(g\+\+-12 in Ubuntu 22.04, "
        r"gcc-toolset-12 in RHEL 8 and 9\), " + re.escape(WHEEL),
        text,
    )


def test_a_machine_without_compiler_is_told_what_to_install(tmp_path: Path) -> None:
    assert error_of(tmp_path / "build", PATH=str(tmp_path)) == (
        "horovod cannot be compiled without a C++20 compiler: install g++ (Debian, Ubuntu) or "
        f"gcc-c++ (Fedora, RHEL), {WHEEL}"
    )


def test_the_packages_are_those_of_the_other_lists() -> None:
    named = set(
        re.findall(
            r"FOUND [\w ]+ DEBIAN ([^)]*?)\s*FEDORA",
            (ROOT / "cmake/dependencies.cmake").read_text(),
        )
    )
    packages = {package for some in named for package in some.split()}
    assert "libfmt-dev" in packages
    lists = (ROOT / "tools").glob("debian-packages*.txt")
    assert packages <= {word for file in lists for word in file.read_text().split()}
    needed = packages - {"libgmock-dev", "libgtest-dev"}
    assert needed <= set(re.findall(r"[\w-]+", (ROOT / "README.md").read_text()))
