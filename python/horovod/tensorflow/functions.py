"""Sending state from one rank to all: variables and Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import _objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import _grouped_broadcast
from horovod.tensorflow.util import tf_variable

#: What the runtime moves as it is; other types travel as bytes.
_MOVED = frozenset(
    (
        tf.bool,
        tf.uint8,
        tf.int8,
        tf.uint16,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.float16,
        tf.bfloat16,
        tf.float32,
        tf.float64,
    )
)


def _broadcast_values(
    values: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet
) -> list[Any]:
    """The root's values: one operation a type."""
    sent = [value if value.dtype in _MOVED else tf.bitcast(value, tf.uint8) for value in values]
    received: list[Any] = list(sent)
    for dtype in dict.fromkeys(value.dtype for value in sent):
        places = [place for place, value in enumerate(sent) if value.dtype == dtype]
        group = [sent[place] for place in places]
        results = _grouped_broadcast(group, root_rank, f"{name}_{dtype.name}", process_set)
        for place, result in zip(places, results, strict=True):
            received[place] = result
    return [
        result if value.dtype in _MOVED else tf.bitcast(result, value.dtype)
        for value, result in zip(values, received, strict=True)
    ]


def _assign_all(
    variables: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet
) -> list[Any]:
    inner = [tf_variable(variable) for variable in variables]
    values = [tf.convert_to_tensor(variable) for variable in inner]
    received = _broadcast_values(values, root_rank, name, process_set)
    return [variable.assign(value) for variable, value in zip(inner, received, strict=True)]


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites variables by those of `root_rank`, all in one go: one operation a type.

    `variables`: of TensorFlow or Keras, in the same order, with the same shapes and types on all
    ranks. `inplace` changes nothing here: it is for scripts that give it.
    Returns: nothing eagerly; in a graph the operation that does it.
    """
    variables = list(variables)
    if not variables:
        return tf.no_op()
    assigned = _assign_all(variables, root_rank, "HorovodBroadcastVariables", process_set)
    if tf.executing_eagerly():
        return None
    return tf.group(*[getattr(result, "op", result) for result in assigned])


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables by those of `root_rank`, and returns their values.

    Raises: ValueError when there are variables with and without resources among them.
    """
    kinds = {type(tf_variable(variable)).__name__ for variable in variables}
    if len(kinds) > 1 and "RefVariable" in kinds:
        raise ValueError(f"the variables must be of one kind, but are of {sorted(kinds)}")
    name = name or "HorovodBroadcastInplace"
    return [
        tf.convert_to_tensor(result)
        for result in _assign_all(list(variables), root_rank, name, process_set)
    ]


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that overwrites all global variables of a v1 graph by those of `root_rank`.

    Raises: RuntimeError where there are none, in eager execution.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for v1 graphs: in eager execution call "
            "hvd.broadcast_variables() with the variables of the model and of the optimizer"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Makes the global variables of `root_rank` everyone's, once a session has been made.

    For MonitoredTrainingSession and estimators: whatever the root has initialised or loaded.
    `device`: where the nodes are placed.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank` on every rank: whatever cloudpickle can carry, of any size.

    Other ranks may pass anything, such as None. Works in graphs too: nothing becomes a node, and
    `session` is not needed. Ranks must trust each other: unpickling runs code.
    Order: matched by `name`; without one all calls share a name, hence one at a time.
    Raises: ValueError for misuse; HorovodMismatchError when ranks disagree; HorovodInternalError
    when a rank is lost or the object was changed on its way; what pickling raises on the root, and
    HorovodInternalError on the others then.
    """
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """`broadcast_object` with all but the object given."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The objects of all ranks, in the order of ranks. As `broadcast_object`."""
    return _objects.allgather_object(obj, name, process_set)
