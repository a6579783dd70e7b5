"""What the commands of ./dev set up, in which order, and what they find already there."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from devtool import paths, process, setup, steps
from devtool.process import Failed, run_logged
from devtool.setup import COMPLETE, FOR_DEMO, FOR_TESTS, Package, entries, included, steps_of
from devtool.steps import Step, run_steps

WITHOUT_ADAPTERS = Package(without=("MPI", "TENSORFLOW", "JAX", "MXNET"))


@pytest.fixture(autouse=True)
def logs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(process, "_interrupted", threading.Event())


def requirements_of(file: Path) -> set[str]:
    lines = {line for one in included(file) for line in entries(one) if line[0] != "-"}
    return {line.partition("==")[0] for line in lines}


def debian_of(scope: setup.Scope) -> set[str]:
    return {package for file in scope.debian for package in entries(file)}


def called(step: Step) -> tuple[str, list[Any]]:
    work: Any = step.work
    return work.func.__name__, list(work.args)


def test_the_demo_compiles_while_pip_installs_torch() -> None:
    planned = {step.title: step for step in steps_of(FOR_DEMO, with_package=True)}
    assert {title: step.after for title, step in planned.items()} == {
        "Debian packages": (),
        "build tools": ("Debian packages",),
        "environment": ("build tools",),
        "compilation": ("build tools",),
        "package": ("environment", "compilation"),
    }
    assert {title: called(step) for title, step in planned.items()} == {
        "Debian packages": ("install_debian_packages", [FOR_DEMO.debian]),
        "build tools": ("make_environment", [paths.VENV, setup.BUILD_REQUIREMENTS]),
        "environment": ("make_environment", [paths.VENV, FOR_DEMO.requirements]),
        "compilation": ("compile_package", [WITHOUT_ADAPTERS]),
        "package": ("install_package", [paths.VENV, WITHOUT_ADAPTERS]),
    }


def test_a_missing_compiler_is_named_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "WHEELS", tmp_path)
    monkeypatch.setitem(setup.WITH_CCACHE, "CXX", "c++-that-is-missing -m64")
    with pytest.raises(Failed, match=r"no C\+\+ compiler `c\+\+-that-is-missing`; .*install g\+\+"):
        setup.build_wheel(COMPLETE, "")


def test_without_the_package_nothing_is_compiled() -> None:
    planned = [step.title for step in steps_of(FOR_TESTS, with_package=False)]
    assert planned == ["Debian packages", "build tools", "environment"]


def test_the_demo_has_torch_and_no_other_framework() -> None:
    installed = requirements_of(FOR_DEMO.requirements)
    assert {"torch", "numpy", "tqdm", "nanobind", "scikit-build-core"} <= installed
    assert not {"tensorflow", "tf_keras", "jax", "pytest"} & installed
    assert not {name for name in debian_of(FOR_DEMO) if "mpi" in name or "clang" in name}


def test_a_wider_scope_adds_to_what_the_demo_has_set_up() -> None:
    assert requirements_of(FOR_DEMO.requirements) < requirements_of(FOR_TESTS.requirements)
    assert debian_of(FOR_DEMO) < debian_of(FOR_TESTS)
    assert FOR_TESTS.package == COMPLETE == Package()


def test_what_is_included_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-r b.txt\ntorch==2\n")
    (tmp_path / "b.txt").write_text("# tools\n-r c.txt\n")
    (tmp_path / "c.txt").write_text("nanobind==3\n")
    assert [file.name for file in included(tmp_path / "a.txt")] == ["c.txt", "b.txt", "a.txt"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the lists that pip has installed; below tmp_path is an empty environment."""
    names: list[str] = []

    def pip(command: list[str], log_name: str) -> None:
        names.append(Path(command[-1]).name)

    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "must", pip)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "pip").touch()
    (tmp_path / "build.txt").write_text("nanobind==3\n")
    (tmp_path / "demo.txt").write_text("-r build.txt\ntorch==2\n")
    (tmp_path / "all.txt").write_text("-r demo.txt\njax==1\n")
    return names


def test_what_an_environment_has_is_not_installed_again(
    tmp_path: Path, installed: list[str]
) -> None:
    for name in ("demo.txt", "demo.txt", "all.txt", "demo.txt", "all.txt"):
        setup.make_environment(tmp_path / "venv", tmp_path / name)
    assert installed == ["demo.txt", "all.txt"]


def test_an_environment_follows_the_lists_that_its_list_includes(
    tmp_path: Path, installed: list[str]
) -> None:
    setup.make_environment(tmp_path / "venv", tmp_path / "all.txt")
    (tmp_path / "build.txt").write_text("nanobind==4\n")
    setup.make_environment(tmp_path / "venv", tmp_path / "all.txt")
    assert installed == ["all.txt", "all.txt"]


@pytest.mark.parametrize(
    ("there", "wanted", "serves"),
    [
        (COMPLETE, COMPLETE, True),
        (COMPLETE, WITHOUT_ADAPTERS, True),
        (WITHOUT_ADAPTERS, WITHOUT_ADAPTERS, True),
        (WITHOUT_ADAPTERS, COMPLETE, False),
        (Package(without=("MPI",)), WITHOUT_ADAPTERS, False),
    ],
)
def test_a_complete_package_serves_the_demo_too(
    tmp_path: Path, there: Package, wanted: Package, serves: bool
) -> None:
    stamp = tmp_path / "stamp"
    stamp.write_text(there.stamp("f1"))
    assert wanted.is_there(stamp, "f1") is serves
    assert not wanted.is_there(stamp, "f2")
    assert not wanted.is_there(tmp_path / "none", "f1")


def test_parts_are_left_out_by_the_variables_that_users_know() -> None:
    parts = ("MPI", "TENSORFLOW", "JAX", "MXNET")
    assert WITHOUT_ADAPTERS.env == {f"HOROVOD_WITHOUT_{part}": "1" for part in parts}
    assert COMPLETE.env == {}


def test_missing_debian_packages_are_found_in_all_lists(tmp_path: Path) -> None:
    lists = [tmp_path / "demo", tmp_path / "tests"]
    lists[0].write_text("# packages\nbash\n")
    lists[1].write_text("no-such-package-here\n")
    assert setup.missing_packages(lists) == ["no-such-package-here"]


def test_steps_that_do_not_need_each_other_run_side_by_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    meet = threading.Barrier(2)
    order: list[str] = []

    def works(title: str, meets: bool = False) -> Step:
        def work() -> str:
            if meets:
                meet.wait(30)  # in vain if they ran one after the other
            order.append(title)
            return f"{title} is there"

        return Step(title, "", work, () if title == "a" else ("b", "c") if title == "d" else ("a",))

    run_steps([works("d"), works("b", True), works("c", True), works("a")])
    assert (order[0], order[-1], set(order)) == ("a", "d", set("abcd"))
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert (printed[0], printed[-1], len(printed)) == ("a", "d", 4)


def test_a_step_that_takes_long_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "QUIET_S", 0.01)
    said = threading.Event()
    monkeypatch.setattr(steps, "say", lambda text: (print(text), said.set()))
    run_steps([Step("environment", "pip installs PyTorch", lambda: str(said.wait(30)))])
    first, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["environment", "pip", "installs", "PyTorch", "..."]
    assert last.split()[:2] == ["environment", "True"]


def test_a_step_that_fails_ends_the_one_beside_it_and_those_after_it_do_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = tmp_path / "started"
    code = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(1000)"
    ended: list[int] = []

    def endless() -> str:
        command = [sys.executable, "-c", code]
        ended.append(run_logged(command, "endless", deadline_s=1000).code)
        return ""

    def fails() -> str:
        deadline = time.monotonic() + 30
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise Failed("no network")

    after = Step("package", "", lambda: str(ended.append(0)), ("environment", "compilation"))
    with pytest.raises(Failed, match="no network"):
        run_steps([Step("environment", "", fails), Step("compilation", "", endless), after])
    assert ended == [-15]
    assert "environment       failed\n" in capsys.readouterr().out


def test_steps_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        run_steps([Step("a", "", str, ("b",)), Step("b", "", str, ("a",))])
