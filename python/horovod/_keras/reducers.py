"""Reduction of the gradients of a step if Keras does not run on TensorFlow.

Called like the Reducer of TensorFlow: `(gradients, variables) -> gradients`, None stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras.options import LABEL, Options
from horovod.common._gradients import How, grouped, reduced_but_local
from horovod.common._reductions import name_of_places


class Reducer:
    """Divides gradients into groups. Subclasses reduce a group."""

    def __init__(self, how: How, groups: Any) -> None:
        self.how = how
        self._groups = groups

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        reduced = list(gradients)
        if not self.how.is_distributed():
            return reduced
        places = [p for p, gradient in enumerate(reduced) if gradient is not None]
        where = {id(variables[place]): place for place in places}
        groups, rest = grouped(places, self._groups, lambda v: where.get(id(v)))
        for group in [*groups, *([rest] if rest else [])]:
            name = f"{LABEL}/grads_{name_of_places(group)}"
            results = self.reduce([reduced[p] for p in group], name)
            for place, result in zip(group, results, strict=True):
                reduced[place] = result
        return reduced

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        """Reduces one group: by the subclass of a framework."""
        raise NotImplementedError

    def scaled(self, gradient: Any) -> Any:
        """A gradient that stays here, as large as if it had been averaged with zeros.

        As on a rank that does not reduce with others.
        """
        if gradient is None or not self.how.is_distributed():
            return gradient
        return gradient / self.how.process_set.size()


class Helper:
    """What does the reducing where steps are not made of several passes."""

    backward_passes_per_step = 1

    def __init__(self, reducer: Reducer, scale_local_gradients: bool) -> None:
        self._reducer = reducer
        self._scale = scale_local_gradients
        self._local: set[int] = set()

    def register_local_var(self, var: Any) -> None:
        """Excludes the gradient of `var` from the reduction from now on."""
        self._local.add(id(var))

    def prepare(self, build: Callable[[], None]) -> None:
        """Nothing has to be there before."""

    def compute_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduced, but for local variables."""
        if not self._local:
            return self._reducer(grads, variables)
        scale = self._reducer.scaled if self._scale else lambda gradient: gradient
        return reduced_but_local(
            grads, variables, lambda v: id(v) in self._local, self._reducer, scale
        )

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any) -> Any:
        """Every pass is a step."""
        return apply_grads_closure()


def helper_of(options: Options, reducer: Callable[[How, Any], Reducer], compression: Any) -> Helper:
    """The helper of an optimizer. `reducer`: reduces a group in a framework's way.

    `compression`: the class Compression of that framework.
    Raises: ValueError for steps of several passes, which Keras counts itself here.
    """
    if options.passes != 1:
        raise ValueError(
            "backward_passes_per_step is for Keras on TensorFlow; elsewhere give the wrapped "
            "optimizer gradient_accumulation_steps"
        )
    how = options.how(_named_alike(compression, options.compression))
    return Helper(reducer(how, options.groups), options.scale_local)


def _named_alike(known: Any, compression: Any) -> Any:
    """Returns the Compressor of the same name in `known`, a backend's Compression.

    A Compressor of the user's is taken as it is; without one nothing is compressed.
    """
    of_backend = {c.__name__: c for c in (known.none, known.fp16, known.bf16)}
    name = getattr(compression, "__name__", "")
    return of_backend.get(name, compression) or known.none
