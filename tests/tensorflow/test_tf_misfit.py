"""A TensorFlow that the op library does not fit is told in one sentence, when it is imported."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Stands in for `import tensorflow`, and for its library: any other shared library has no TF_*.
PROGRAM = """
import ctypes, runpy, sys, types
framework, module = sys.argv[1:]
if framework:
    ctypes.CDLL(framework)
tensorflow = types.ModuleType("tensorflow")
tensorflow.__version__ = "99.0"
tensorflow.load_op_library = ctypes.CDLL
tensorflow.errors = types.SimpleNamespace(NotFoundError=KeyError)
sys.modules["tensorflow"] = tensorflow
runpy.run_path(module)
"""


def told(framework: str) -> str:
    package = importlib.util.find_spec("horovod")
    assert package and package.submodule_search_locations
    module = Path(package.submodule_search_locations[0]) / "tensorflow" / "_library.py"
    command = [sys.executable, "-c", PROGRAM, framework, str(module)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr  # an exception, not a signal
    return ended.stderr


def test_a_function_that_is_missing_is_named(tmp_path: Path) -> None:
    core = importlib.util.find_spec("horovod._core")
    assert core and core.origin
    framework = tmp_path / "libtensorflow_framework.so.99"
    shutil.copy(Path(core.origin).with_name("libhorovod.so"), framework)
    text = told(str(framework))
    assert f"{framework} has no function TF_NewStatus, nor " in text
    assert text.splitlines()[-1].endswith(
        "works with tensorflow 2.15 or later, but tensorflow 99.0 is installed; install a matching "
        "tensorflow, or reinstall Horovod beside the installed one: "
        "pip install --no-cache-dir --force-reinstall horovod"
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_framework_with_another_standard_library_is_refused(tmp_path: Path) -> None:
    framework = tmp_path / "libtensorflow_framework.so.99"
    command = ["cc", "-shared", "-x", "c", "-", "-o", str(framework)]
    subprocess.run(command, input="int _ZNSt3__14coutE;", text=True, check=True)
    assert f"{framework} is built with libc++" in told(str(framework))


def test_no_framework_at_all_is_told() -> None:
    assert "there is no libtensorflow_framework in this process" in told("")
