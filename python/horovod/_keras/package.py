"""The functions of `horovod.keras` and `horovod.tensorflow.keras`, which have equal signatures."""

from __future__ import annotations

from typing import Any

from horovod._keras import front
from horovod.common._arguments import reduce_op
from horovod.common._compression import NoneCompressor
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set


class Package:
    """These functions for one module of Keras. A package exports the methods of its object."""

    def __init__(self, keras: Any) -> None:
        self._keras = keras

    def DistributedOptimizer(  # noqa: N802 (the documented name)
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = NoneCompressor,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Wraps `optimizer` so that each step uses gradients reduced over all ranks.

        Args:
            optimizer: an optimizer of Keras.
            name: by default `Distributed` and the class of the optimizer.
            device_dense, device_sparse: on TensorFlow, placement of the nodes that reduce dense
                gradients and IndexedSlices.
            compression: compresses gradients before sending.
            sparse_as_dense: sends IndexedSlices as dense tensors.
            gradient_predivide_factor: f: with Average, multiplies by 1/f before and by f/size after
                the sum.
            op: Average or Sum.
            backward_passes_per_step: on TensorFlow, gradients are summed over this number of passes
                before they are reduced and applied; averaged with `average_aggregated_gradients`.
            groups: n divides the gradients into n groups that are reduced together; a list of lists
                of variables defines the groups.
            num_groups: deprecated, use `groups`.
            process_set: the ranks that train together.
            scale_local_gradients: divides gradients of `register_local_var` by the number of ranks.

        Returns:
            An optimizer whose class has the same name as, and inherits from, the class of
                `optimizer`, made from its configuration. On one rank nothing is sent.

        Raises: ValueError for invalid arguments.
        """
        return front.distributed_optimizer(
            self._keras,
            optimizer,
            name,
            None,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=front.checked_groups(num_groups, groups),
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )

    def PartialDistributedOptimizer(  # noqa: N802 (the documented name)
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = NoneCompressor,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Wraps `optimizer` as `DistributedOptimizer` does, but does not reduce gradients of
        `local_layers`.

        `local_layers`: one or several built Keras layers. Raises: ValueError for anything else.
        """
        return front.distributed_optimizer(
            self._keras,
            optimizer,
            name,
            local_layers,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=front.checked_groups(0, groups),
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """Overwrites all global variables of Keras' v1 graph with those of `root_rank`, at once.

        Raises: RuntimeError in eager execution, which has no global variables.
        """
        return front.broadcast_global_variables(self._keras, root_rank)

    def allreduce(
        self,
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: int | None = None,
        compression: Any = NoneCompressor,
    ) -> Any:
        """Returns a number, array or tensor reduced over all ranks, by default averaged. No
        gradient.

        Args:
            value: of equal shape and dtype on all ranks.
            average: deprecated, use `op`.
            compression: none, fp16 or bf16.

        Returns:
            The same shape: a tensor for a tensor or variable, otherwise a NumPy array or number,
                also if `value` is a node of a v1 graph.

        Raises:
            ValueError: another compression, both `op` and `average`, or an unsupported dtype.
            HorovodMismatchError: ranks disagree.
            HorovodInternalError: a rank is lost.
        """
        op = reduce_op(op, average)
        return front.allreduce(
            self._keras, value, name, op, prescale_factor, postscale_factor, compression
        )

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """Returns the arrays or tensors of all ranks, concatenated in the order of ranks.

        `value`: [rows, ...]; rows may differ between ranks.
        Returns: [all rows, ...], a tensor or array as in `allreduce`. Raises: as `allreduce`.
        """
        return front.allgather(self._keras, value, name)

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """Returns the number, string, array or tensor of `root_rank`.

        `value`: of equal shape and dtype on all ranks, any dtype; strings may have any length.
        Returns: a tensor, array or number as in `allreduce`. Raises: as `allreduce`.
        """
        return front.broadcast(self._keras, value, root_rank, name)

    def reducescatter(self, value: Any, name: str | None = None, op: int = Average) -> Any:
        """Returns this rank's rows of the result of `allreduce`.

        `value`: [rows, ...], of equal shape on all ranks. Returns: [rows / ranks, ...], a tensor or
        array; the first (rows modulo ranks) ranks get one row more. `op`: Average or Sum.
        Raises: ValueError for a scalar; otherwise as `allreduce`.
        """
        return front.reducescatter(self._keras, value, name, op)

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = NoneCompressor,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a saved model, with its optimizer and state as a DistributedOptimizer.

        `custom_optimizers`: optimizer classes that Keras does not know. `custom_objects`: take
        precedence over them. `compression`: of the optimizer; its other options are the defaults of
        `DistributedOptimizer`. `legacy_opts`: not used, accepted for compatibility: the file has
        the class.
        Raises: the errors of Keras' `load_model`.
        """
        return front.load_model(
            self._keras, filepath, custom_optimizers, custom_objects, compression
        )
