"""Broadcast of values of every dtype, eagerly and in graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._types import MOVED, for_each_type
from horovod.tensorflow.mpi_ops import _grouped_broadcast
from horovod.tensorflow.util import names_of


def check_can_move(variable: Any, value: Any) -> None:
    """Raises ValueError for the value of a variable whose type has no bytes: it names both."""
    if value.dtype in MOVED or value.dtype == tf.string or _has_bytes(value.dtype):
        return
    (name,) = names_of([variable])
    raise ValueError(
        f"broadcast of variables: {name} is of type {value.dtype.name}, which cannot be sent: "
        "leave it out, or keep what it holds in a variable of another type"
    )


def _has_bytes(dtype: Any) -> bool:
    try:
        tf.bitcast(tf.zeros([], dtype), tf.uint8)
    except (TypeError, ValueError, tf.errors.OpError):
        return False
    return True


def broadcast_values(
    values: Sequence[Any],
    shapes: Sequence[Any],
    root_rank: int,
    name: str,
    process_set: ProcessSet,
) -> list[Any]:
    """Returns the root's values, with one operation per dtype. Unsupported dtypes are sent as
    bytes.

    Shapes and types: equal on all ranks; strings may have any length. `shapes`: the static shapes
    of the variables, tf.TensorShape. For strings only the static shapes must be equal: an open
    dimension gets the root's size.
    """
    received = list(values)
    strings = [place for place, value in enumerate(values) if value.dtype == tf.string]
    others = [place for place in range(len(values)) if place not in set(strings)]
    results = for_each_type(
        [_as_known_type(values[place]) for place in others],
        lambda group, dtype: _grouped_broadcast(
            group, root_rank, f"{name}_{dtype.name}", process_set
        ),
    )
    for place, result in zip(others, results, strict=True):
        known = values[place].dtype in MOVED
        received[place] = result if known else tf.bitcast(result, values[place].dtype)
    if strings:
        group = [values[place] for place in strings]
        fixed = [shapes[place] for place in strings]
        results = _broadcast_strings(group, fixed, root_rank, f"{name}_string", process_set)
        for place, result in zip(strings, results, strict=True):
            received[place] = result
    return received


def _as_known_type(value: Any) -> Any:
    return value if value.dtype in MOVED else tf.bitcast(value, tf.uint8)


def _broadcast_strings(
    values: Sequence[Any],
    shapes: Sequence[Any],
    root_rank: int,
    name: str,
    process_set: ProcessSet,
) -> list[Any]:
    """Serialized: how many bytes each of the root's has, then all of these one after the other.

    Zeros of each shape go with the numbers of bytes, so that ranks whose shapes differ all get the
    runtime's error.
    """
    blobs = [tf.io.serialize_tensor(value) for value in values]
    own = tf.io.decode_raw(tf.strings.join(blobs), tf.uint8)
    lengths = tf.stack([tf.strings.length(blob) for blob in blobs])
    zeros = [tf.zeros(shape, tf.int32) for shape in shapes if shape.is_fully_defined()]
    lengths, *_ = _grouped_broadcast([lengths, *zeros], root_rank, f"{name}_shapes", process_set)
    total = tf.reduce_sum(lengths)
    own = own[:total]
    sent = tf.pad(own, [[0, total - tf.size(own)]])  # on the root both do nothing
    (received,) = _grouped_broadcast([sent], root_rank, name, process_set)
    parts = tf.split(received, lengths, num=len(values))
    return [
        tf.ensure_shape(tf.io.parse_tensor(_text(part), tf.string), shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _text(characters: Any) -> Any:
    """The inverse of tf.io.decode_raw: one string of a vector of bytes.

    TensorFlow has no operation for it. But a serialized vector ends with its bytes.
    """
    count = tf.size(characters)
    return tf.strings.substr(tf.io.serialize_tensor(characters), -count, count)
