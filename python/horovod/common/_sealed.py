"""Pickled objects on their way between ranks, with a proof that a rank of this job sent them.

Connections prove the job's key only when they begin, so a third party in the network can change
what follows. Changed tensors are wrong numbers, but a changed pickle runs code. So every pickled
object carries an HMAC-SHA-256, which is verified before anything is unpickled. Its key follows from
the job's key, the generation, the operation, its name and the rank that sends. Two objects that a
rank sends under one name have the same key: a third party could send the earlier one again.
"""

from __future__ import annotations

import hmac
import io
import pickle
from dataclasses import dataclass
from typing import Any

import cloudpickle

from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError

_MAC_BYTES = 32


@dataclass(frozen=True)
class Source:
    """Where an object comes from."""

    operation: str  #: of the user: broadcast_object
    name: str
    rank: int  #: that sends it, in the world

    def mac(self, pickled: memoryview) -> bytes:
        generation = core.world().generation
        key = core.derive_key(f"object {generation} {self.rank} {self.operation} {self.name}")
        made = hmac.new(key, digestmod="sha256")
        made.update(pickled)
        return made.digest()


def seal(obj: Any, source: Source) -> memoryview:
    """The proof and the pickled object. Raises: what pickling raises."""
    buffer = io.BytesIO()
    buffer.write(bytes(_MAC_BYTES))
    cloudpickle.dump(obj, buffer)
    sealed = buffer.getbuffer()
    sealed[:_MAC_BYTES] = source.mac(sealed[_MAC_BYTES:])
    return sealed


def unseal(sealed: bytearray | memoryview, source: Source) -> Any:
    """Returns the object. Raises HorovodInternalError if the data is not what the rank sent."""
    received = memoryview(sealed).cast("B")
    pickled = received[_MAC_BYTES:]
    if not hmac.compare_digest(received[:_MAC_BYTES], source.mac(pickled)):
        raise HorovodInternalError(
            f"{source.operation} {source.name!r}: the {len(pickled)} bytes that arrived from rank "
            f"{source.rank} are not those that it sent, so they were not unpickled: something "
            "between the ranks changed them; the network is broken or not to be trusted"
        )
    return pickle.loads(pickled)
