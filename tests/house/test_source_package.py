"""The source package: all that a wheel is built from, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_layers import GENERATED

from devtool.paths import ROOT, files_below, venv_program

SINGLE = {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
FOLDERS = ("adapters", "cmake", "core", "include", "launcher", "python")
FOR_TESTS = re.compile(r"_test\.cc$|(^|[/_])testing\.(h|cc)$|^core/sim/")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    script = f"import scikit_build_core.build as build; build.build_sdist({str(folder)!r})"
    made = subprocess.run([venv_program("python"), "-c", script], cwd=ROOT, capture_output=True)
    assert made.returncode == 0, made.stderr
    (archive,) = folder.glob("horovod-*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def test_it_holds_the_sources_without_their_tests(unpacked: Path) -> None:
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    sources = {path.relative_to(ROOT).as_posix() for path in files_below(*FOLDERS)}
    assert held == SINGLE | {path for path in sources if not FOR_TESTS.search(path)}


def test_nothing_in_it_includes_a_file_that_is_left_out(unpacked: Path) -> None:
    for path in unpacked.rglob("*"):
        if path.suffix in (".cc", ".h"):
            for name in INCLUDE.findall(path.read_text()):
                if name.startswith(FOLDERS):
                    sources = (unpacked / name, unpacked / GENERATED.get(name, f"{name}.in"))
                    assert any(source.is_file() for source in sources), f"{path} includes {name}"


def test_cmake_finds_all_sources_of_a_wheel_in_it(unpacked: Path, tmp_path: Path) -> None:
    options = [
        "-DHVD_PYTHON=ON",
        "-DHVD_TESTS=OFF",
        f"-DPython_EXECUTABLE={venv_program('python')}",
    ]
    command = ["cmake", "-G", "Ninja", "-S", str(unpacked), "-B", str(tmp_path), *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
