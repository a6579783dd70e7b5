"""`horovod.run`: calls a function on many processes."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod.runner.elastic.discovery import HostDiscovery

_LONGEST_COOLDOWN = 3600  #: s; the launcher has the same limit


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | HostDiscovery | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | Sequence[str] | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on `num_proc` processes. Returns the results in rank order.

    The function, its arguments and the results are sent by cloudpickle. The other parameters are
    the flags of `horovodrun` of the same names. `executable`: the Python of the ranks; default:
    this one. The output of the ranks is written to `sys.stdout` and `sys.stderr`, prefixed with
    their rank.

    With `min_num_proc` or `host_discovery_script` the job is elastic: it goes on while
    `min_num_proc` processes are left, and returns the results of as many ranks, from rank 0. It
    starts with at least `min_num_proc` processes, if `num_proc` is not given.
    `host_discovery_script` may be a `horovod.runner.elastic.discovery.HostDiscovery`.

    Raises: TypeError for a parameter of the wrong type, as in `run(f, 2)`; ValueError if a number
    of processes is below 1, flags exclude each other, or `cooldown_range` is not two ascending
    numbers from 1 to 3600; RankFailed, a RuntimeError, if a rank raises or dies, with the rank's
    exception as its cause.
    """
    from horovod.runner import _call  # needs cloudpickle, which `import horovod` does not

    num_proc = _renamed("np", np, "num_proc", num_proc, 1)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc, None)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc, None)
    network_interfaces = _renamed(
        "network_interface", network_interface, "network_interfaces", network_interfaces, None
    )
    _check_call(func, args, kwargs)
    num_proc = _number("num_proc", num_proc)
    if min_num_proc is not None:
        min_num_proc = _number("min_num_proc", min_num_proc)
        num_proc = min_num_proc if num_proc == 1 else num_proc
    _exclude(hosts=hosts, hostfile=hostfile, host_discovery_script=host_discovery_script)
    _exclude(use_gloo=use_gloo, use_mpi=use_mpi)
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    discovery, script = _discovery(host_discovery_script)
    flags = {
        "-np": num_proc,
        "--min-np": min_num_proc,
        "--max-np": None if max_num_proc is None else _number("max_num_proc", max_num_proc),
        "--slots-per-host": _one_word("slots", slots, 4),
        "--reset-limit": _one_word("reset_limit", reset_limit, 100),
        "--blacklist-cooldown-range": _cooldown(cooldown_range),
        "--hosts": _text("hosts", hosts, "node1:2,node2:2"),
        "--hostfile": _text("hostfile", hostfile, "hosts"),
        "--host-discovery-script": _text("host_discovery_script", script, "find.sh"),
        "--start-timeout": _one_word("start_timeout", start_timeout, 60),
        "--ssh-port": _one_word("ssh_port", ssh_port, 22),
        "--ssh-identity-file": _text("ssh_identity_file", ssh_identity_file, "~/.ssh/id_ed25519"),
        "--disable-cache": bool(disable_cache),
        "--output-filename": _text("output_filename", output_filename, "logs"),
        "--verbose": bool(verbose),
        "--gloo": bool(use_gloo),
        "--mpi": bool(use_mpi),
        "--mpi-args": _text("mpi_args", mpi_args, "--tag-output"),
        "--network-interfaces": network_interfaces,
    }

    def call() -> list[Any]:
        return _call.call(func, args, kwargs or {}, num_proc, flags, executable)

    if discovery is None:
        return call()
    from horovod.runner._published_hosts import PublishedHosts

    with PublishedHosts(discovery) as published:
        flags["--host-discovery-script"] = published.script
        return call()


def _renamed(old_name: str, old: Any, name: str, value: Any, default: Any) -> Any:
    """Returns the value of a parameter that has been renamed."""
    if old is None:
        return value
    warnings.warn(f"{old_name} is deprecated; use {name}", DeprecationWarning, stacklevel=3)
    if value != default and value != old:
        raise ValueError(f"{name}={value} and {old_name}={old}: give one of them")
    return old


def _check_call(func: Any, args: Any, kwargs: Any) -> None:
    """Rejects arguments that were passed in the wrong place among the first three."""
    if not callable(func):
        called = "; pass the function itself, not what it returns" if func is None else ""
        raise TypeError(
            f"func={func!r}: it must be a function{called}, as in horovod.run(train, num_proc=2)"
        )
    name = getattr(func, "__name__", "func")
    if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
        what = (
            "use num_proc for the number of processes"
            if isinstance(args, int)
            else "pass a single argument as a tuple"
        )
        call = f"num_proc={args}" if isinstance(args, int) else f"args=({args!r},)"
        raise TypeError(
            f"args={args!r}: it must be the list or tuple of the arguments of {name}; {what}: "
            f"horovod.run({name}, {call})"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(
            f"kwargs={kwargs!r}: it must be a dict of the keyword arguments of {name}; use "
            f"num_proc for the number of processes, as in horovod.run({name}, num_proc=2)"
        )


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: it must be the number of processes, as in {name}=2")
    if value < 1:
        raise ValueError(f"{name}={value}: it must be at least 1")
    return operator.index(value)


def _one_word(name: str, value: Any, example: int) -> int | float | str | None:
    """Checks a number that becomes one word of a command line. The launcher checks its value."""
    if value is None or (isinstance(value, (int, float, str)) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: it must be a number, as in {name}={example}")
    return operator.index(value)


def _cooldown(value: Any) -> tuple[int, int] | None:
    """Checks the two words of a flag."""
    if value is None:
        return None
    try:
        low, high = map(operator.index, value)
    except (TypeError, ValueError):
        raise TypeError(
            f"cooldown_range={value!r}: it must be two numbers of seconds, as in "
            "cooldown_range=(10, 60)"
        ) from None
    if not 1 <= low <= high <= _LONGEST_COOLDOWN:
        raise ValueError(
            f"cooldown_range={value!r}: both must be from 1 to {_LONGEST_COOLDOWN} seconds, and "
            "the first one not the larger one"
        )
    return low, high


def _text(name: str, value: Any, example: str) -> str | None:
    """Checks a parameter that becomes one word of a command line."""
    if value is None or isinstance(value, (str, os.PathLike)):
        return None if value is None else os.fspath(value)
    raise TypeError(f"{name}={value!r}: it must be a str, as in {name}={example!r}")


def _discovery(given: Any) -> tuple[HostDiscovery | None, Any]:
    """Returns `host_discovery_script` as an object of the user, or as the name of a program."""
    return (given, None) if hasattr(given, "find_available_hosts_and_slots") else (None, given)


def _exclude(**parameters: Any) -> None:
    given = [name for name, value in parameters.items() if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: give one")
