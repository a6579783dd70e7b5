"""Finds the test cases that run code in several threads: only these can fail under TSan."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devtool.paths import ROOT
from devtool.process import Failed

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
STARTS = re.compile(r"std::j?thread\b(?!::)|std::async\b|\bpthread_create\b|\bstart_thread\(")


def has_threads(source: str) -> bool:
    """True if a file, or a header that it includes, starts a thread or has one as a member."""
    seen = {source}
    left = [source]
    while left:
        text = (ROOT / left.pop()).read_text()
        if STARTS.search(text):
            return True
        includes = {name for name in INCLUDE.findall(text) if (ROOT / name).is_file()}
        left += includes - seen
        seen |= includes
    return False


def threaded_cases(command: Sequence[str]) -> str:
    """Returns the cases of a test program that are in files with threads, as a GoogleTest filter;
    empty if there are none. Raises Failed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as listing:
        options = ["--gtest_list_tests", f"--gtest_output=json:{listing.name}"]
        ended = subprocess.run([*command, *options], capture_output=True, text=True)
        if ended.returncode != 0:
            raise Failed(f"`{' '.join([*command, *options])}` failed: {ended.stderr}")
        suites = json.loads(Path(listing.name).read_text())["testsuites"]
    cases = [
        f"{suite['name']}.{case['name']}"
        for suite in suites
        for case in suite["testsuite"]
        if has_threads(source_of(case["file"]))
    ]
    return ":".join(cases)


def source_of(file: str) -> str:
    """The name relative to the root of a file, as the compiler got it."""
    return re.sub(r"^(?:\.\./)+", "", file.removeprefix(f"{ROOT}/"))
