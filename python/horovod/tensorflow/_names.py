"""Names of operations, by which ranks match them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common._arguments import check_name
from horovod.tensorflow import _datasets, _operands, _xla

v1 = tf.compat.v1


def normalized(name: str) -> str:
    """Replaces all characters that are not letters, digits or _ by _."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _own(tensor: Any) -> str:
    """A tensor from outside a tf.function is called by a number there, another on each rank."""
    name = str(tensor.name)
    return "captured" if re.fullmatch(r"\d+(:\d+)?", name) else normalized(name)


def named(op: str, name: str | None, tensors: Sequence[Any]) -> dict[str, Any]:
    """The arguments of an op of the library that give it its name, and say whether it blocks.

    In a graph it is the node's, by default made of the tensors' names; eagerly the caller's, else
    the op's. `op` is the op's name in TensorFlow. Raises ValueError where XLA compiles, and for a
    name that is no str.
    """
    check_name(op, name)
    if tf.executing_eagerly():
        return {"tensor_name": _operands.tensor_name(name or op), "blocking": True}
    _xla.refuse(op)
    if name is None and tensors:
        ends = dict.fromkeys([_own(tensors[0]), _own(tensors[-1])])
        name = "_".join([op, *(ends if len(tensors) > 1 else [_own(tensors[0])])])
    return {**in_graph(op), "name": normalized_scope(name) if name else None}


def in_graph(op: str) -> dict[str, Any]:
    """The arguments of an op of the library that is called as its node is.

    Raises ValueError in a function of tf.data of which several calls run at a time.

    A loop of a v1 graph runs iterations side by side: each gets a name of its own. In a tf.function
    they run one after another, as `_library` sees to, and share the name of the node.
    """
    _datasets.refuse(op)
    return {"tensor_name": [], "by_iteration": not v1.executing_eagerly_outside_functions()}


def normalized_scope(name: str) -> str:
    """Does `normalized` on each part of a name with scopes."""
    return "/".join(normalized(part) for part in name.split("/"))
