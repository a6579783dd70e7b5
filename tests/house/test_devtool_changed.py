"""What ./dev test --changed runs: what uses a file that differs, found in the texts of the tree."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from devtool import changed, suites
from devtool.changed import parts_of, reasons_for
from devtool.paths import ROOT
from devtool.uses import LAUNCHER, STARTER, Uses

#: A tree with one of each kind of use.
TREE = {
    "CMakePresets.json": "{}",
    "pyproject.toml": 'pythonpath = ["tests/support"]\n',
    "README.md": "",
    "core/low/CMakeLists.txt": "hvd_sources(low.cc)\nhvd_tests(low low_test.cc)\n",
    "core/low/low.h": "",
    "core/low/low.cc": '#include "core/low/low.h"\n',
    "core/low/low_test.cc": '#include "core/low/low.h"\n',
    "core/high/CMakeLists.txt": "set(more b_test.cc)\nhvd_tests(\n  high a_test.cc ${more})\n",
    "core/high/a_test.cc": '// is not "core/low/low.h"\n',
    "core/high/b_test.cc": '#include "core/high/high.h"\n',
    "core/high/high.h": "",
    "core/high/high.cc": '#include "core/high/high.h"\n#include "core/low/low.h"\n',
    "include/horovod.h": "",
    "core/CMakeLists.txt": "add_library(horovod SHARED high/high.cc)\n",
    "launcher/CMakeLists.txt": "add_executable(horovodrun main.cc)\n",
    "launcher/main.cc": "",
    "python/CMakeLists.txt": (
        "nanobind_add_module(_core NB_STATIC module.cc)\n"
        "target_link_libraries(_core PRIVATE horovod)\n"
    ),
    "python/module.cc": '#include "horovod.h"\n',
    "python/horovod/__init__.py": '"""import horovod.torch as hvd"""\n',
    "python/horovod/_core.pyi": "",
    "python/horovod/common/__init__.py": "",
    "python/horovod/common/extension.py": "from horovod import _core\n",
    "python/horovod/torch/__init__.py": "from horovod.torch.optimizer import step\n",
    "python/horovod/torch/optimizer.py": "from horovod.common import extension\n",
    "python/horovod/keras/__init__.py": '"""As horovod.torch."""\nPARTS = ["horovod.torch"]\n',
    "examples/a.py": "import horovod.torch as hvd\n",
    "tests/support/rank_jobs.py": 'command = "horovodrun"\n',
    "tests/torch/conftest.py": "",
    "tests/torch/ranks.py": "import rank_jobs\ndef run_job(body): ...\n",
    "tests/torch/test_values.py": "import ranks\nimport horovod.torch as hvd\n",
    "tests/torch/test_ends.py": "from ranks import run_job\njob = run_job(3)\n",
    "tests/tensorflow/test_alone.py": "import horovod.keras\n",
    "tests/tensorflow/test_both.py": "import horovod.keras\nBACKENDS = ['torch']\n",
    "tests/examples/test_a.py": 'SCRIPT = ROOT / "examples" / "a.py"\n',
    "tests/house/test_style.py": "",
}


def made(root: Path, *without: str) -> Uses:
    """TREE in a folder, where some files of it were deleted."""
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name not in without:
            (root / name).write_text(text)
    return Uses(root, TREE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Uses:
    return made(tmp_path_factory.mktemp("tree"))


@functools.cache
def real() -> tuple[Uses, list[str]]:
    names = changed.all_files(ROOT)
    return Uses(ROOT, names), names


def affected(uses: Uses, names: list[str], *differ: str) -> set[str]:
    return {reason.part.name for reason in reasons_for(uses, names, differ)}


TORCH = {"tests/torch/test_values.py"}
TESTS_OF_TORCH = TORCH | {"tests/tensorflow/test_both.py", "tests/examples/test_a.py"}


@pytest.mark.parametrize(
    ("differs", "runs"),
    [
        ("tests/torch/test_ends.py", {"tests/torch/test_ends.py"}),
        ("tests/torch/conftest.py", {"tests/torch/test_ends.py", *TORCH}),
        ("tests/support/rank_jobs.py", {"tests/torch/test_ends.py", *TORCH}),
        ("python/horovod/torch/optimizer.py", TESTS_OF_TORCH),
        ("python/horovod/torch/__init__.py", TESTS_OF_TORCH),
        ("python/horovod/__init__.py", TESTS_OF_TORCH | {"tests/tensorflow/test_alone.py"}),
        ("python/module.cc", TESTS_OF_TORCH),
        ("include/horovod.h", TESTS_OF_TORCH),
        ("launcher/main.cc", {"tests/torch/test_ends.py"}),
        ("core/low/low_test.cc", {"low"}),
        ("core/low/low.cc", {"low", "high", *TESTS_OF_TORCH}),
        ("core/low/CMakeLists.txt", {"low", "high", *TESTS_OF_TORCH}),
        ("core/high/high.cc", {"high", *TESTS_OF_TORCH}),
        ("core/high/a_test.cc", {"high"}),
        ("examples/a.py", {"tests/examples/test_a.py"}),
        ("tests/house/test_style.py", set()),
        ("README.md", set()),
    ],
)
def test_a_change_runs_what_uses_it(small: Uses, differs: str, runs: set[str]) -> None:
    assert affected(small, list(TREE), differs) == runs


def test_a_change_of_how_all_is_built_runs_everything(small: Uses) -> None:
    every = {part.name for part in parts_of(small, TREE) if part.suite != changed.ALWAYS}
    assert affected(small, list(TREE), "CMakePresets.json") == every
    assert affected(small, list(TREE), "cmake/new.cmake") == every


@pytest.mark.parametrize("name", ["core/high/high.h", "python/horovod/torch/optimizer.py"])
def test_a_file_that_was_deleted_runs_what_still_uses_it(tmp_path: Path, name: str) -> None:
    programs = {"high"} if name.startswith("core/") else set()
    assert affected(made(tmp_path, name), list(TREE), name) == programs | TESTS_OF_TORCH


def test_another_test_in_a_recipe_runs_only_the_programs_that_it_declares(small: Uses) -> None:
    recipe = "core/low/CMakeLists.txt"
    found = reasons_for(small, list(TREE), [recipe], [recipe])
    assert [(reason.part.name, reason.way) for reason in found] == [("low", (recipe,))]
    before, one_more = TREE[recipe], TREE[recipe].replace("low_test.cc", "low_test.cc\n  x_test.cc")
    assert changed.declares_other_tests_only(before, one_more)
    assert not changed.declares_other_tests_only(before, before.replace("(low.cc)", "(a.cc)"))
    assert not changed.declares_other_tests_only("", before)


def test_the_reason_is_the_way_to_what_differs(small: Uses) -> None:
    differ = ["python/horovod/torch/optimizer.py", "README.md"]
    found = reasons_for(small, list(TREE), differ)
    told = list(changed.lines("0123456789abcdef", differ, found, list(parts_of(small, TREE))))
    assert told[0] == "2 files differ from 0123456789ab; 3 of 8 parts use them"
    assert f"  tests/torch/test_values.py: python/horovod/torch/__init__.py > {differ[0]}" in told
    assert told[-1] == "  no further test for README.md"


def test_a_folder_that_is_run_whole_is_one_line(small: Uses) -> None:
    differ = ["tests/torch/conftest.py"]
    found = reasons_for(small, list(TREE), differ)
    told = list(changed.lines("0", differ, found, list(parts_of(small, TREE))))
    assert told[2:] == [
        "  torch, all of it, as tests/torch/test_values.py: tests/torch/conftest.py"
    ]


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def test_what_differs_is_committed_since_the_merge_base_or_not_committed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("kept", "deleted", "edited", "moved on main"):
        (tmp_path / name).write_text("before\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    git(tmp_path, "branch", "work")
    (tmp_path / "moved on main").write_text("after\n")
    git(tmp_path, "commit", "-qam", "main")
    git(tmp_path, "checkout", "-q", "work")
    (tmp_path / "committed").touch()
    git(tmp_path, "add", "committed")
    git(tmp_path, "rm", "-q", "deleted")
    git(tmp_path, "commit", "-qm", "work")
    (tmp_path / "edited").write_text("after\n")
    (tmp_path / "new").touch()
    (tmp_path / "ignored").touch()
    assert "deleted" not in changed.all_files(tmp_path)
    base = changed.merge_base(tmp_path)
    differ = changed.changed_files(tmp_path, base)
    assert differ == ["committed", "deleted", "edited", "new"]


def test_only_what_was_chosen_is_run() -> None:
    only = {"house": ["tests/house"], "torch": ["tests/torch/test_x.py"], "cpp": ["sim", "base"]}
    chosen = {s.name: s.run for s in suites.all_suites(False, only) if not s.slow}
    assert list(chosen) == ["house", "cpp", "torch", "cpp-asan", "cpp-tsan"]
    keywords = {name: run.keywords for name, run in chosen.items() if hasattr(run, "keywords")}
    assert keywords["cpp-asan"]["folders"] == ["sim", "base"]
    assert keywords["cpp-tsan"]["folders"] == ["base"]  # the simulator runs one thread at a time


def test_tests_of_gpus_that_load_tensorflow_are_a_suite_of_their_own() -> None:
    for file, suite in (
        ("tests/gpu/test_gpu_tensorflow.py", "gpu-tensorflow"),
        ("tests/gpu/test_gpu_training.py", "gpu"),
    ):
        chosen = suites.all_suites(False, {"gpu": [file]})
        assert [one.name for one in chosen if not one.slow] == [suite]


def test_every_test_of_this_tree_is_of_a_part() -> None:
    uses, names = real()
    parts = list(parts_of(uses, names))
    sources = {source for part in parts for source in part.sources}
    tests = [n for n in names if n.startswith(("core/", "launcher/", "tests/"))]
    tests = [n for n in tests if n.endswith("_test.cc") or Path(n).name.startswith("test_")]
    assert [name for name in tests if name not in sources] == []
    known = {suite.name for suite in suites.all_suites(False)}
    assert {part.suite for part in parts} <= known


def test_parts_of_this_tree_are_chosen_by_what_they_are_about() -> None:
    uses, names = real()
    run = functools.partial(affected, uses, names)
    by_launcher = run("launcher/options/hosts.cc")
    assert {
        "launcher",
        "tests/launch/test_hosts.py",
        "tests/torch/test_torch_endings.py",
    } <= by_launcher
    assert not {"sim", "tests/torch/test_torch_operations.py"} & by_launcher
    by_core = run("core/collective/executor.cc")
    assert {"collective", "sim", "tests/torch/test_torch_operations.py"} <= by_core
    assert not {"base", "transport", "negotiate", "launcher"} & by_core
    assert "tests/tensorflow/test_tf_operations.py" in run("adapters/tensorflow/node.cc")
    assert "tests/torch/test_s6_operations.py" not in run("adapters/tensorflow/node.cc")
    assert "fuzz" in run("core/transport/handshake.cc")
    assert not run("CHANGELOG.md")


def test_what_is_named_here_is_there() -> None:
    uses, names = real()
    assert STARTER in names and LAUNCHER in uses.text(STARTER)
    assert "fuzz" in {part.suite for part in parts_of(uses, names)}
