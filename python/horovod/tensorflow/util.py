"""Small helpers around variables and tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    """Whether operations run at once: in no tf.function and no v1 graph."""
    return bool(tf.executing_eagerly())


def as_tensor(value: Any) -> Any:
    """As tf.convert_to_tensor, which takes its time even when nothing is to be done."""
    if isinstance(value, tf.Tensor) and tf.executing_eagerly():
        return value
    return tf.convert_to_tensor(value)


def on_device(device: str) -> Any:
    """As tf.device, which takes its time even when no device is named."""
    return tf.device(device) if device else contextlib.nullcontext()


def tf_variable(variable: Any) -> Any:
    """The tf.Variable of a Keras variable; others are what they are."""
    inner = getattr(variable, "value", None)
    return inner if hasattr(inner, "assign") else variable


def reference(variable: Any) -> Any:
    """Something hashable that stands for a variable: Keras' own have no `ref`."""
    inner = tf_variable(variable)
    return inner.ref() if hasattr(inner, "ref") else id(inner)


def vars_to_refs(vars: Any) -> Any:
    """References to variables, which can be keys; lists become tuples of them."""
    if isinstance(vars, (list, tuple)):
        return tuple(vars_to_refs(variable) for variable in vars)
    return tf_variable(vars).ref()


def refs_to_vars(refs: Any) -> Any:
    """The inverse of `vars_to_refs`; tuples become lists."""
    if isinstance(refs, (list, tuple)):
        return [refs_to_vars(reference) for reference in refs]
    return refs.deref() if hasattr(refs, "deref") else refs


def names_of(variables: Sequence[Any]) -> list[str]:
    """For messages."""
    return [str(getattr(variable, "path", None) or variable.name) for variable in variables]
