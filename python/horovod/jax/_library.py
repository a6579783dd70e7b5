"""The custom call, registered once: XLA calls it where a compiled program has an operation."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from pathlib import Path

import jax

from horovod.common import basics
from horovod.common._extension import core as core  # loads what the library stands on
from horovod.jax import _internals

TARGET = "horovod_collective"
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(_FOLDER, "libhorovod_jax.so")

#: The version of XLA's interface that the library is written for: see adapters/jax/c_api.h.
_MAJOR, _MINOR = 0, 1
#: Earlier ones abort in the compiler where a custom call follows a small matrix product: XLA reads
#: its attributes as a configuration of its own.
_OLDEST_JAXLIB = (0, 7, 2)

#: Calls that XLA has not completed this long after the runtime has ended are left at exit.
_SECONDS_TO_DRAIN = 10


def interface_version(headers: Path) -> tuple[int, int] | None:
    """The version of the interface that the headers of jaxlib define, None if they do not."""
    header = headers / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(errors="replace") if header.is_file() else ""
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    numbers = [int(one[1]) for one in found if one]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


def problem(jaxlib: tuple[int, ...], interface: tuple[int, int] | None) -> str:
    """Why the handler cannot be registered, "" if it can.

    XLA refuses a handler of another version when it creates its CPU backend, and then nothing runs
    on it. So it is asked for before.
    """
    if jaxlib < _OLDEST_JAXLIB:
        return f"jaxlib {'.'.join(map(str, jaxlib))} is older than {_internals.OLDEST}"
    if interface is not None and (interface[0] != _MAJOR or interface[1] < _MINOR):
        return (
            f"the interface for custom calls of its jaxlib has version {interface[0]}."
            f"{interface[1]}, and Horovod uses {_MAJOR}.{_MINOR}"
        )
    return ""


def _load() -> ctypes.CDLL:
    from jaxlib.version import __version_info__ as jaxlib  # type: ignore[import-not-found]

    why = problem(tuple(jaxlib[:3]), interface_version(Path(jax.ffi.include_dir())))
    if why:
        raise _internals.misfit(why)
    try:
        library = ctypes.CDLL(PATH)
    except OSError as error:
        raise ImportError(
            f"the library for JAX could not be loaded from {PATH} ({error}); reinstall Horovod: "
            "pip install --no-cache-dir --force-reinstall horovod"
        ) from error
    handler = jax.ffi.pycapsule(library.hvd_jax_collective)
    jax.ffi.register_ffi_target(TARGET, handler, platform="cpu", api_version=1)
    return library


def _let_operations_end() -> None:
    """Before the runtime ends: compiled programs run in the background, and other ranks may need
    the operations of this one. Not after an error, which other ranks are to see soon."""
    if getattr(sys, "last_value", None) is None:
        _internals.let_operations_end()


def _drain() -> None:
    """After it has ended, at exit: what follows must not run while the process is torn down."""
    core.shutdown_at_exit()
    _LIBRARY.hvd_jax_drain(_SECONDS_TO_DRAIN)


_LIBRARY = _load()
basics.before_end_of_job(_let_operations_end)
atexit.register(_drain)
