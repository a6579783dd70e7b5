"""The reduction of the gradients of a step, for optimizers and for `value_and_grad`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from horovod.common._arguments import check_compression, check_op, predivide
from horovod.common._gradients import grouped
from horovod.common._reductions import is_distributed
from horovod.common._variables import checked_groups
from horovod.common.process_sets import ProcessSet
from horovod.jax._operations import Tree, allreduce


class Reduction(NamedTuple):
    """How gradients are reduced. Made by `reduction`, which checks its arguments."""

    name: str
    op: int
    compression: Any
    predivide: float
    groups: Any
    process_set: ProcessSet

    def is_distributed(self) -> bool:
        """Whether this rank reduces with others. Raises: ValueError before `init`."""
        return is_distributed(self.process_set)

    def __call__(self, tree: Tree) -> Tree:
        """The reduced gradients. Leaves that are not numbers with a derivative stay as they are."""
        leaves, structure = jax.tree.flatten(tree)
        if not self.is_distributed():
            return tree
        places = [place for place, leaf in enumerate(leaves) if _is_reduced(leaf)]
        known = set(places)
        groups, rest = grouped(places, self.groups, lambda p: p if p in known else None)
        for number, group in enumerate([*groups, *([rest] if rest else [])]):
            results = self._reduced([leaves[place] for place in group], number)
            for place, result in zip(group, results, strict=True):
                leaves[place] = result
        return jax.tree.unflatten(structure, leaves)

    def _reduced(self, arrays: list[Any], number: int) -> list[Any]:
        return list(
            allreduce(
                arrays,
                name=f"{self.name}.{number}" if number else self.name,
                op=self.op,
                prescale_factor=1.0 / self.predivide,
                postscale_factor=self.predivide,
                compression=self.compression,
                process_set=self.process_set,
            )
        )


def _is_reduced(leaf: Any) -> bool:
    """False for the gradients of integers, which JAX calls float0."""
    return leaf is not None and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def reduction(
    doing: str,
    name: str,
    op: int,
    compression: Any,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: ProcessSet,
) -> Reduction:
    """`doing`: the public function, for messages. Raises: ValueError."""
    check_op(op)
    check_compression(doing, compression)
    factor = predivide(doing, gradient_predivide_factor, op)
    checked = checked_groups(
        0, groups, "position of a leaf", lambda one: isinstance(one, int) and one >= 0
    )
    return Reduction(name, int(op), compression, factor, checked, process_set)
