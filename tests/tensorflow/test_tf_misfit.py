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


#: Here the op library fits, but Python's side of TensorFlow is another one.
OTHER_PYTHON = """
import ctypes, runpy, sys, types
from horovod.common import _extension
names = ["tensorflow", "tensorflow.python", "tensorflow.python.framework"]
modules = {name: types.ModuleType(name) for name in names}
modules["tensorflow"].__version__ = "99.0"
modules["tensorflow"].load_op_library = lambda path: None
modules[names[2]].auto_control_deps = types.SimpleNamespace()
sys.modules.update(modules)
ctypes.CDLL = lambda path: types.SimpleNamespace(hvd_tensorflow_problem=lambda: b"")
runpy.run_path(sys.argv[2])
"""


def told(framework: str, program: str = PROGRAM) -> str:
    package = importlib.util.find_spec("horovod")
    assert package and package.submodule_search_locations
    module = Path(package.submodule_search_locations[0]) / "tensorflow" / "_library.py"
    command = [sys.executable, "-c", program, framework, str(module)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr  # an exception, not a signal
    return ended.stderr


def test_a_function_that_is_missing_is_named(tmp_path: Path) -> None:
    core = importlib.util.find_spec("horovod._core")
    assert core and core.origin
    framework = tmp_path / "libtensorflow_framework.so.99"
    shutil.copy(Path(core.origin).with_name("libhorovod.so"), framework)
    sentence = told(str(framework)).splitlines()[-1]
    assert "HorovodVersionMismatchError: Horovod does not fit the installed tensorflow 99.0: " in (
        sentence
    )
    assert str(framework) in sentence and "TF_NewStatus" in sentence
    assert sentence.endswith(
        "; install a tensorflow that fits, of those from 2.15 on, or reinstall Horovod: "
        "pip install --no-cache-dir --force-reinstall horovod"
    )


def test_one_that_would_run_operations_in_a_row_is_refused() -> None:
    sentence = told("", OTHER_PYTHON).splitlines()[-1]
    assert "Horovod does not fit the installed tensorflow 99.0: inside a tf.function" in sentence
    assert "no list ASYNC_STATEFUL_OPS" in sentence


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_framework_with_another_standard_library_is_refused(tmp_path: Path) -> None:
    framework = tmp_path / "libtensorflow_framework.so.99"
    command = ["cc", "-shared", "-x", "c", "-", "-o", str(framework)]
    subprocess.run(command, input="int _ZNSt3__14coutE;", text=True, check=True)
    assert f"{framework} is built with libc++" in told(str(framework))


def test_no_framework_at_all_is_told() -> None:
    assert "there is no libtensorflow_framework in this process" in told("")
