"""The program that `horovod.run` and notebooks start on every rank: connects to the calling process
and serves its requests. `python -m horovod.runner._worker`, under horovodrun, or under an mpirun
that horovodrun started."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from horovod.common._channel import Channel, Closed, secret_of
from horovod.common._dial import Patience, dial
from horovod.runner._job import CALLER_HOSTS, CALLER_KEY, PORT_VARIABLE, PURPOSE
from horovod.runner._key import WORKER_VARIABLE, key_of_job
from horovod.runner._path import extend_path

#: The caller may be busy: it sends a large function to one rank after the other.
_PATIENCE = Patience(connect=30, total=120)
#: For an address that may be unreachable from this host, such as a bridge of the caller's host.
_PATIENCE_FOR_MANY = Patience(connect=3, total=120)
#: Set by horovodrun, Open MPI, MPICH.
_RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def main() -> int:
    try:
        channel = connect()
        what, *rest = channel.receive()
    except (Closed, OSError) as error:
        print(f"cannot reach the process that called horovod.run: {error}", file=sys.stderr)
        return 1
    if what == "cells":
        from horovod.runner._cells import serve

        return serve(channel, *rest)
    return call(channel, *rest)


def connect() -> Channel:
    """Connects to the caller, with the key of the job."""
    port = int(os.environ.pop(PORT_VARIABLE))
    if CALLER_KEY in os.environ:  # another launcher has no key service
        key = bytes.fromhex(os.environ.pop(CALLER_KEY))
        hosts = os.environ.pop(CALLER_HOSTS).split(",")
    else:
        key = key_of_job(os.environ)
        hosts = [os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]]  # the launcher's address
    for host in hosts[:-1]:
        try:
            return connect_to(host, port, key, _PATIENCE_FOR_MANY)
        except OSError:  # includes Closed
            continue
    return connect_to(hosts[-1], port, key, _PATIENCE)


def connect_to(host: str, port: int, key: bytes, patience: Patience) -> Channel:
    name = os.environ.get(WORKER_VARIABLE) or own_rank()
    by_mpirun = WORKER_VARIABLE not in os.environ and "HOROVOD_RANK" not in os.environ
    hello = ("hello", name, os.getpid(), own_host(), by_mpirun)
    return dial(host, port, secret_of(key, PURPOSE), hello, patience)


def own_rank() -> int:
    """Returns -1 in a worker of an elastic job that has no place yet."""
    return int(next((os.environ[name] for name in _RANK_VARIABLES if name in os.environ), -1))


def own_host() -> str:
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


def call(channel: Channel, path: list[str], function_and_arguments: bytes) -> int:
    """Runs a function. Returns the exit code. The caller receives the result before this process
    ends, so the launcher never reports the exit first."""
    try:
        extend_path(path)
        function, args, kwargs = pickle.loads(function_and_arguments)
        del function_and_arguments
        result = cloudpickle.dumps(function(*args, **kwargs))
    except BaseException as error:
        return give_up(channel, error)
    channel.send(("returned", own_rank(), result))
    channel.receive()
    return 0


def give_up(channel: Channel, error: BaseException) -> int:
    """Sends `error` to the caller, and prints its last line to standard error."""
    text = describe(error)
    print(f"{text[0]} (the caller gets the traceback)", file=sys.stderr, flush=True)
    channel.send(("raised", own_rank(), *text, pickled_or_none(error)))
    channel.receive()
    return 1


def describe(error: BaseException) -> tuple[str, str]:
    """Returns the last line of the exception, and the traceback without our own frames."""
    below = error.__traceback__
    while below is not None and below.tb_frame.f_globals is globals():
        below = below.tb_next
    shown = traceback.TracebackException(type(error), error, below)
    return "".join(shown.format_exception_only()).strip(), "".join(shown.format())


def pickled_or_none(error: BaseException) -> bytes | None:
    """Returns the pickled exception; None if it cannot be unpickled again."""
    try:
        pickled: bytes = cloudpickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return None
    return pickled


def _without_output_errors(main: Callable[[], int]) -> Any:
    """Suppresses the traceback if the caller has ended: the launcher ends this process anyway."""
    try:
        return main()
    except Closed:
        return 1


if __name__ == "__main__":
    # Imported as a module, so that pickled objects of this file do not belong to __main__.
    from horovod.runner import _worker

    sys.exit(_worker._without_output_errors(_worker.main))
