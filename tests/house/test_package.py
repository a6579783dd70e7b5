"""What the package says of itself is the same everywhere."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from devtool.paths import ROOT, venv_program


def declared(pattern: str, file: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found, f"{file} does not say {pattern}"
    return found[1]


def test_the_version_is_the_same_in_cmake_pip_and_python() -> None:
    version = declared(r'^version = "(.+)"', "pyproject.toml")
    assert declared(r"^project\(horovod VERSION (\S+)", "CMakeLists.txt") + ".dev0" == version
    script = "import horovod; print(horovod.__version__)"
    python = subprocess.run([venv_program("python"), "-c", script], capture_output=True, text=True)
    assert python.stdout.strip() == version, python.stderr
    program = subprocess.run(
        [venv_program("horovodrun"), "--version"], capture_output=True, text=True
    )
    assert program.stdout.strip().endswith(version), program.stderr


def test_every_framework_is_an_extra_without_an_upper_bound() -> None:
    script = "import importlib.metadata as m; print(m.requires('horovod'))"
    python = subprocess.run([venv_program("python"), "-c", script], capture_output=True, text=True)
    extras: dict[str, list[str]] = {}
    for text in ast.literal_eval(python.stdout):
        requirement, _, extra = text.partition("; extra == ")
        extras.setdefault(extra.strip("\"'"), []).append(requirement)
    names = {"torch", "pytorch", "tensorflow", "keras", "jax", "mxnet", "ray", "spark"}
    assert extras.pop("") == ["cloudpickle>=2.0"]
    assert set(extras) == names
    assert all(re.fullmatch(r"[a-z]+(>=[0-9.]+)?", one) for (one,) in extras.values())


def test_every_module_is_installed() -> None:
    script = "import horovod; print(horovod.__path__[0])"
    python = subprocess.run([venv_program("python"), "-c", script], capture_output=True, text=True)
    installed = Path(python.stdout.strip())
    tree = ROOT / "python"
    modules = {path.relative_to(tree) for path in tree.rglob("*.py*") if path.suffix != ".pyc"}
    assert len(modules) > 10
    assert not {module for module in modules if not (installed.parent / module).is_file()}


def test_importing_the_package_imports_no_framework() -> None:
    modules = "horovod, horovod.runner, horovod.data, horovod.common.elastic"
    script = f"import sys, {modules}; print([m for m in sys.modules])"
    ended = subprocess.run([venv_program("python"), "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not {"torch", "tensorflow", "jax", "numpy"} & set(ast.literal_eval(ended.stdout))


def test_every_example_says_how_it_is_started() -> None:
    for example in (ROOT / "examples").rglob("*.py"):
        text = ast.get_docstring(ast.parse(example.read_text())) or ""
        assert "horovodrun -np" in text and example.relative_to(ROOT).as_posix() in text
    for example in (ROOT / "examples").rglob("*.cc"):
        assert re.search(rf"^// +horovodrun -np .*/{example.stem}$", example.read_text(), re.M)
