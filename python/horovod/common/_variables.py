"""Checks of the arguments that select variables: groups and local variables.

For every Keras and TensorFlow, none of which is imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

Groups = Any  #: None, a number of groups, or a list of lists of variables


def checked_groups(
    num_groups: int,
    groups: Groups,
    member: str = "variable",
    is_member: Callable[[Any], bool] = lambda v: hasattr(v, "assign"),
) -> Groups:
    """`groups`, of which `num_groups` is the older spelling. To be called by what users call.

    `member`: what is grouped, by its name. Raises: ValueError when it is neither a non-negative int
    nor a list of lists of members, or has a member twice.
    """
    if num_groups:
        warnings.warn(
            "num_groups is deprecated: give groups=<int> instead", DeprecationWarning, stacklevel=3
        )
        groups = num_groups if groups is None else groups
    is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0
    if groups is None or is_number:
        return groups
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(group, (list, tuple)) and all(map(is_member, group)) for group in groups
    ):
        raise ValueError(
            f"groups must be a non-negative int or a list of lists of {member}s, got {groups!r}"
        )
    members = [_identity(variable) for group in groups for variable in group]
    if len(set(members)) != len(members):
        raise ValueError(f"groups must not contain a {member} twice")
    return groups


def _identity(variable: Any) -> int:
    """Of TensorFlow's variable where Keras has put its own around it."""
    inner = getattr(variable, "value", None)
    return id(inner if hasattr(inner, "assign") else variable)


def weights_of(local_layers: Any) -> list[Any]:
    """The trainable variables of a layer or several; ValueError for what is no Keras layer."""
    if local_layers is None:
        return []
    layers = local_layers if isinstance(local_layers, (list, tuple, set)) else [local_layers]
    for layer in layers:
        if not (hasattr(layer, "trainable_weights") and hasattr(layer, "call")):
            raise ValueError(f"local_layers must be Keras layers, got {type(layer).__name__}")
    return [variable for layer in layers for variable in layer.trainable_weights]
