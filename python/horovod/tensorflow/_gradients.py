"""The gradients of the ops, for tapes, `tf.gradients` and optimizers.

Values that depend on the number of ranks are read when the gradient runs, so a graph stays valid
after a change of ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from horovod.common.basics import Average, Sum
from horovod.tensorflow._library import ops
from horovod.tensorflow._names import in_graph
from horovod.tensorflow._operands import name_in, tensor_name

_REDUCTIONS = frozenset(
    f"Horovod{name}"
    for name in ("Allreduce", "GroupedAllreduce", "Reducescatter", "GroupedReducescatter")
)
_WITH_ONE_MORE = frozenset(("HorovodBroadcast", "HorovodGroupedBroadcast", "HorovodAlltoall"))


class _Call:
    """An op and its inputs: the tensors, of which there are `tensors`, and the arguments.

    The inputs of an op that are lists are one after another in `op.inputs`.
    """

    def __init__(self, op: Any, tensors: int) -> None:
        self.op = op
        inputs = iter(op.inputs)
        self.tensors = list(itertools.islice(inputs, tensors))
        #: What only some ops have: the splits of alltoall, the root of broadcast.
        self.own = next(inputs) if op.type in _WITH_ONE_MORE else None
        self.factors = self._listed(inputs, "num_factors") if op.type in _REDUCTIONS else []
        self.process_set = self._listed(inputs, "num_process_sets")
        self.tensor_name = self._listed(inputs, "num_names")

    def _listed(self, inputs: Iterator[Any], count: str) -> list[Any]:
        return list(itertools.islice(inputs, self.op.get_attr(count)))

    def without_gradient(self, gradients: Iterable[Any]) -> list[Any]:
        """The gradients of the tensors; arguments have none."""
        return [*gradients, *[None] * (len(self.op.inputs) - len(self.tensors))]

    def where(self) -> dict[str, Any]:
        """Of a collective.

        A tape opens the scopes of the forward pass again, so where those do not count for an
        operation, they must not count for its gradient.
        """
        ignored = self.op.get_attr("ignore_name_scope")
        return {"process_set": self.process_set, "ignore_name_scope": ignored}

    def name(self, what: str = "grad") -> dict[str, Any]:
        """The gradient's name follows the operation's; in a graph the scope says it already."""
        own = getattr(self.op, "name", self.op.type)  # what a tape keeps of an op has no name
        base = name_in(self.tensor_name[0]) if self.tensor_name else own.rpartition("/")[2]
        name = f"{base}_{what}"
        if tf.executing_eagerly():
            return {"tensor_name": tensor_name(name), "blocking": True}
        return {**in_graph(self.op.type), "name": name}

    def same(self) -> dict[str, Any]:
        """Reduced in the same way."""
        how = {"reduce_op": self.op.get_attr("reduce_op"), "factors": self.factors}
        return {**how, **self.where(), **self.name()}

    def averaged(self) -> dict[str, Any]:
        return {"reduce_op": Average, "factors": [], **self.where(), **self.name()}

    def factor(self, dtype: Any) -> Any:
        """What a sum or an average is multiplied by."""
        is_sum = self.op.get_attr("reduce_op") == Sum
        size = tf.cast(ops.horovod_size(process_set=self.process_set) if is_sum else 1, dtype)
        if not self.factors:
            return size
        return tf.cast(tf.reduce_prod(self.factors[0]), dtype) * size


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce(op: Any, gradient: Any) -> Any:
    call = _Call(op, 1)
    return call.without_gradient([ops.horovod_allreduce(gradient, **call.same())])


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce(op: Any, *gradients: Any) -> Any:
    call = _Call(op, len(gradients))
    return call.without_gradient(ops.horovod_grouped_allreduce(list(gradients), **call.same()))


def _own_rows(call: _Call, averages: list[Any]) -> list[Any]:
    """Returns the rows of this rank, from the rows of all ranks in their order."""
    rows = tf.stack([tf.shape(tensor)[0] for tensor in call.tensors])
    counts = ops.horovod_allgather(rows[tf.newaxis], **call.where(), **call.name("rows"))
    own = ops.horovod_rank(process_set=call.process_set)
    first = tf.reduce_sum(counts[:own], axis=0)
    return call.without_gradient(
        average[first[index] : first[index] + rows[index]] for index, average in enumerate(averages)
    )


@tf.RegisterGradient("HorovodAllgather")
def _allgather(op: Any, gradient: Any) -> Any:
    call = _Call(op, 1)
    return _own_rows(call, [ops.horovod_allreduce(gradient, **call.averaged())])


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather(op: Any, *gradients: Any) -> Any:
    call = _Call(op, len(gradients))
    return _own_rows(call, ops.horovod_grouped_allreduce(list(gradients), **call.averaged()))


def _on_root(call: _Call, averages: list[Any]) -> list[Any]:
    is_root = tf.equal(ops.horovod_rank(process_set=[]), call.own)
    return call.without_gradient(
        tf.where(is_root, average, tf.zeros_like(average)) for average in averages
    )


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast(op: Any, gradient: Any) -> Any:
    call = _Call(op, 1)
    return _on_root(call, [ops.horovod_allreduce(gradient, **call.averaged())])


@tf.RegisterGradient("HorovodGroupedBroadcast")
def _grouped_broadcast(op: Any, *gradients: Any) -> Any:
    call = _Call(op, len(gradients))
    return _on_root(call, ops.horovod_grouped_allreduce(list(gradients), **call.averaged()))


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall(op: Any, gradient: Any, _: Any) -> Any:
    """What came goes back; rows that were not sent have no influence."""
    call = _Call(op, 1)
    returned, _ = ops.horovod_alltoall(gradient, op.outputs[1], **call.where(), **call.name())
    missing = tf.shape(op.inputs[0])[0] - tf.shape(returned)[0]
    rest = tf.zeros(tf.concat([[missing], tf.shape(returned)[1:]], 0), returned.dtype)
    return call.without_gradient([tf.concat([returned, rest], 0)])


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter(op: Any, gradient: Any) -> Any:
    call = _Call(op, 1)
    scaled = gradient * call.factor(gradient.dtype)
    return call.without_gradient([ops.horovod_allgather(scaled, **call.where(), **call.name())])


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter(op: Any, *gradients: Any) -> Any:
    call = _Call(op, len(gradients))
    scaled = [gradient * call.factor(gradient.dtype) for gradient in gradients]
    return call.without_gradient(
        ops.horovod_grouped_allgather(scaled, **call.where(), **call.name())
    )


for _answer in (
    "HorovodJoin",
    "HorovodRank",
    "HorovodLocalRank",
    "HorovodSize",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
):
    tf.no_gradient(_answer)
