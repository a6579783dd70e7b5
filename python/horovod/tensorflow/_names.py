"""What operations are called: ranks match them by these names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _arguments, _datasets, _xla

v1 = tf.compat.v1


def normalized(name: str) -> str:
    """As a node may be called: other characters than letters, digits and _ become _."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _own(tensor: Any) -> str:
    """A tensor from outside a tf.function is called by a number there, another on each rank."""
    name = str(tensor.name)
    return "captured" if re.fullmatch(r"\d+(:\d+)?", name) else normalized(name)


def named(op: str, name: str | None, tensors: Sequence[Any]) -> dict[str, Any]:
    """The arguments of an op of the library that give it its name, and say whether it blocks.

    In a graph it is the node's, by default made of the tensors' names; eagerly the caller's, else
    the op's. `op` is the op's name in TensorFlow. Raises ValueError where XLA compiles.
    """
    if tf.executing_eagerly():
        return {"tensor_name": _arguments.tensor_name(name or op), "blocking": True}
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
    """The same for names with scopes."""
    return "/".join(normalized(part) for part in name.split("/"))
