"""The reduced gradients that an optimizer has given to a caller, who may bring them to be applied.

A script may clip or scale them on the way, or only look at them and apply others. In a graph what
is made of them can be seen; eagerly only the tensors themselves are known again.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

Node = tuple[int, str]


class Given:
    """Holds no tensor and no graph: what a caller has dropped is forgotten."""

    def __init__(self) -> None:
        self._tensors: dict[int, weakref.ref[Any]] = {}  #: eager ones
        self._nodes: dict[Node, weakref.ref[Any]] = {}  #: each with its graph
        self._variables: frozenset[int] = frozenset()

    def __reduce__(self) -> Any:
        return Given, ()  # a copy of an optimizer has given nothing yet

    def add(self, gradients: Iterable[Any], variables: Iterable[Any]) -> None:
        """Remembers these gradients, reduced, each beside its variable; None is skipped."""
        self._tensors, self._nodes = _alive(self._tensors), _alive(self._nodes)
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is None:
                continue
            self._variables |= {id(variable)}
            node = _node(gradient)
            if node is None:
                self._tensors[id(gradient)] = weakref.ref(gradient)
            else:
                self._nodes[node] = weakref.ref(_dense(gradient).graph)

    def come_back(
        self, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> tuple[list[bool], bool]:
        """Which of these gradients were given, or are made of such in the same graph.

        And whether one of the others may be, since what is made of an eager tensor does not show
        it: its variable's has been given and has not come back till now.
        """
        self._tensors, self._nodes = _alive(self._tensors), _alive(self._nodes)
        strangers: set[Node] = set()
        known = [
            id(g) in self._tensors or _descends(_dense(g), self._nodes, strangers)
            for g in gradients
        ]
        graphs = {graph for graph, _ in self._nodes}
        others = [
            node is None or node[0] not in graphs
            for g, v, is_known in zip(gradients, variables, known, strict=True)
            if g is not None and not is_known and id(v) in self._variables
            for node in [_node(g)]
        ]
        with_gradient = zip(gradients, variables, strict=True)
        own = frozenset(id(v) for g, v in with_gradient if g is not None)
        # Gradients of other variables show that what was given will not come back.
        self._variables = self._variables - own if own <= self._variables else frozenset()
        return known, any(others)


def _alive(known: dict[Any, weakref.ref[Any]]) -> dict[Any, weakref.ref[Any]]:
    return {key: one for key, one in known.items() if one() is not None}


def _dense(gradient: Any) -> Any:
    """Of IndexedSlices the values."""
    return gradient.values if hasattr(gradient, "indices") else gradient


def _node(gradient: Any) -> Node | None:
    """What makes a gradient in a graph of TensorFlow."""
    tensor = _dense(gradient)
    graph = getattr(tensor, "graph", None)  # no eager tensor has one
    return None if graph is None else (id(graph), tensor.op.name)


def _descends(tensor: Any, ancestors: Collection[Node], strangers: set[Node]) -> bool:
    """Whether one of `ancestors` is on the way to `tensor`. `strangers`: nodes that none is."""
    if not ancestors or _node(tensor) is None:
        return False
    seen: set[Node] = set()
    left = [tensor]
    while left:
        one = left.pop()
        node = (id(one.graph), one.op.name)
        if node in ancestors:
            return True
        if node not in seen and node not in strangers:
            seen.add(node)
            left += _sources(one)
    strangers |= seen
    return False


def _sources(tensor: Any) -> list[Any]:
    """What the node of a tensor reads; of a function's parameter, what stands for it outside."""
    inputs = list(tensor.op.inputs)
    if inputs or tensor.op.type != "Placeholder":
        return inputs
    captures = getattr(tensor.graph, "captures", ())
    return [outer for outer, inner in captures if inner is tensor and _node(outer) is not None]
