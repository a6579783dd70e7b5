"""Interface by which shared code accesses the tensors of one framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from horovod.common._extension import core


@dataclass(frozen=True)
class Backend:
    """One framework. Each package has one value of this; those of a new framework are an adapter.

    Functions get a tensor of that framework.
    """

    #: Of `core.DTYPES`, those that the framework has; in that order.
    types: tuple[str, ...]
    #: The name of its element type: one of `types`, or what the framework calls another one.
    type_of: Callable[[Any], str]
    #: How a tensor of another type can be sent, as the end of a message; "" if it cannot.
    advice: Callable[[Any], str] = lambda tensor: ""


def types_of(framework: Any) -> tuple[str, ...]:
    """The element types that a module has as attributes."""
    return tuple(name for name in core.DTYPES if hasattr(framework, name))
