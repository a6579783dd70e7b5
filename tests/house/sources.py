"""Reading the C++ sources for the tests of the tree."""

from __future__ import annotations

import re
from pathlib import Path

from devtool.paths import ROOT, cpp_files

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)


def name(path: Path) -> str:
    """As in an include line: from the root of the checkout."""
    return path.relative_to(ROOT).as_posix()


def is_test(path: Path) -> bool:
    return path.stem.endswith("_test") or "testing" in path.stem or name(path).startswith("tests/")


def includes(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


def code_only(text: str) -> str:
    """Without comments, texts and characters, so that words in them are not taken for code."""
    return NOT_CODE.sub(" ", text)


def sources(*folders: str) -> list[Path]:
    return [path for path in cpp_files() if name(path).startswith(folders)]
