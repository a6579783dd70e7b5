"""A small model for every Keras, its data, and what all ranks must agree on."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from slim import lasting
from tf_ranks import on_jobs

ROWS = 4  #: of each rank in each step
STEPS = 3


def _keras_2() -> tuple[str, dict[str, str]]:
    """A package of its own, but beside a TensorFlow whose Keras still is Keras 2."""
    alone = importlib.util.find_spec("keras") and not importlib.util.find_spec("tf_keras")
    if alone and importlib.metadata.version("keras").startswith("2."):
        return "keras", {}
    return "tf_keras", {"TF_USE_LEGACY_KERAS": "1"}


#: Each Keras: the module that must be there, and the environment in which it is the one.
KERASES: dict[str, tuple[str, dict[str, str]]] = {
    "tensorflow": ("tensorflow", {}),
    "keras-2": _keras_2(),
    "torch": ("torch", {"KERAS_BACKEND": "torch"}),
    "jax": ("jax", {"KERAS_BACKEND": "jax"}),
}


def on_every_keras(
    *sizes: Any, only: Sequence[str] = tuple(KERASES)
) -> Callable[[Callable[[Any, Any], None]], Callable[..., None]]:
    """As `on_ranks`, once with each Keras that is installed.

    What is decorated is called with each of our packages and its module of Keras on two ranks, and
    with one of the packages on one rank and on three (decision 41). A test that does not run on two
    ranks has both everywhere.
    """
    decorate = on_jobs(sizes, kerases(only))

    def decorate_two(body: Callable[[Any, Any], None]) -> Callable[..., None]:
        @functools.wraps(body)
        def with_each() -> None:
            for hvd, keras in some_bindings(sizes):
                body(hvd, keras)

        return decorate(with_each)

    return decorate_two


def kerases(only: Sequence[str] = tuple(KERASES)) -> list[Any]:
    """Params of pytest: the environment of each, once where two names mean the same Keras."""
    found: dict[tuple[tuple[str, str], ...], Any] = {}
    for name in only:
        needed, env = KERASES[name]
        is_missing = importlib.util.find_spec(needed) is None
        skip = pytest.mark.skipif(is_missing, reason=f"no {needed}")
        found.setdefault(tuple(env.items()), pytest.param(tuple(env.items()), id=name, marks=skip))
    return list(found.values())


@functools.cache
def bindings() -> list[tuple[Any, Any]]:
    """The packages that there are here, each with its module of Keras."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with lasting():
        keras = importlib.import_module("horovod.keras._module").keras
        found = [(importlib.import_module("horovod.keras"), keras)]
        if backend(keras) == "tensorflow":
            tf = importlib.import_module("tensorflow")
            found.append((importlib.import_module("horovod.tensorflow.keras"), tf.keras))
    return found


def some_bindings(sizes: Sequence[int]) -> list[tuple[Any, Any]]:
    """Those with which a test that runs on `sizes` ranks is called in this job."""
    found = bindings()
    size = found[0][0].size()
    return found if size == 2 or 2 not in sizes else [found[0] if size == 1 else found[-1]]


def backend(keras: Any) -> str:
    return str(importlib.import_module("horovod._keras.backend").backend_of(keras))


def is_keras_3(keras: Any) -> bool:
    return bool(importlib.import_module("horovod._keras.backend").is_keras_3(keras))


def kinds_of_sgd(keras: Any) -> list[Any]:
    """Keras 2 has two, which know different methods of ours."""
    old = None if is_keras_3(keras) else getattr(keras.optimizers, "legacy", None)
    return [keras.optimizers.SGD, *([old.SGD] if old else [])]


def objects(value: Any) -> list[Any]:
    """What every rank gave."""
    return list(importlib.import_module("horovod.common._objects").allgather_object(value))


def rows(step: int, ranks: Any) -> Any:
    """The rows of these ranks."""
    parts = [np.random.default_rng((step, rank)).random((ROWS, 3)) for rank in ranks]
    x = np.concatenate(parts).astype(np.float32)
    return x, (x @ [[1.0], [-2.0], [0.5]] + 0.25).astype(np.float32)


def model_of(keras: Any, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    )


def train(
    keras: Any, optimizer: Any, ranks: Any, steps: int = STEPS, *, eagerly: bool = False
) -> Any:
    model = model_of(keras)
    model.compile(optimizer=optimizer, loss="mse", run_eagerly=eagerly)
    for step in range(steps):
        model.train_on_batch(*rows(step, ranks))
    return [np.asarray(weight) for weight in model.get_weights()]


def train_alone(keras: Any, optimizer: Any, ranks: Any, steps: int = STEPS) -> Any:
    """The same without other ranks, as a reference. TensorFlow compiles nothing for it, which takes
    more time than these few steps."""
    return train(keras, optimizer, ranks, steps, eagerly=backend(keras) == "tensorflow")


_found: dict[str, Any] = {}


def of_one_process(what: str, compute: Callable[[], Any]) -> Any:
    """What is computed without other ranks, and alike with each of our packages: by rank 0, once
    for all. `what` says which it is."""
    if what not in _found:
        share = importlib.import_module("horovod.common._objects").broadcast_object
        rank = importlib.import_module("horovod.keras").rank()
        _found[what] = share(compute() if rank == 0 else None, 0)
    return _found[what]


def same_everywhere(weights: Any) -> None:
    every = objects([np.asarray(weight).tolist() for weight in weights])
    assert all(one == every[0] for one in every)


def close(found: Any, wanted: Any, relative: float = 1e-4, absolute: float = 1e-5) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, relative, absolute)
