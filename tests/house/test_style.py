"""Formatting and types are not discussed but checked."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from devtool.paths import ROOT, cpp_files, python_files, venv_program

HEADER = ROOT / "include" / "horovod" / "horovod.h"


def must(*command: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def texts(paths: Sequence[object]) -> list[str]:
    return [str(path) for path in paths]


def test_cpp_is_formatted() -> None:
    """`./dev fmt` repairs what this finds."""
    must("clang-format", "--dry-run", "-Werror", *texts(cpp_files()))


def test_python_is_formatted() -> None:
    must(venv_program("ruff"), "format", "--check", *texts(python_files()))


def test_ruff_has_nothing_to_say() -> None:
    must(venv_program("ruff"), "check", *texts(python_files()))


def test_the_package_is_typed() -> None:
    must(venv_program("mypy"))


def test_the_tools_are_typed() -> None:
    must(venv_program("mypy"), "--strict", "tools/devtool")


def test_the_benches_are_typed() -> None:
    must(venv_program("mypy"), "--strict", "bench/harness")


@pytest.mark.parametrize("language", ["c99", "c11", "c17"])
def test_the_c_header_compiles_alone_as(language: str) -> None:
    must(
        "gcc",
        f"-std={language}",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        "-fsyntax-only",
        str(HEADER),
    )


@pytest.mark.parametrize("header", ["horovod.h", "elements.hpp", "horovod.hpp"])
def test_headers_compile_alone_as_cpp(header: str) -> None:
    must(
        "g++",
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-pedantic",
        "-Werror",
        "-fsyntax-only",
        f"-I{HEADER.parents[1]}",
        "-x",
        "c++",
        str(HEADER.with_name(header)),
    )
