"""The library that pushes operations to MXNet's engine, loaded once."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod.common import basics
from horovod.common._extension import core as core  # loads what the library stands on
from horovod.common.exceptions import HorovodVersionMismatchError

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(_FOLDER, "libhorovod_mxnet.so")

#: Operations in flight get so long to end when the job ends on this rank.
_SECONDS_TO_END = 10


class _Request(ctypes.Structure):
    """As in adapters/mxnet/request.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("root", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_int32),
        ("priority", ctypes.c_int32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
    )


def push(how: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any], priority: int) -> None:
    """Pushes an operation; returns at once. `how`: a `core.Operation`.

    `outputs`: the arrays of `inputs`, or others. MXNet keeps their memory until the end.
    Raises: MXNetError. Errors of the operation are raised where a result is used.
    """
    request = _Request(
        how.kind,
        how.op,
        how.prescale,
        how.postscale,
        how.root,
        how.process_set,
        name.encode(),
        len(inputs),
        priority,
        _handles(inputs),
        _handles(outputs),
    )
    problem = _LIBRARY.hvd_mxnet_push(ctypes.byref(request))
    if problem:
        raise mx.base.MXNetError(problem.decode(errors="replace"))


def _handles(arrays: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays])


def memory_of(array: Any) -> int:
    """The address of its values; waits until they are there. 0 for an array without elements."""
    array.wait_to_read()
    address = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value or 0


def _misfit(why: str) -> HorovodVersionMismatchError:
    """What is raised where this MXNet cannot be used; in one sentence, with the reason."""
    error = HorovodVersionMismatchError("mxnet", "1.9", mx.__version__)
    error.msg = (
        f"Horovod does not fit the installed mxnet {mx.__version__}: {why}; install mxnet 1.9.1, "
        "or reinstall Horovod: pip install --no-cache-dir --force-reinstall horovod"
    )
    error.args = (error.msg,)
    return error


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(PATH)
    except OSError as error:
        raise ImportError(
            f"the library for MXNet could not be loaded from {PATH} ({error}); reinstall Horovod: "
            "pip install --no-cache-dir --force-reinstall horovod"
        ) from error
    library.hvd_mxnet_problem.restype = ctypes.c_char_p
    library.hvd_mxnet_push.restype = ctypes.c_char_p
    why = library.hvd_mxnet_problem().decode()
    if why:
        raise _misfit(why)
    return library


def _let_operations_end() -> None:
    """Before the runtime ends: operations run in the background, and other ranks may need those of
    this one. Not after an error, which other ranks are to see soon."""
    if getattr(sys, "last_value", None) is None:
        _LIBRARY.hvd_mxnet_wait(_SECONDS_TO_END)


def _drain() -> None:
    """After it has ended, at exit: what follows must not run while the process is torn down."""
    core.shutdown_at_exit()
    _LIBRARY.hvd_mxnet_drain(_SECONDS_TO_END)


_LIBRARY = _load()
basics.before_end_of_job(_let_operations_end)
atexit.register(_drain)
