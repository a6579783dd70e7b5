"""What the package says where it cannot be used, and what it exports."""

from __future__ import annotations

import subprocess
import sys

import mxnet as mx

import horovod.mxnet as hvd
from horovod.common import util
from horovod.mxnet import _library


def said(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return ended.stdout + ended.stderr


def test_without_mxnet_the_error_says_what_to_install() -> None:
    found = said("import sys; sys.modules['mxnet'] = None\nimport horovod.mxnet")
    assert "ImportError: horovod.mxnet needs MXNet 1.9" in found
    assert "pip install 'mxnet==1.9.1' 'numpy<1.24'" in found


def test_a_process_without_mxnet_is_refused_by_the_library() -> None:
    program = f"""
import ctypes
from horovod import _core
library = ctypes.CDLL({_library.PATH!r})
library.hvd_mxnet_problem.restype = ctypes.c_char_p
print(library.hvd_mxnet_problem().decode())
"""
    assert said(program).strip() == "there is no libmxnet.so in this process"


def test_a_version_that_does_not_fit_is_named() -> None:
    error = _library._misfit("its version is 10500")
    assert isinstance(error, ImportError)
    assert f"the installed mxnet {mx.__version__}: its version is 10500" in str(error)


def test_every_public_name_is_there() -> None:
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert util.extension_available("mxnet", verbose=True)
    assert not util.gpu_available("mxnet")


def test_other_frameworks_are_not_loaded() -> None:
    program = "import sys, horovod.mxnet; print('torch' in sys.modules, 'jax' in sys.modules)"
    assert said(program).split()[-2:] == ["False", "False"]
