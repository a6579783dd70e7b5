"""All that an operation is told beside its arrays: a value that JAX keeps in compiled programs."""

from __future__ import annotations

from typing import Any, NamedTuple

from horovod.common._arguments import check_name
from horovod.common._extension import core
from horovod.common._submission import rows_of
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, process_set_id

#: Calls without a name share this one: they run one after another, in the order of the program.
#: A difference between ranks is then an error that names both operations.
UNNAMED = "noname"


class How(NamedTuple):
    """`rank`, `size`: of this process in the process set, when the program was traced."""

    kind: int
    name: str
    process_set: int
    size: int
    rank: int
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0  #: global rank
    #: Of an allgather: the rows of each result, if the ranks' rows are known to differ.
    rows: tuple[int, ...] = ()

    def result_shape(self, shape: tuple[int, ...], place: int) -> tuple[int, ...]:
        """The shape of the result for the leaf at `place`, which has `shape`."""
        if self.kind == core.ALLGATHER:
            rows = self.rows[place] if self.rows else shape[0] * self.size
            return (rows, *shape[1:])
        if self.kind == core.REDUCESCATTER:
            return (rows_of(shape[0], self.rank, self.size), *shape[1:])
        return shape

    def is_linear(self) -> bool:
        """Whether the result is a linear function of the arrays of all ranks."""
        return not self.reduces() or self.op in (Average, Sum)

    def reduces(self) -> bool:
        return self.kind in (core.ALLREDUCE, core.REDUCESCATTER)


def make(doing: str, kind: int, name: str | None, process_set: ProcessSet, **arguments: Any) -> How:
    """Checks the name and the process set. `doing`: the public function, for messages.

    Raises: ValueError before `init`, for an unregistered set, and on a rank outside the set.
    """
    check_name(doing, name)
    number = process_set_id(process_set)
    size, rank = core.process_set(number)
    if rank < 0:
        raise ValueError(
            f"{doing}: rank {core.world().rank} is not part of {process_set!r}; only its ranks may "
            "call operations on it"
        )
    return How(kind, name or UNNAMED, number, size, rank, **arguments)
