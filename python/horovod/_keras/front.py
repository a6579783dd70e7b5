"""The exported functions of both packages, for a given module of Keras."""

from __future__ import annotations

import importlib
from typing import Any

from horovod._keras import values
from horovod._keras.backend import backend_of, is_keras_3, is_v1_graph, keras_of, session
from horovod._keras.binding import binding_of
from horovod._keras.changes import keep_model_out_of_xla
from horovod._keras.optimizer import convert, wrap
from horovod._keras.options import Options
from horovod.common._variables import checked_groups as checked_groups
from horovod.common._variables import weights_of
from horovod.common.process_sets import ProcessSet, global_process_set

#: What the Compressors that there are make of floats. They know tensors only, and these are arrays.
_SENT_AS = {"NoneCompressor": None, "FP16Compressor": "float16", "BF16Compressor": "bfloat16"}


def distributed_optimizer(
    usual: Any, optimizer: Any, name: str | None, local_layers: Any, **options: Any
) -> Any:
    """`optimizer`, wrapped, with the weights of `local_layers` registered as local."""
    keras = keras_of(optimizer, usual)
    distributed = wrap(optimizer, Options(keras, **options), name)
    for variable in weights_of(local_layers):
        distributed.register_local_var(variable)
    return distributed


def _array(keras: Any, value: Any) -> Any:
    """Its value; of a v1 graph's node, what the session computes."""
    if is_v1_graph(keras) and hasattr(value, "graph"):
        value = session().run(value)
    return values.as_array(value)


def _as_given(keras: Any, value: Any, array: Any) -> Any:
    """A tensor for a tensor or variable of what Keras runs on, else what NumPy has."""
    if is_v1_graph(keras):
        return array[()]
    if backend_of(keras) == "tensorflow":
        import tensorflow as tf

        is_tensor = tf.is_tensor(value) or hasattr(value, "assign")
        return tf.convert_to_tensor(array) if is_tensor else array[()]
    if not keras.ops.is_tensor(value) and not hasattr(value, "assign"):
        return array[()]
    made = keras.ops.convert_to_tensor(array)
    return made.to(value.device) if hasattr(value, "detach") else made


def _operations(keras: Any, value: Any) -> Any:
    """The operations on a tensor of a tf.function, which has no value yet; else None."""
    return None if is_v1_graph(keras) else binding_of(keras).operations_on(value)


def _compressed(array: Any, compression: Any) -> Any:
    name = getattr(compression, "__name__", type(compression).__name__)
    if name not in _SENT_AS:
        raise ValueError(
            f"allreduce of a value: compression is none, fp16 or bf16, got {name}; a Compressor of "
            "your own is for DistributedOptimizer"
        )
    wanted = _SENT_AS[name]
    if wanted is None or array.dtype.kind != "f":
        return array
    importlib.import_module("ml_dtypes")  # which every Keras needs, makes bfloat16 known
    return array.astype(wanted)


def allreduce(
    keras: Any,
    value: Any,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    compression: Any,
) -> Any:
    """A value, reduced."""
    nodes = _operations(keras, value)
    if nodes is not None:
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        return nodes.allreduce(value, name=name, op=op, compression=compression, **factors)
    array = _array(keras, value)
    sent = _compressed(array, compression)
    values.allreduce([sent], name or "keras.value", op, prescale_factor, postscale_factor)
    return _as_given(keras, value, sent.astype(array.dtype))


def allgather(keras: Any, value: Any, name: str | None) -> Any:
    """The values of all ranks, one after the other."""
    nodes = _operations(keras, value)
    if nodes is not None:
        return nodes.allgather(value, name)
    gathered = values.allgather(_array(keras, value), name or "keras.value")
    return _as_given(keras, value, gathered)


def broadcast(keras: Any, value: Any, root_rank: int, name: str | None) -> Any:
    """The root's value."""
    nodes = _operations(keras, value)
    if nodes is not None:
        return nodes.broadcast(value, root_rank, name)
    array = _array(keras, value)
    values.broadcast([array], root_rank, name or "keras.value")
    return _as_given(keras, value, array)


def reducescatter(keras: Any, value: Any, name: str | None, op: int) -> Any:
    """This rank's rows of the reduced value."""
    nodes = _operations(keras, value)
    if nodes is not None:
        return nodes.reducescatter(value, name=name, op=op)
    scattered = values.reducescatter(_array(keras, value), name or "keras.value", op)
    return _as_given(keras, value, scattered)


def broadcast_variables(
    keras: Any,
    variables: Any,
    root_rank: int,
    name: str = "keras.variables",
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites variables by those of the root; needs no graph, whatever Keras runs on."""
    variables = list(variables)
    if not variables:
        return
    if is_v1_graph(keras):
        session().run(binding_of(keras).broadcast_node(variables, root_rank, process_set))
        return
    arrays = [values.as_array(numpy_of(keras, variable)) for variable in variables]
    values.broadcast(arrays, root_rank, name, process_set)
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def numpy_of(keras: Any, variable: Any) -> Any:
    """The value of a variable."""
    if backend_of(keras) == "tensorflow" and not is_keras_3(keras):
        return variable.numpy()
    return keras.ops.convert_to_numpy(getattr(variable, "value", variable))


def broadcast_global_variables(keras: Any, root_rank: int) -> Any:
    """Broadcasts all global variables of a v1 graph, at once."""
    # Eagerly a RuntimeError. Keras 3 has no session.
    node = binding_of(keras).broadcast_global_node(root_rank)
    return session().run(node)


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Any,
    custom_objects: Any,
    compression: Any,
) -> Any:
    """A saved model whose optimizer, with its state, is distributed."""
    known = {one.__name__: one for one in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        convert(inner, Options(keras, compression=compression))
        keep_model_out_of_xla(keras, model)
    return model
