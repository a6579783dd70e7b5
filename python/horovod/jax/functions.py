"""Values that all ranks share: parameters at the start, metrics at the end of an epoch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._keys import as_before, as_integers
from horovod.jax._operations import Tree, allreduce, broadcast


def broadcast_parameters(
    params: Tree,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Returns the arrays of `root_rank` on all ranks. Call it once, before training.

    `params`: any pytree: parameters, the state of an optimizer, of flax.nnx or of equinox. Leaves
    that are no arrays (functions, texts, numbers of Python) stay as they are on each rank.
    Structure, shapes and types: equal on all ranks.
    """
    leaves, structure = jax.tree.flatten(params)
    places = [place for place, leaf in enumerate(leaves) if _is_array(leaf)]
    sent = [as_integers(leaves[place]) for place in places]
    received = broadcast(sent, root_rank, name or "broadcast_parameters", process_set=process_set)
    for place, array in zip(places, received, strict=True):
        leaves[place] = as_before(array, leaves[place])
    return jax.tree.unflatten(structure, leaves)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def metric_average(
    value: Tree, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tree:
    """Returns the averages over all ranks: of a number or, as one operation, of a pytree of them.

    Integers become floating-point numbers. `name`: as in `allreduce`.
    """
    numbers = jax.tree.map(lambda one: jnp.asarray(one) * 1.0, value)
    return allreduce(numbers, name or "metric_average", Average, process_set=process_set)
