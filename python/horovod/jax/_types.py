"""The arrays of JAX, as shared code sees them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod.common._backend import Backend, types_of


def _type_of(array: Any) -> str:
    return str(array.dtype)


def _advice(array: Any) -> str:
    name = _type_of(array)
    if name.startswith("complex"):
        return "; send its real and its imaginary part"
    return f"; convert it to {name[1:]}" if name in ("uint32", "uint64") else ""


#: NumPy's bool is not an attribute of every version of jax.numpy.
BACKEND = Backend(types=(*types_of(jnp),), type_of=_type_of, advice=_advice)
