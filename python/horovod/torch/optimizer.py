"""The optimizer that averages gradients over all ranks before each step."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from horovod.common._reductions import check_ranks
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import split_list
from horovod.torch._allreduce import reduce_op
from horovod.torch._delta import DeltaOptimizer, Deltas
from horovod.torch._passes import How, Parameter
from horovod.torch._reducer import Reducer
from horovod.torch._wrapped import Shared, Wrapped, number_parameters, wrap
from horovod.torch.compression import Compression, Compressor
from horovod.torch.functions import broadcast_object

T = TypeVar("T")


class _Distributed(Shared):
    """Front of the wrapped optimizer's class where gradients are reduced."""

    _passes: Reducer
    _should_synchronize = True

    def _settle(self) -> None:
        # By having reduced gradients, unless the user has done that.
        if not self._passes.is_synchronized:
            self._passes.reduce()
            self._passes.is_settled = True

    def synchronize(self) -> None:
        """Finishes the reduction of all gradients; one that was never computed counts as zeros.

        Afterwards gradients may be changed, and `step` belongs inside `skip_synchronize`.
        Raises: HorovodMismatchError when ranks disagree; HorovodInternalError when a rank is lost.
        """
        self._passes.reduce()
        self._passes.is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this context `step` does not reduce gradients: you have called `synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Finishes the reduction of all gradients, then does the wrapped optimizer's step.

        `closure`: computes gradients anew, as for every optimizer; they are reduced each time.
        Raises: as `synchronize`.
        """
        reducer = self._passes
        if self._should_synchronize:
            if reducer.is_synchronized:
                warnings.warn(
                    "optimizer.step() was called after optimizer.synchronize() and reduces the "
                    "gradients a second time: call it inside `with optimizer.skip_synchronize():`",
                    stacklevel=2,
                )
                reducer.is_settled = False
            if not reducer.is_settled and (closure is None or reducer.is_outstanding):
                reducer.reduce()
        reducer.is_synchronized = reducer.is_settled = False
        return super().step(closure if closure is None else self._reducing(closure))

    def _reducing(self, closure: Callable[[], T]) -> Callable[[], T]:
        def reduced() -> T:
            loss = closure()
            self._passes.reduce()
            return loss

        return reduced

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in every optimizer. Raises AssertionError between backward and step or synchronize."""
        if self._passes.is_outstanding:
            raise AssertionError(
                "zero_grad() was called after backward() and before step() or synchronize(): it "
                "would race with the reduction of gradients that is under way"
            )
        self._passes.is_synchronized = self._passes.is_settled = False
        super().zero_grad(*args, **kwargs)


# Else torch would give our step what its parent's step already has: profiling and step hooks.
_Distributed.step.hooked = True  # type: ignore[attr-defined]


class _Alone(Wrapped):
    """Front of the class where no other rank has a part: what the user may call, and nothing in the
    way of `step` and `zero_grad`."""

    def synchronize(self) -> None:
        """Does nothing: there is nothing to reduce."""

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: there is nothing to reduce."""
        return contextlib.nullcontext()


def _name_parameters(
    groups: Sequence[dict[str, Any]], named_parameters: Iterable[tuple[str, Parameter]] | None
) -> dict[Parameter, str]:
    """The name of each parameter, in the order of `groups`; ValueError when one has none."""
    parameters = list(number_parameters(groups))
    if named_parameters is None:
        return number_parameters(groups)
    named = list(named_parameters)
    for entry in named:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)):
            raise ValueError(
                "named_parameters must be a sequence of tuples (name, parameter), such as "
                f"model.named_parameters(); it has {entry!r}"
            )
    duplicates = Wrapped.find_duplicates(name for name, _ in named)
    if duplicates:
        raise ValueError(
            f"names in named_parameters must be unique, these are not: {sorted(duplicates)}"
        )
    names = {parameter: name for name, parameter in named}
    missing = [parameter for parameter in parameters if parameter not in names]
    if missing:
        shapes = [tuple(parameter.shape) for parameter in missing]
        raise ValueError(
            f"named_parameters lacks {len(missing)} of the optimizer's {len(parameters)} "
            f"parameters, of shapes {shapes[:10]}: give the names of all"
        )
    return {parameter: names[parameter] for parameter in parameters}


def _group_parameters(
    names: dict[Parameter, str],
    groups: int | Sequence[Sequence[Parameter]] | None,
    process_set: ProcessSet,
) -> list[Sequence[Parameter]]:
    """Which parameters travel together: those of a group; the rest alone."""
    parameters = [parameter for parameter in names if parameter.requires_grad]
    if not groups or not parameters:
        return [[parameter] for parameter in parameters]
    if isinstance(groups, int):
        by_name = {names[parameter]: parameter for parameter in parameters}
        first = (process_set.ranks or [0])[0]
        order = broadcast_object(list(by_name), first, "optimizer_groups", process_set)
        if set(order) != set(by_name):
            raise ValueError(
                f"rank {first} trains other parameters than this rank: "
                f"{sorted(set(order) ^ set(by_name))[:10]} differ"
            )
        return split_list([by_name[name] for name in order], min(groups, len(parameters)))
    wanted = set(parameters)
    together: list[Sequence[Parameter]] = [[p for p in group if p in wanted] for group in groups]
    grouped = {parameter for group in together for parameter in group}
    rest = [[parameter] for parameter in parameters if parameter not in grouped]
    return [*(group for group in together if group), *rest]


def _check_groups(groups: Any) -> None:
    if groups is None or (isinstance(groups, int) and groups >= 0):
        return
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(group, (list, tuple)) and all(isinstance(p, torch.Tensor) for p in group)
        for group in groups
    ):
        raise ValueError(
            f"groups must be a non-negative int or a list of lists of parameters, got {groups!r}"
        )
    if Wrapped.find_duplicates(id(parameter) for group in groups for parameter in group):
        raise ValueError("groups must not contain a parameter twice")


def _check_arguments(op: int, gradient_predivide_factor: float, passes: int) -> None:
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only")
    reduce_op(op, None)
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, got {passes}")


def DistributedOptimizer(  # noqa: N802 (the documented name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps `optimizer` so that each step uses the gradients of all ranks.

    Gradients start on their way in backward, a bundle at a time, when they have been accumulated
    `backward_passes_per_step` times (summed, not averaged, over these passes). When a backward pass
    has reached every parameter, it ends with reduced gradients in place, so `clip_grad_norm_` and
    the like work as with one process. If it may miss some, call `synchronize` before changing
    gradients, and `step` inside `skip_synchronize`; a change without that raises RuntimeError.
    `step` reduces what is left, a missing gradient as zeros. With GradScaler nothing needs to be
    called: it always sees reduced gradients, so all ranks skip the same steps. Where ranks have
    graphs that reach different parameters, use no blocking operation of your own between backward
    and step. Where no other rank has a part, nothing is sent, and `step` and `zero_grad` are the
    wrapped optimizer's own; an elastic job of one rank is ready for others.

    With op=Adasum each rank steps by its own gradients, and the Adasum of these steps is what is
    done everywhere: clip and scale as with one process, just before `step`; `synchronize` does
    nothing, `skip_synchronize` raises AssertionError.

    `named_parameters`: `(name, parameter)` of all parameters; names match gradients between ranks,
    without them their order does. `compression`: shrinks gradients on their way. `op`: Average,
    Sum, Adasum, Min, Max or Product. `gradient_predivide_factor` f: with Average, multiplies by 1/f
    before and by f/size after the sum. `groups`: n cuts the parameters into n groups that travel
    together, which is for hundreds of small ones; a list of lists gives the groups. `num_groups`:
    its deprecated spelling. `sparse_as_dense`: sends sparse gradients as dense ones; without it
    their indices and values travel, uncompressed, for Average and Sum; then every rank must have
    had a gradient of such a parameter before one may miss it. `process_set`: the ranks that train
    together; on a rank outside it this is the wrapped optimizer, and nothing is sent.

    Returns: an optimizer of a class of the same name that inherits from the class of `optimizer`,
    with its options and state; and `synchronize`, `skip_synchronize`,
    `set_backward_passes_per_step`. `zero_grad` between backward and step raises AssertionError, and
    so does backward if it comes too often before step.
    Raises: ValueError for arguments that do not fit; before `init`. NotImplementedError for Adasum
    on a number of ranks that is no power of two.
    """
    if num_groups:
        warnings.warn(
            "num_groups is deprecated: give groups=<int> instead", DeprecationWarning, stacklevel=2
        )
        groups = num_groups if groups is None else groups
    _check_arguments(op, gradient_predivide_factor, backward_passes_per_step)
    _check_groups(groups)
    if isinstance(optimizer, Wrapped):
        raise ValueError("this optimizer is already a DistributedOptimizer")
    process_set_id(process_set)
    check_ranks(op, process_set)
    names = _name_parameters(optimizer.param_groups, named_parameters)
    how = How(compression, op, gradient_predivide_factor, sparse_as_dense, process_set)
    if not how.is_distributed():
        return wrap(_Alone, optimizer)
    if op == Adasum:
        deltas = Deltas(names, how, backward_passes_per_step)
        deltas.add([[parameter for parameter in names if parameter.requires_grad]])
        return wrap(DeltaOptimizer, optimizer, _names=names, _passes=deltas)
    reducer = Reducer(names, how, backward_passes_per_step)
    reducer.add(_group_parameters(names, groups, process_set))
    return wrap(_Distributed, optimizer, _names=names, _passes=reducer)
