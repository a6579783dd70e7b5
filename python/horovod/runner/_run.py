"""`horovod.run`: a function on many processes, called from one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
    host_discovery_script: str | None = None,
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
    """Calls `func(*args, **kwargs)` on `num_proc` processes; returns the results in rank order.

    The function, its arguments and the results are sent by cloudpickle. The other parameters are
    the flags of `horovodrun` of the same names. `executable`: the Python of the ranks, else this
    one. What the ranks write comes out on `sys.stdout` and `sys.stderr` with their rank.

    Raises: ValueError when flags exclude each other; RankFailed, a RuntimeError, when a rank raises
    or dies, from the exception of the rank.
    """
    from horovod.runner import _call  # cloudpickle, which `import horovod` can do without

    num_proc = _renamed("np", np, "num_proc", num_proc, 1)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc, None)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc, None)
    network_interfaces = _renamed(
        "network_interface", network_interface, "network_interfaces", network_interfaces, None
    )
    _exclude(hosts=hosts, hostfile=hostfile, host_discovery_script=host_discovery_script)
    _exclude(use_gloo=use_gloo, use_mpi=use_mpi)
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    flags = {
        "-np": num_proc,
        "--min-np": min_num_proc,
        "--max-np": max_num_proc,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--blacklist-cooldown-range": cooldown_range,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--disable-cache": bool(disable_cache),
        "--output-filename": output_filename,
        "--verbose": bool(verbose),
        "--gloo": bool(use_gloo),
        "--mpi": bool(use_mpi),
        "--mpi-args": mpi_args,
        "--network-interfaces": network_interfaces,
    }
    return _call.call(func, args, kwargs or {}, num_proc, flags, executable)


def _renamed(old_name: str, old: Any, name: str, value: Any, default: Any) -> Any:
    """The value of a parameter that has had another name."""
    if old is None:
        return value
    warnings.warn(
        f"{old_name} is deprecated; {name} took its place", DeprecationWarning, stacklevel=3
    )
    if value != default and value != old:
        raise ValueError(f"{name}={value} and {old_name}={old}: give one of them")
    return old


def _exclude(**parameters: Any) -> None:
    given = [name for name, value in parameters.items() if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: give one")
