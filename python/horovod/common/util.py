"""Small helpers, usable without `init` and without importing a framework."""

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

from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

T = TypeVar("T")


def mpi_built(verbose: bool = False) -> bool:
    """Whether operations can run over MPI: whether there is a part for one beside `_core`."""
    module = importlib.util.find_spec("horovod._core")
    folder = os.path.dirname(module.origin or "") if module is not None else ""
    found = glob.glob(os.path.join(folder, "libhorovod_mpi_*.so"))
    if verbose and not found:
        print(
            f"there is no libhorovod_mpi_*.so in {folder}: it is built where mpicc of Open MPI or "
            "MPICH is found while Horovod is installed"
        )
    return bool(found)


def gloo_built(verbose: bool = False) -> bool:
    """Whether our own data plane (shared memory and TCP) is there: always."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """The version code of NCCL, 0 for none: not in this version."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Always False."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Always False."""
    return False


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether `horovod.<ext_base_name>` and its framework are both installed. Imports neither."""
    try:
        missing = [
            name
            for name in (ext_base_name, f"horovod.{ext_base_name}", "horovod._core")
            if importlib.util.find_spec(name) is None
        ]
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


@functools.cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU. A process of its own asks, so CUDA does not start here."""
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
    """The ending of this interpreter's native modules: `.cpython-311-x86_64-linux-gnu.so`."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """The file of a native module: `args`, folders and base name, below `pkg_path`'s folder."""
    return os.path.join(os.path.dirname(os.path.abspath(pkg_path)), *args) + get_ext_suffix()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError when the native module of a binding is not there."""
    path = get_extension_full_path(pkg_path, *args)
    if not os.path.exists(path):
        raise ImportError(
            f"extension {ext_name} has not been built: {path} not found; to find out why, "
            f"reinstall Horovod with {ext_env_var}=1 in the environment, which makes a failure to "
            "build it an error"
        )


def check_installed_version(
    name: str, version: str, exception: BaseException | None = None
) -> None:
    """Compares the installed `name` with the `version` that the binding was made for.

    A difference is a warning; with `exception`, what failed because of it, it is
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
    """Sets entries of `os.environ` (None removes one) and puts the former values back."""
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
    """True for 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741 (documented name)
    """Cuts `l` into `n` consecutive chunks whose lengths differ by at most one."""
    size, longer = divmod(len(l), n)
    starts = [size * index + min(index, longer) for index in range(n + 1)]
    return [l[begin:end] for begin, end in itertools.pairwise(starts)]


def is_iterable(x: object) -> bool:
    """Whether `iter(x)` works."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether `ver` is `target` (spelled `x.y.z`) or later, by its numbers alone."""
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
