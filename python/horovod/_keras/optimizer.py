"""The optimizer that reduces gradients before it applies them, for every Keras and backend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from horovod._keras import changes
from horovod._keras.backend import is_keras_3
from horovod._keras.binding import binding_of
from horovod._keras.given import Given
from horovod._keras.options import Options
from horovod.common.basics import Average

_UNCLEAR = (
    "apply_gradients: reduced gradients of these variables were computed by this optimizer, and "
    "now others come. If these are made of them (clipped, scaled), say so by "
    "skip_gradients_aggregation=True, or compute and apply in one tf.function; if they are not, "
    "compute what is only looked at by a tape of its own"
)


class CallableList(list):  # type: ignore[type-arg]
    """Lets both `optimizer.variables` (Keras 3) and `optimizer.variables()` (Keras 2) work."""

    def __call__(self) -> list[Any]:
        return self


class Distributed:
    """Base that is put before the class of the wrapped optimizer."""

    _HAS_AGGREGATE_GRAD = True
    #: With Keras 2 and TensorFlow a LocalGradientAggregationHelperEager, else what is alike.
    _horovod: Any
    #: What `_horovod` is made of; of a class that `distributed_class` has made.
    _horovod_options: Options
    #: The reduced gradients that a caller has been given, and not applied yet.
    _horovod_given: Given
    #: Reducing what is equal everywhere leaves it as it is.
    _horovod_is_repeatable = False
    #: The wrapped optimizer is applying them, and must not reduce them again.
    _horovod_is_applying = False

    @property
    def variables(self) -> Any:
        """As of the wrapped class, which has a property or a method."""
        found = super().variables  # type: ignore[misc]
        return CallableList(found() if callable(found) else found)

    @classmethod
    def from_config(cls, config: Any, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped class; distributed alike, without local variables yet."""
        made = super().from_config(config, *args, **kwargs)  # type: ignore[misc]
        made._horovod_begin()
        return made

    def _horovod_begin(self) -> None:
        """From here on this optimizer is a distributed one."""
        options = self._horovod_options
        self._horovod = binding_of(options.keras).helper(options)
        self._horovod_given = Given()
        self._horovod_is_repeatable = options.op == Average and options.passes == 1

    def register_local_var(self, var: Any) -> None:
        """Excludes the gradient of `var` from the reduction from now on."""
        self._horovod.register_local_var(var)
        self._horovod_is_repeatable = False  # it is scaled

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """The gradients of a step, reduced over all ranks."""
        return list(self._horovod.compute_gradients(list(grads), list(vars)))

    @contextlib.contextmanager
    def _horovod_applying(self) -> Iterator[None]:
        """Meanwhile gradients are taken as they are."""
        before = self._horovod_is_applying
        self._horovod_is_applying = True
        try:
            yield
        finally:
            self._horovod_is_applying = before

    def _reduced(
        self, grads: Sequence[Any], variables: Sequence[Any], is_done: bool = False
    ) -> list[Any]:
        """All but those that have been reduced already, as the caller may say."""
        if self._horovod_is_applying:
            return list(grads)
        result = list(grads)
        known, is_unclear = self._horovod_given.come_back(grads, variables)
        left = [p for p, is_known in enumerate(known) if not is_known]
        if is_done or (any(known) and all(grads[p] is None for p in left)):
            return result
        if is_unclear and not self._horovod_is_repeatable:
            raise ValueError(_UNCLEAR)
        reduced = self._allreduce([grads[p] for p in left], [variables[p] for p in left])
        for place, gradient in zip(left, reduced, strict=True):
            result[place] = gradient
        return result

    def _reduced_to_give(self, grads_and_vars: Any) -> list[Any]:
        """Pairs, reduced for a caller, whose next apply_gradients takes them as they are."""
        pairs = list(grads_and_vars)
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        reduced = self._allreduce(grads, variables) if pairs else []
        self._horovod_given.add(reduced, variables)
        return list(zip(reduced, variables, strict=True))

    def _aggregate_gradients(self, grads_and_vars: Any) -> list[Any]:
        """Pairs, reduced; they are applied as they are then."""
        return self._reduced_to_give(grads_and_vars)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As of Keras 2's optimizers: pairs of reduced gradients and variables."""
        return self._reduced_to_give(super().compute_gradients(*args, **kwargs))  # type: ignore[misc]

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[Any]:
        """As of Keras 2's older optimizers: pairs of reduced gradients and variables."""
        parent = super()
        if hasattr(parent, "_compute_gradients"):
            pairs = parent._compute_gradients(loss, var_list, grad_loss, tape)
        else:
            pairs = parent.compute_gradients(loss, var_list, tape)  # type: ignore[attr-defined]
        return self._reduced_to_give(pairs)

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """As of Keras 2's older optimizers in v1 graphs: reduced gradients."""
        gradients = super().get_gradients(loss, params)  # type: ignore[misc]
        pairs = self._reduced_to_give(zip(gradients, params, strict=True))
        return [gradient for gradient, _ in pairs]


class Distributed2(Distributed):
    """For Keras 2, where everything comes by apply_gradients."""

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """As of Keras 2's optimizers: pairs, reduced unless they are already."""
        return super().aggregate_gradients(self._reduced_pairs(grads_and_vars))  # type: ignore[misc]

    def _aggregate_gradients(self, grads_and_vars: Any) -> list[Any]:
        """As of Keras 2's older optimizers: pairs, reduced unless they are already."""
        return self._reduced_pairs(grads_and_vars)

    def _reduced_pairs(self, grads_and_vars: Any) -> list[Any]:
        """For a LossScaleOptimizer, before it looks whether gradients are finite.

        All ranks see the same then. It does not apply gradients that are not, and says that the
        others are reduced, so nothing is remembered here.
        """
        pairs = list(grads_and_vars)
        if self._horovod_is_applying or not pairs:
            return pairs
        changes.check_passes(self._horovod.backward_passes_per_step, is_3=False)
        grads, variables = zip(*pairs, strict=True)
        return list(zip(self._reduced(grads, variables), variables, strict=True))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Reduces the gradients, unless that has been done, and applies them."""
        pairs = list(grads_and_vars)
        if not pairs:
            return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        grads = self._reduced(grads, variables, _says_done(kwargs))
        if not hasattr(super(), "aggregate_gradients"):
            kwargs.pop("skip_gradients_aggregation", None)  # which older optimizers do not know
        parent = super().apply_gradients  # type: ignore[misc]
        together = list(zip(grads, variables, strict=True))

        def apply() -> Any:
            with self._horovod_applying():
                return parent(together, *args, **kwargs)

        return self._horovod.apply_gradients(apply, self)


def _says_done(kwargs: dict[str, Any]) -> bool:
    """Whether apply_gradients is told, in the words of Keras 2, that reducing has been done."""
    wants = kwargs.get("experimental_aggregate_gradients", True)
    return bool(kwargs.get("skip_gradients_aggregation")) or not wants


class Distributed3(Distributed):
    """For Keras 3, where everything comes by apply; on JAX by stateless_apply."""

    def apply_gradients(self, grads_and_vars: Any, **kwargs: Any) -> Any:
        """As of Keras 3; as it is with `skip_gradients_aggregation=True` of Keras 2."""
        if not _says_done(kwargs):
            return super().apply_gradients(grads_and_vars)  # type: ignore[misc]
        pairs = list(grads_and_vars)
        self._horovod_given.come_back([g for g, _ in pairs], [v for _, v in pairs])
        with self._horovod_applying():
            return super().apply_gradients(pairs)  # type: ignore[misc]

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Reduces the gradients, unless that has been done, and applies them."""
        known = trainable_variables
        if known is None:
            known = getattr(self, "_trainable_variables", [])
        known = list(known)
        self._horovod.prepare(lambda: self._build_once(known))
        reduced = self._reduced(list(grads), known)
        parent = super().apply  # type: ignore[misc]
        return self._horovod.apply_gradients(lambda: parent(reduced, trainable_variables), self)

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        """The same, in compiled steps. From here most optimizers call apply, but not all do."""
        known = self._trainable_variables  # type: ignore[attr-defined]
        reduced = self._reduced(list(grads), list(known))
        with self._horovod_applying():
            return super().stateless_apply(  # type: ignore[misc]
                optimizer_variables, reduced, trainable_variables
            )

    def _build_once(self, variables: Sequence[Any]) -> None:
        if not self.built:  # type: ignore[attr-defined]
            self.build(variables)  # type: ignore[attr-defined]

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[Any]:
        """As of Keras 2's optimizers, on TensorFlow: pairs of reduced gradients and variables."""
        import tensorflow as tf

        if tape is None:
            tape = tf.GradientTape()
        if callable(loss):
            with tape:
                loss = loss()
        variables = list(var_list() if callable(var_list) else var_list)
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)
        return self._reduced_to_give(pairs)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[Any]:
        return self.compute_gradients(loss, var_list, tape)


def distributed_class(parent: type, options: Options) -> type:
    """A class of the same name that inherits from `parent`."""
    is_3 = hasattr(parent, "apply") and is_keras_3(options.keras)
    front = Distributed3 if is_3 else Distributed2
    known = {"__module__": parent.__module__, "_horovod_options": options}
    return type(parent.__name__, (front, parent), known)


def wrap(optimizer: Any, options: Options, name: str | None) -> Any:
    """An optimizer of the distributed class, made from the configuration of `optimizer`."""
    if isinstance(optimizer, Distributed):
        raise ValueError("this optimizer is already a DistributedOptimizer")
    config = optimizer.get_config()
    is_3 = is_keras_3(options.keras)
    if hasattr(optimizer, "inner_optimizer"):
        changes.check_passes(options.passes, is_3)
    if hasattr(optimizer, "inner_optimizer") and not is_3:
        # Keras 2 makes a LossScaleOptimizer of an optimizer, and of nothing else.
        config["inner_optimizer"] = wrap(optimizer.inner_optimizer, options, name)
        return type(optimizer).from_config(config)
    config["name"] = name or f"Distributed{type(optimizer).__name__}"
    rate = _rate_of(optimizer)
    if callable(rate) and not hasattr(rate, "assign"):
        config["learning_rate"] = rate  # itself: a function, or a schedule that Keras cannot find
    made: Any = distributed_class(type(optimizer), options)
    changes.make(options.keras)
    return made.from_config(config)


def _rate_of(optimizer: Any) -> Any:
    """What an optimizer was given as learning rate, or the variable that it has made of it."""
    of_legacy: dict[str, Any] = getattr(optimizer, "_hyper", {})
    return of_legacy.get("learning_rate", getattr(optimizer, "_learning_rate", None))


def convert(optimizer: Any, options: Options) -> Any:
    """Makes `optimizer` itself distributed, with all that it holds; for one that was loaded."""
    if not isinstance(optimizer, Distributed):
        optimizer.__class__ = distributed_class(type(optimizer), options)
        optimizer._horovod_begin()
        changes.make(options.keras)
    return optimizer
