"""Training that survives a change of ranks.

state = hvd.elastic.JaxState(params=params, opt_state=opt_state, epoch=0)

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 90):
        for batch in batches:
            state.params, state.opt_state = step(state.params, state.opt_state, batch)
        state.commit()

train(state)

Arrays do not change, so training assigns new pytrees to the state. An assignment saves nothing:
`commit` does.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np

from horovod.common._elastic_handlers import SAMPLERS, HandledState, StateHandler
from horovod.common._elastic_loop import run
from horovod.common._objects import broadcast_object
from horovod.common.elastic import check_same
from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.front import rank
from horovod.jax import _internals
from horovod.jax._keys import as_before, as_integers
from horovod.jax.functions import broadcast_parameters

__all__ = ["ElasticBatchSampler", "ElasticSampler", "ElasticStream", "JaxState", "run"]

#: Leaves that the state folder and new ranks get, beside the arrays of JAX. Others, such as
#: functions, stay those of each process.
_PLAIN = (np.ndarray, bool, int, float, complex, str, bytes)


class TreeHandler(StateHandler):
    """A pytree with arrays: saved as copies, since a step may donate the arrays it is given."""

    def __init__(self, value: Any) -> None:
        #: Of each leaf in its place: the leaf that was copied, and its copy.
        self._copies: list[tuple[Any, Any]] = []
        super().__init__(value)

    def set_value(self, value: Any) -> None:
        """Without saving, unlike other handlers: training does this at each step."""
        self.value = value

    def save(self) -> None:
        leaves, structure = jax.tree.flatten(self.value)
        former = self._copies
        if len(former) != len(leaves):
            former = [(_nothing, None)] * len(leaves)
        copies = [
            (_reference(leaf), copy if known() is leaf else _copied(leaf))
            for leaf, (known, copy) in zip(leaves, former, strict=True)
        ]
        jax.block_until_ready([copy for _, copy in copies])
        self._copies, self._structure = copies, structure

    def restore(self) -> None:
        """Gives copies of the copies away, which are needed again."""
        self.value = self._tree([_copied(copy) for _, copy in self._copies])

    def receive(self) -> None:
        """Other arrays than those of JAX go as objects, since JAX would change their type."""
        leaves, structure = jax.tree.flatten(self.value)
        arrays = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        others = [place for place, leaf in enumerate(leaves) if isinstance(leaf, _PLAIN)]
        received = broadcast_parameters([leaves[place] for place in arrays], 0, "elastic_state")
        if others:
            told = [leaves[place] for place in others]
            received += broadcast_object(told, name="elastic_leaves")
        for place, leaf in zip([*arrays, *others], received, strict=True):
            leaves[place] = leaf
        self.value = jax.tree.unflatten(structure, leaves)

    def _tree(self, leaves: list[Any]) -> Any:
        return jax.tree.unflatten(self._structure, leaves)

    def stored(self) -> list[Any]:
        """The arrays of NumPy, which on a CPU share the memory of the copies, in their places."""
        return [_on_host(copy) for _, copy in self._copies]

    def load_stored(self, stored: list[Any]) -> None:
        own = [copy for _, copy in self._copies]
        shapes = [[np.shape(_on_host(leaf)) for leaf in leaves] for leaves in (own, stored)]
        check_same("shapes of the arrays", *shapes)
        leaves = [_placed(new, leaf) for new, leaf in zip(stored, own, strict=True)]
        self._copies = [(_nothing, leaf) for leaf in leaves]


def _nothing() -> None:
    """Like a weak reference to an object that is gone."""


def _reference(leaf: Any) -> Any:
    """A weak reference, for arrays of JAX only: others can change."""
    return weakref.ref(leaf) if isinstance(leaf, jax.Array) else _nothing


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.device_put(leaf, leaf.sharding, may_alias=False)
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _on_host(leaf: Any) -> Any:
    """What is written to the state folder. Leaves that are neither arrays nor plain are not."""
    if isinstance(leaf, jax.Array):
        return np.asarray(as_integers(leaf))
    return leaf if isinstance(leaf, _PLAIN) else None


def _placed(stored: Any, like: Any) -> Any:
    """A leaf of the state folder, as `like` is."""
    if isinstance(like, jax.Array):
        return as_before(jax.device_put(stored, as_integers(like).sharding), like)
    return stored if isinstance(like, _PLAIN) else like


def _has_arrays(value: Any) -> bool:
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))


class JaxState(HandledState):
    """The state of training: `params`, `opt_state` and the attributes given by `kwargs`.

    Pytrees with arrays may be assigned anew at any time, and are saved by `commit`. An array that
    is the same object as at the last commit is not copied again. ElasticSamplers and ElasticStreams
    are saved by their handlers. All other values are deep-copied and pickled.

    A reset forgets all compiled programs, since the number of ranks is a constant in them.
    """

    def __init__(self, params: Any = None, opt_state: Any = None, **kwargs: Any) -> None:
        values = {"params": params, "opt_state": opt_state, **kwargs}
        super().__init__(broadcast_object, rank, SAMPLERS, **values)

    def _handler_of(self, value: Any, registry: Any) -> StateHandler | None:
        found = super()._handler_of(value, registry)
        return TreeHandler(value) if found is None and _has_arrays(value) else found

    def _trees(self) -> dict[str, TreeHandler]:
        handlers = self._handlers.items()
        return {name: handler for name, handler in handlers if isinstance(handler, TreeHandler)}

    def _take_over(self) -> None:
        """Handlers of mutable values change them in place. These make new ones."""
        for name, handler in self._trees().items():
            setattr(self, name, handler.value)

    def settle(self) -> None:
        _internals.wait_for_operations()
        jax.block_until_ready([handler.value for handler in self._trees().values()])

    def restore(self) -> None:
        super().restore()
        self._take_over()

    def receive(self) -> None:
        super().receive()
        self._take_over()

    def reset(self) -> None:
        jax.clear_caches()
        super().reset()
