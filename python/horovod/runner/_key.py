"""Gets the job's key for a process that horovodrun started, from the key service of its host
(docs/wire.md, section 7)."""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Mapping

#: An abstract unix socket, whose name begins with a zero byte.
_VARIABLE = "HOROVOD_KEY_SOCKET"
#: The name of a worker of an elastic job: host, slot and incarnation.
WORKER_VARIABLE = "HOROVOD_WORKER"
_KEY_BYTES = 32
_PATIENCE_SECONDS = 30
_GIVEN, _REFUSED = 1, 2
_MOST_BYTES = 1000


def key_of_job(environment: Mapping[str, str]) -> bytes:
    """Returns the key without registering this process as the rank.

    Raises: OSError with the reason if it gets none.
    """
    worker = environment.get(WORKER_VARIABLE)
    number = worker.split("/")[1] if worker else environment["HOROVOD_RANK"]
    name = f"horovod-asks-for-rank-{number}-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.settimeout(_PATIENCE_SECONDS)
        keeper.bind(b"\0" + name.encode())
        keeper.connect(b"\0" + environment[_VARIABLE].encode())
        _require_own_user(keeper)
        answer = b""
        while len(answer) < _MOST_BYTES and (more := keeper.recv(_MOST_BYTES - len(answer))):
            answer += more
    if answer[:1] == bytes([_GIVEN]) and len(answer) > _KEY_BYTES:
        return answer[1 : 1 + _KEY_BYTES]
    why = answer[1:].decode(errors="replace") if answer[:1] == bytes([_REFUSED]) else "no answer"
    raise OSError(f"horovodrun does not give this process the job's key: {why}")


def _require_own_user(keeper: socket.socket) -> None:
    credentials = keeper.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    if user != os.geteuid():
        raise OSError(f"the socket of {_VARIABLE} belongs to user {user}, not to horovodrun")
