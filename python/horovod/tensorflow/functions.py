"""Broadcast of variables and Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import _objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._moving import broadcast_values, check_can_move
from horovod.tensorflow.util import tf_variable


def _assign_all(
    variables: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet
) -> list[Any]:
    inner = [tf_variable(variable) for variable in variables]
    values = [tf.convert_to_tensor(variable) for variable in inner]
    for variable, value in zip(variables, values, strict=True):
        check_can_move(variable, value)
    shapes = [variable.shape for variable in inner]
    received = broadcast_values(values, shapes, root_rank, name, process_set)
    return [variable.assign(value) for variable, value in zip(inner, received, strict=True)]


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites variables with those of `root_rank`, with one operation per dtype.

    Args:
        variables: of TensorFlow or Keras, in the same order and with the same shapes and dtypes on
            all ranks; strings are supported.
        root_rank: a global rank.
        inplace: not used; accepted for compatibility.

    Returns:
        Eagerly None; in a graph the operation.

    Raises:
        ValueError: a variable has an unsupported dtype. The text names it.
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
    """Overwrites variables with those of `root_rank`, and returns their values.

    Raises: ValueError if resource variables and other variables are mixed, and as
    `broadcast_variables`.
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
    """Returns the operation that overwrites all global variables of a v1 graph with the root's.

    Raises: RuntimeError in eager execution, which has no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for v1 graphs: in eager execution call "
            "hvd.broadcast_variables() with the variables of the model and of the optimizer"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Session hook that copies the global variables of `root_rank` to all ranks after creation.

    For MonitoredTrainingSession and estimators: includes values that the root has loaded from a
    checkpoint. `device`: placement of the nodes.
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
    """Returns the object of `root_rank` on every rank: anything that cloudpickle supports.

    Other ranks may pass anything, such as None. Works in graphs too: it adds no node, and `session`
    is not used. Ranks must trust each other, since unpickling runs code. Calls are matched by
    `name`; calls without one share a name, so only one may run at a time.
    Raises: ValueError for misuse; HorovodMismatchError if ranks disagree; HorovodInternalError if a
    rank is lost or the data was corrupted. If pickling fails, the root raises its error and the
    other ranks raise HorovodInternalError.
    """
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function `obj -> object` that calls `broadcast_object` with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns a list of the objects of all ranks, in the order of ranks. See `broadcast_object`."""
    return _objects.allgather_object(obj, name, process_set)
