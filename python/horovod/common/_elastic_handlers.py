"""Elastic states whose attributes are saved each in its own way, by handlers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common._objects import broadcast_object
from horovod.common.elastic import ObjectState, Stored, check_same
from horovod.common.elastic_batches import ElasticStream
from horovod.common.elastic_sampler import ElasticSampler

#: Of an ElasticSampler, among what decides its order.
_COUNT = "the number of samples"


class StateHandler:
    """Saves and restores one object of a state. Subclass it for your own types; see the
    registry."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        """Saves a copy."""
        raise NotImplementedError(f"{type(self).__name__} has no save()")

    def restore(self) -> None:
        """Restores the last saved copy."""
        raise NotImplementedError(f"{type(self).__name__} has no restore()")

    def sync(self) -> None:
        """Copies the value of rank 0 to all ranks and saves it. Collective."""
        raise NotImplementedError(f"{type(self).__name__} has no sync()")

    def receive(self) -> None:
        """Copies the value of rank 0 to all ranks. Collective.

        `sync` of the state calls this for all its values and then saves them, so that a loss in the
        middle leaves the last save complete. By default it is `sync` of this handler.
        """
        self.sync()

    def set_value(self, value: Any) -> None:
        """Replaces the object and saves it."""
        self.value = value
        self.save()

    def reset(self) -> None:
        """Called when the number of ranks may have changed. Does nothing by default."""

    def stored(self) -> Any:
        """Returns the last saved copy, which can be pickled, for the state folder."""
        raise NotImplementedError(
            f"{type(self).__name__} has no stored() and no load_stored(), so the state cannot be "
            "written to the folder of HOROVOD_STATE_DIR: add them, or unset the variable"
        )

    def load_stored(self, stored: Any) -> None:
        """Takes a copy from the state folder as the last saved one. It is restored next."""
        raise NotImplementedError(f"{type(self).__name__} has no load_stored()")


class StateDictHandler(StateHandler):
    """For objects with `state_dict` and `load_state_dict`. Deep-copies both ways, since training
    changes the values in place. Ranks receive the whole as one object.
    """

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def stored(self) -> Any:
        return self._saved

    def load_stored(self, stored: Any) -> None:
        self._saved = stored

    def sync(self) -> None:
        self.receive()
        self.save()

    def receive(self) -> None:
        name = f"{type(self.value).__name__}_state"
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name=name))


class SamplerStateHandler(StateDictHandler):
    """An ElasticSampler or ElasticStream: how far the epoch is. In the state folder, also what
    decides the order of its samples: a number of used samples says nothing about another order."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(sampler)

    def save(self) -> None:
        super().save()
        self._order = self.value.what_decides_order()

    def stored(self) -> Any:
        return {"progress": super().stored(), "order": self._order}

    def load_stored(self, stored: Any) -> None:
        progress, there = dict(stored["progress"]), stored["order"]
        here = self.value.what_decides_order()
        if here != there and progress["processed_num"] > 0:
            if progress["processed_num"] < there.get(_COUNT, math.inf):
                raise ValueError(_changed_order(progress["epoch"], here, there))
            progress["processed_num"] = here.get(_COUNT, 0)  # the epoch is done
        super().load_stored(progress)
        self._order = here

    def reset(self) -> None:
        self.value.reset()


def _changed_order(epoch: int, here: dict[str, Any], there: dict[str, Any]) -> str:
    differing = [
        f"{name} is {there.get(name)} there and {here.get(name)} here"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    return f"epoch {epoch} of the sampler has begun, and {', '.join(differing)}"


#: Pairs (type, handler class). The first match is used.
Registry = list[tuple[type, type[StateHandler]]]

SAMPLERS: Registry = [
    (ElasticSampler, SamplerStateHandler),
    (ElasticStream, SamplerStateHandler),
]


class HandledState(ObjectState):
    """An ObjectState whose values of types in `registry` are saved by handlers.

    Assigning a new object to an attribute with a handler saves it. A save that was interrupted, as
    by KeyboardInterrupt, cannot be restored: its parts would differ in age.
    """

    _handlers: dict[str, StateHandler]
    _is_complete = True  # the last save

    def __init__(
        self,
        bcast_object: Callable[[Any], Any],
        get_rank: Callable[[], int],
        registry: Sequence[tuple[type, type[StateHandler]]],
        /,
        **kwargs: Any,
    ) -> None:
        found = {name: self._handler_of(value, registry) for name, value in kwargs.items()}
        self._handlers = {}
        for name, handler in found.items():
            if handler is not None:
                object.__setattr__(self, name, handler.value)
                self._handlers[name] = handler
        plain = {name: value for name, value in kwargs.items() if name not in self._handlers}
        super().__init__(bcast_object, get_rank, **plain)

    def _handler_of(
        self, value: Any, registry: Sequence[tuple[type, type[StateHandler]]]
    ) -> StateHandler | None:
        """Hook for subclasses whose values are not known by their type."""
        for kind, handler in registry:
            if isinstance(value, kind):
                return handler(value)
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)

    def save(self) -> None:
        self._is_complete = False
        for handler in self._handlers.values():
            handler.save()
        super().save()
        self._is_complete = True

    def restore(self) -> None:
        if not self._is_complete:
            raise RuntimeError(
                "the state cannot be restored, because an exception has interrupted its last save; "
                "let that exception end the process"
            )
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def stored(self) -> Stored:
        shared, own = super().stored()
        handled = {name: handler.stored() for name, handler in self._handlers.items()}
        return Stored({**shared, "handled": handled}, own)

    def load_stored(self, stored: Stored) -> None:
        handled = stored.shared["handled"]
        check_same("objects of the state", self._handlers, handled)
        for name, handler in self._handlers.items():
            handler.load_stored(handled[name])
        self._is_complete = True
        super().load_stored(stored)

    def receive(self) -> None:
        for handler in self._handlers.values():
            handler.receive()
        super().receive()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()
