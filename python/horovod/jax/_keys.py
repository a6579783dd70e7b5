"""Keys of random numbers: arrays of a type of their own, which travel and are kept as integers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def is_key(leaf: Any) -> bool:
    """Whether a leaf of a pytree is an array of keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_integers(leaf: Any) -> Any:
    """The data of keys; other arrays as they are."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def as_before(array: Any, like: Any) -> Any:
    """What `as_integers` was called with: `array`, or its keys if `like` is an array of keys."""
    if not is_key(like):
        return array
    return jax.random.wrap_key_data(array, impl=jax.random.key_impl(like))
