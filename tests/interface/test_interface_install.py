"""An installation that CMake has made is found and used as the one in the wheel is."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import build
from commands import must
from launcher import Jobs

from devtool.paths import BUILD, ROOT
from horovod.common.util import cmake_prefix_path

CONSUMER = ROOT / "examples" / "cpp"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    must("cmake", "--install", str(BUILD / "release"), "--prefix", str(prefix))
    return prefix


def test_an_installation_is_found_by_cmake(jobs: Jobs, prefix: Path, tmp_path: Path) -> None:
    built = build(CONSUMER, tmp_path / "build", str(prefix))
    cache = (built / "CMakeCache.txt").read_text()
    assert f"horovod_DIR:PATH={prefix}" in cache
    job = jobs.run("-np", "2", str(built / "pi"))
    assert job.code == 0 and "by 2 processes" in job.out, job.err


def test_an_installation_may_be_moved(prefix: Path, tmp_path: Path) -> None:
    moved = prefix.rename(tmp_path / "elsewhere")
    try:
        build(CONSUMER, tmp_path / "build", str(moved))
    finally:
        moved.rename(prefix)


def test_an_installation_has_the_launcher_and_nothing_of_other_projects(prefix: Path) -> None:
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    assert "bin/horovodrun" in files
    headers = {name for name in files if name.startswith("include/")}
    assert headers == {
        f"include/horovod/{path.name}" for path in (ROOT / "include" / "horovod").iterdir()
    }


def test_another_major_version_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
        "find_package(horovod 2.0 QUIET)\n"
        "if(horovod_FOUND)\n  message(FATAL_ERROR found)\nendif()\n"
    )
    prefix = f"-DCMAKE_PREFIX_PATH={cmake_prefix_path()}"
    must("cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), prefix)
