"""TSan runs the cases that can have a race, found in the texts of the tests, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtool import suites, threads
from devtool.changed import all_files, parts_of
from devtool.paths import ROOT
from devtool.process import Failed
from devtool.setup import THREADED
from devtool.threads import has_threads, source_of, threaded_cases
from devtool.uses import Uses

#: Its ranks take turns in one thread; what it includes could start more.
ONE_THREAD = {"sim"}


def program(folder: Path, files: dict[str, list[str]]) -> list[str]:
    """A test program that lists `files`, each with the names of its cases."""
    listed = [
        {"name": "Ring", "testsuite": [{"name": one, "file": f"../../{file}"} for one in cases]}
        for file, cases in files.items()
    ]
    (folder / "listing").write_text(json.dumps({"testsuites": listed}))
    script = folder / "program"
    script.write_text(f"#!/bin/sh\ncp '{folder}/listing' \"${{2#--gtest_output=json:}}\"\n")
    script.chmod(0o755)
    return [str(script)]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(threads, "ROOT", tmp_path)
    texts = {
        "own_test.cc": "std::jthread one([] {});\n",
        "below_test.cc": '#include "core/middle.h"\n',
        "middle.h": '#include "core/testing.h"\n#include <thread>\n#include "core/middle.h"\n',
        "testing.h": "  std::vector<std::thread> ranks_;\n",
        "none_test.cc": "std::this_thread::yield(); // std::thread::id\n",
    }
    (tmp_path / "core").mkdir()
    for name, text in texts.items():
        (tmp_path / "core" / name).write_text(text)
    return tmp_path


def test_cases_of_files_with_threads_are_picked(tree: Path) -> None:
    files = {f"core/{name}_test.cc": [f"A{name}", f"B{name}"] for name in ("own", "below", "none")}
    assert threaded_cases(program(tree, files)) == "Ring.Aown:Ring.Bown:Ring.Abelow:Ring.Bbelow"


def test_a_program_without_threads_is_not_run(tree: Path) -> None:
    command = program(tree, {"core/none_test.cc": ["A"]})
    assert threaded_cases(command) == ""
    count = suites.cpp_program("tsan", {"name": "x", "command": command}, {}, 9, threaded_cases)
    assert (count.passed, count.failed) == (0, 0)


def test_a_program_that_cannot_list_its_cases_is_an_error() -> None:
    with pytest.raises(Failed, match="failed: "):
        threaded_cases(["false"])


def test_a_file_is_named_from_the_root() -> None:
    assert source_of(f"{ROOT}/core/a_test.cc") == "core/a_test.cc"
    assert source_of("../../core/a_test.cc") == "core/a_test.cc"


def test_tsan_has_every_folder_of_the_core_whose_tests_have_threads() -> None:
    names = all_files(ROOT)
    found = {
        part.name
        for part in parts_of(Uses(ROOT, names), names)
        if any(source.startswith("core/") and has_threads(source) for source in part.sources)
    }
    assert found - ONE_THREAD == set(THREADED)


def test_no_case_is_in_a_header_whose_threads_would_not_be_seen() -> None:
    """A case is listed with the file that it stands in."""
    headers = [name for name in all_files(ROOT) if name.startswith("core/") and name.endswith(".h")]
    assert not [name for name in headers if "TEST_P(" in (ROOT / name).read_text()]
