"""The optimizer that reduces gradients over all ranks before each step."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from horovod.common._arguments import check_compression, check_passes, predivide
from horovod.common._gradients import How, grouped
from horovod.common._reductions import check_ranks
from horovod.common._variables import checked_groups
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import (
    ProcessSet,
    global_process_set,
    process_set_id,
    registered_set,
)
from horovod.torch._allreduce import reduce_op
from horovod.torch._delta import DeltaOptimizer, Deltas
from horovod.torch._passes import Parameter, can_be_trained
from horovod.torch._reducer import Reducer
from horovod.torch._wrapped import Shared, Terms, Wrapped, number_parameters, wrap
from horovod.torch.compression import Compression, Compressor
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import is_initialized

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
        """Completes the reduction of all gradients. A gradient that was not computed counts as
        zeros.

        Gradients may be changed afterwards; then call `step` inside `skip_synchronize`.
        Raises: HorovodMismatchError if ranks disagree; HorovodInternalError if a rank is lost.
        """
        self._passes.reduce()
        self._passes.is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Context manager in which `step` does not reduce gradients: call `synchronize` before
        it."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(
        self, closure: Callable[[], Any] | None = None, *arguments: Any, **options: Any
    ) -> Any:
        """Completes the reduction of all gradients, then calls the wrapped optimizer's `step`.

        `closure`: computes gradients anew, as for every optimizer. They are reduced after each
        call, also inside `skip_synchronize`. Other arguments are passed to the wrapped optimizer.
        Raises: as `synchronize`; AssertionError inside `skip_synchronize` if computed gradients are
        not reduced.
        """
        reducer = self._passes
        end = reducer.reduce if self._should_synchronize else reducer.leave_as_they_are
        if self._should_synchronize and reducer.is_synchronized:
            warnings.warn(_TWICE, stacklevel=2)
            reducer.is_settled = False
        if not reducer.is_settled and (closure is None or reducer.is_outstanding):
            end()
        reducer.is_synchronized = reducer.is_settled = False
        ending = closure if closure is None else self._ending(closure, end)
        return super().step(ending, *arguments, **options)

    def _ending(self, closure: Callable[[], T], end: Callable[[], None]) -> Callable[[], T]:
        """Returns a closure that calls `end` after it has computed gradients."""

        def ended() -> T:
            loss = closure()
            if self._should_synchronize and self._passes.is_synchronized:
                warnings.warn(_TWICE, stacklevel=2)
            end()
            self._passes.is_synchronized = self._passes.is_settled = False
            return loss

        return ended

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears gradients, as in every optimizer.

        Raises AssertionError while gradients are being reduced: after a backward pass that did not
        reach every parameter, until `step` or `synchronize`.
        """
        self._passes.drop_gradients()
        self._passes.is_synchronized = self._passes.is_settled = False
        super().zero_grad(*args, **kwargs)


_TWICE = (
    "optimizer.step() was called after optimizer.synchronize() and reduces the gradients a second "
    "time: call it inside `with optimizer.skip_synchronize():`"
)

# Otherwise torch would wrap our step too, although the wrapped step has profiling and hooks.
_Distributed.step.hooked = True  # type: ignore[attr-defined]


class _Alone(Wrapped):
    """Base of the wrapper class when no other rank takes part: the same methods, without
    reduction."""

    def synchronize(self) -> None:
        """Does nothing: there is no other rank."""

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: there is no other rank."""
        return contextlib.nullcontext()


def _name_parameters(
    groups: Sequence[dict[str, Any]], named_parameters: Iterable[tuple[str, Parameter]] | None
) -> dict[Parameter, str]:
    """Returns the name of each parameter, in the order of `groups`. ValueError if one has no
    name."""
    parameters = list(number_parameters(groups))
    if named_parameters is None:
        return number_parameters(groups)
    named = list(named_parameters) if isinstance(named_parameters, Iterable) else [named_parameters]
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
    process_set: ProcessSet | None,
) -> list[Sequence[Parameter]]:
    """Returns the groups of parameters that are reduced together; other parameters are alone.

    Frozen parameters are included, since they may be trained later; a number of groups refers to
    those that are trained now. `process_set`: ranks that use the parameter order of its first rank;
    None: no exchange.
    """
    every = [parameter for parameter in names if can_be_trained(parameter)]
    parameters = [parameter for parameter in every if parameter.requires_grad]
    if not groups or not every or (isinstance(groups, int) and not parameters):
        return [[parameter] for parameter in every]
    if isinstance(groups, int):
        order = parameters if process_set is None else _agreed(parameters, names, process_set)
        together, _ = grouped(order, groups)
    else:
        wanted = set(every)
        together, _ = grouped(every, groups, lambda p: p if p in wanted else None)
    taken = {parameter for group in together for parameter in group}
    return [*together, *([parameter] for parameter in every if parameter not in taken)]


def _agreed(
    parameters: list[Parameter], names: dict[Parameter, str], process_set: ProcessSet
) -> list[Parameter]:
    """Returns `parameters` in the order of the first rank. ValueError if that rank has others."""
    by_name = {names[parameter]: parameter for parameter in parameters}
    first = (process_set.ranks or [0])[0]
    order = broadcast_object(list(by_name), first, "optimizer_groups", process_set)
    if set(order) != set(by_name):
        raise ValueError(
            f"rank {first} trains other parameters than this rank: "
            f"{sorted(set(order) ^ set(by_name))[:10]} differ"
        )
    return [by_name[name] for name in order]


#: Compressions whose result has a dtype that depends on that of the gradient alone, so that the
#: gradients of a group have one dtype afterwards.
_KEEPING_DTYPES = (Compression.none, Compression.fp16, Compression.bf16)


def _check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, Wrapped):
        raise ValueError("this optimizer is already a DistributedOptimizer")
    kind = type(optimizer).__name__
    if isinstance(optimizer, type) or not all(
        hasattr(optimizer, name) for name in ("param_groups", "step", "zero_grad")
    ):
        raise ValueError(
            "DistributedOptimizer: optimizer must be an object such as "
            "torch.optim.SGD(model.parameters(), lr=0.1), got "
            + (f"the class {optimizer.__name__}" if isinstance(optimizer, type) else kind)
        )


def _how(
    compression: type[Compressor],
    op: int,
    gradient_predivide_factor: float,
    sparse_as_dense: bool,
    process_set: ProcessSet,
) -> How:
    op = reduce_op(op, None)
    divisor = predivide("DistributedOptimizer", gradient_predivide_factor, op)
    check_compression("DistributedOptimizer", compression)
    process_set_id(process_set)
    check_ranks(op, process_set)
    return How(compression, op, divisor, sparse_as_dense, process_set)


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
    """Wraps `optimizer` so that each step uses gradients reduced over all ranks.

    Gradients are sent during backward, in bundles, after `backward_passes_per_step` passes (summed,
    not averaged, over the passes). A backward pass that reaches every parameter ends with reduced
    gradients in place, so `clip_grad_norm_` works as with one process. If a pass may miss
    parameters, call `synchronize` before you change gradients, and `step` inside
    `skip_synchronize`; changing gradients without that raises RuntimeError. `step` reduces the
    remaining gradients; a missing gradient counts as zeros. GradScaler needs no extra calls: it
    sees reduced gradients, so all ranks skip the same steps. If the graphs of ranks reach different
    parameters, do not call blocking operations between backward and step. If no other rank takes
    part, nothing is sent, and `step` and `zero_grad` are those of the wrapped optimizer; an elastic
    job of one rank is prepared for more.

    With op=Adasum each rank makes a step with its own gradients, and all ranks apply the Adasum of
    these steps. Clip and scale as with one process, just before `step`. `synchronize` does nothing,
    and `skip_synchronize` raises AssertionError.

    Args:
        optimizer: a torch.optim.Optimizer.
        named_parameters: `(name, parameter)` of all parameters, such as `model.named_parameters()`.
            Names match gradients between ranks; without names their order does.
        compression: compresses gradients before sending.
        backward_passes_per_step: number of backward passes before gradients are reduced.
        op: Average, Sum, Adasum, Min, Max or Product.
        gradient_predivide_factor: f: with Average, multiplies by 1/f before and by f/size after the
            sum.
        groups: n divides the parameters into n groups that are reduced together. A list of lists
            of parameters defines the groups. By default, if at least 64 gradients have at most
            16 KiB each, these are reduced in groups of up to 128, which messages and timelines
            call by their first parameter; 0 makes no groups.
        num_groups: deprecated, use `groups`.
        sparse_as_dense: sends sparse gradients as dense ones. Otherwise indices and values are
            sent, uncompressed, for Average and Sum; every rank must then have had a gradient of
            such a parameter before a rank may miss it.
        process_set: the ranks that train together. On other ranks nothing is sent.

    Returns:
        An optimizer whose class has the same name as, and inherits from, the class of `optimizer`,
            with its options and state. It adds `synchronize`, `skip_synchronize`,
            `set_backward_passes_per_step`, and the attributes `backward_passes_per_step`, `op` and
            `gradient_predivide_factor`. It can be copied and pickled; if it is loaded before
            `init`, it reduces after `init`.

    `zero_grad` raises AssertionError while gradients are being reduced; so does backward if it runs
    too often before `step`. A step reduces the parameters that require a gradient when its first
    backward pass begins. If these differ between ranks, all of them raise HorovodMismatchError.

    Raises:
        ValueError: invalid arguments, or before `init`.
        NotImplementedError: Adasum if the number of ranks is not a power of two.

    Example:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    """
    groups = checked_groups(num_groups, groups, "parameter", lambda p: isinstance(p, torch.Tensor))
    _check_optimizer(optimizer)
    check_passes(backward_passes_per_step)
    how = _how(compression, op, gradient_predivide_factor, sparse_as_dense, process_set)
    names = _name_parameters(optimizer.param_groups, named_parameters)
    is_alone = not how.is_distributed()
    units: list[Sequence[Parameter]]
    if how.op == Adasum:
        units = [[parameter for parameter in names if can_be_trained(parameter)]]
    else:
        units = _group_parameters(names, groups, None if is_alone else process_set)
    joins_small = groups is None and compression in _KEEPING_DTYPES
    terms = Terms(how, backward_passes_per_step, names, units, wrap_again, optimizer, joins_small)
    return _wrap(optimizer, terms, is_alone)


def _wrap(optimizer: Any, terms: Terms, is_alone: bool) -> Any:
    if is_alone:
        return wrap(_Alone, optimizer, terms)
    kind, work = (DeltaOptimizer, Deltas) if terms.how.op == Adasum else (_Distributed, Reducer)
    groups = optimizer.param_groups
    first = list(groups[0]["params"]) if groups else []
    passes = work(terms.names, terms.how, terms.passes, first)
    passes.joins_small = terms.joins_small
    passes.add(terms.groups)
    terms.groups = []  # the passes know them
    return wrap(kind, optimizer, terms, _names=terms.names, _passes=passes)


def wrap_again(optimizer: Any, saved: dict[str, Any]) -> Any:
    """Makes a DistributedOptimizer from a pickled one. Does not communicate.

    Before `init` it is unknown whether there are other ranks, so it is prepared for them.
    Raises: ValueError if the job has no process set of the same ranks.
    """
    process_set = _set_of(saved["process_set"])
    how = How(**{field: saved[field] for field in How._fields} | {"process_set": process_set})
    is_alone = is_initialized() and not how.is_distributed()
    if is_initialized():
        check_ranks(how.op, process_set)
    terms = Terms(how, saved["passes"], dict(saved["names"]), saved["groups"], wrap_again)
    terms.joins_small = saved.get("joins_small", False)
    return _wrap(optimizer, terms, is_alone)


def _set_of(ranks: list[int] | None) -> ProcessSet:
    """Returns the process set of these ranks; None: all ranks."""
    if ranks is None:
        return global_process_set
    found = registered_set(ranks)
    if found is None and is_initialized():
        raise ValueError(
            f"a DistributedOptimizer that was saved reduces on the process set {ranks}, and there "
            f"is none: call hvd.add_process_set({ranks}) before it is loaded"
        )
    return found or ProcessSet(ranks)
