"""Paths, relative to the root of the checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
VENV = ROOT / ".venv"

CPP_SUFFIXES = {".cc", ".cpp", ".h", ".hpp", ".c"}
CPP_FOLDERS = ("core", "include", "launcher", "python", "adapters", "bench", "tests", "examples")
PYTHON_FOLDERS = ("python", "examples", "bench", "tests", "tools")


def venv_program(name: str, venv: Path = VENV) -> str:
    return str(venv / "bin" / name)


def files_below(*folders: str) -> Iterator[Path]:
    """Returns source files below `folders`, in a fixed order. A missing folder has none."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def cpp_files() -> list[Path]:
    return [path for path in files_below(*CPP_FOLDERS) if path.suffix in CPP_SUFFIXES]


def python_files() -> list[Path]:
    found = [path for path in files_below(*PYTHON_FOLDERS) if path.suffix in {".py", ".pyi"}]
    return [ROOT / "dev", *found]
