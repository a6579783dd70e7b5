"""Utilities that need neither `init` nor a framework."""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from horovod.common import _gpus
from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

T = TypeVar("T")


def _cache(f: Callable[..., T]) -> Callable[..., T]:
    """Decorates `f` so that it is called once for each list of arguments, which are hashable."""
    return functools.cache(f)


def _library_folder() -> str:
    """The folder of the module `_core`; empty if it is not installed."""
    module = importlib.util.find_spec("horovod._core")
    return os.path.dirname(module.origin or "") if module is not None else ""


def mpi_built(verbose: bool = False) -> bool:
    """Returns whether MPI support is installed: a `libhorovod_mpi_*.so` beside the module
    `_core`."""
    folder = _library_folder()
    found = glob.glob(os.path.join(folder, "libhorovod_mpi_*.so"))
    if verbose and not found:
        print(
            f"there is no libhorovod_mpi_*.so in {folder}: it is built where mpicc of Open MPI or "
            "MPICH is found while Horovod is installed"
        )
    return bool(found)


def gloo_built(verbose: bool = False) -> bool:
    """Returns True: the built-in data plane (shared memory and TCP) is always built."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """Returns the version code of the NCCL that is found (22703 for 2.27.3); 0: none. NCCL is
    loaded at run time, in another process here. The first call takes a second."""
    report = _gpus.ask_once()
    if verbose and report.nccl_code == 0:
        print(report.nccl_problem or "libnccl.so.2 was not found: pip install nvidia-nccl-cu12")
    return report.nccl_code


def ddl_built(verbose: bool = False) -> bool:
    """Returns False: DDL is not supported."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Returns False: oneCCL is not supported."""
    return False


#: Frameworks that a build can leave out; each has a library of its own.
_OPTIONAL = frozenset({"tensorflow", "mxnet"})


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether `horovod.<ext_base_name>`, its libraries and its framework are installed.
    Imports none of them."""
    try:
        missing = [
            name
            for name in (ext_base_name, f"horovod.{ext_base_name}", "horovod._core")
            if importlib.util.find_spec(name) is None
        ]
        if not missing and ext_base_name in _OPTIONAL:
            library = os.path.join(_library_folder(), f"libhorovod_{ext_base_name}.so")
            if not os.path.isfile(library):
                missing.append(f"{library} (Horovod was built without {ext_base_name})")
    except (ImportError, ValueError) as error:
        missing = [str(error)]
    if missing and verbose:
        print(f"horovod.{ext_base_name} is not available, missing: {', '.join(missing)}")
    return not missing


_COUNT_GPUS = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow as t; print(len(t.config.list_physical_devices('GPU')))",
    "mxnet": "import mxnet; print(mxnet.context.num_gpus())",
}


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether the framework detects a GPU. Asks in a subprocess, so CUDA is not initialized
    here.
    """
    program = _COUNT_GPUS.get(ext_base_name)
    if program is None or not extension_available(ext_base_name, verbose):
        return False
    asked = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0 and verbose:
        print(f"asking {ext_base_name} for GPUs failed: {asked.stderr}")
    return asked.returncode == 0 and asked.stdout.split()[-1:] not in ([], ["0"])


def cmake_prefix_path() -> str:
    """The entry of CMAKE_PREFIX_PATH with which CMake's find_package(horovod) finds this package.

    It has the shared library, and the headers of the C and the C++ interface.
    """
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def get_ext_suffix() -> str:
    """Returns the file suffix of native modules, such as `.cpython-311-x86_64-linux-gnu.so`."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Returns the path of a native module: `args` (folders and base name) below `pkg_path`'s
    folder.
    """
    return os.path.join(os.path.dirname(os.path.abspath(pkg_path)), *args) + get_ext_suffix()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError if the native module of a binding is missing.

    `pkg_path`, `args`: as in `get_extension_full_path`. `mpi_lib` and `mpi_lib_v2` in a package of
    Horovod have no file: for them the native module of all bindings is checked.
    """
    path = get_extension_full_path(pkg_path, *args)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if args in (("mpi_lib",), ("mpi_lib_v2",)) and path.startswith(ours + os.sep):
        path = os.path.join(ours, "_core") + get_ext_suffix()
    if not os.path.exists(path):
        raise ImportError(
            f"extension {ext_name} has not been built: {path} not found; to find out why, "
            f"reinstall Horovod with {ext_env_var}=1 in the environment, which makes a failure to "
            "build it an error"
        )


def check_installed_version(
    name: str, version: str, exception: BaseException | None = None
) -> None:
    """Compares the installed version of `name` with `version`, which the binding was built for.

    Warns if they differ. If `exception`, the error that followed from it, is given, raises
    HorovodVersionMismatchError.
    """
    installed = str(getattr(importlib.import_module(name), "__version__", "unknown"))
    if installed == version:
        return
    if exception is not None:
        raise HorovodVersionMismatchError(name, version, installed) from exception
    warnings.warn(get_version_mismatch_message(name, version, installed), stacklevel=2)


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Context manager that sets entries of `os.environ` (None removes one) and restores them
    afterwards.
    """
    former = {key: os.environ.get(key) for key in kwargs}
    try:
        _set_environment(kwargs)
        yield
    finally:
        _set_environment(former)


def _set_environment(entries: dict[str, str | None]) -> None:
    for key, value in entries.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741 (documented name)
    """Splits `l` into `n` consecutive chunks whose lengths differ by at most one."""
    size, longer = divmod(len(l), n)
    starts = [size * index + min(index, longer) for index in range(n + 1)]
    return [l[begin:end] for begin, end in itertools.pairwise(starts)]


def is_iterable(x: object) -> bool:
    """Returns whether `iter(x)` works."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether version `ver` is `target` (`x.y.z`) or later. Compares the numbers only."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings, got {ver!r} and {target!r}")
    if re.fullmatch(r"\d+\.\d+\.\d+", target) is None:
        raise ValueError(f"the version to compare with must be spelled x.y.z, got {target!r}")
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in leading.group().split(".")] if leading else []
    return tuple([*numbers, 0, 0, 0][:3])


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[..., int]:
    """Makes the function `(op, average) -> op` that understands the older argument `average`.

    `reduce_ops` has the attributes `Average` and `Sum`. Neither given: Average. Both: ValueError.
    """

    def resolve(op: int | None, average: bool | None) -> int:
        if average is None:
            return int(reduce_ops.Average if op is None else op)
        if op is not None:
            raise ValueError("only one of `op` and `average` may be given: leave out `average`")
        warnings.warn(
            "the argument `average` is deprecated: give op=Average or op=Sum instead",
            DeprecationWarning,
            stacklevel=3,
        )
        return int(reduce_ops.Average if average else reduce_ops.Sum)

    return resolve
