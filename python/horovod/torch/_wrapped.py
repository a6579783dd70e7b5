"""The methods that DistributedOptimizer adds to the class of the wrapped optimizer, for any op."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from horovod.common._arguments import check_passes
from horovod.common._extension import core
from horovod.common._gradients import How
from horovod.common.process_sets import global_process_set
from horovod.torch._passes import Parameter, Passes, can_be_trained
from horovod.torch._state_loading import load_in_place

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object

T = TypeVar("T")

#: Not in torch 2.1.
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


@dataclasses.dataclass
class Terms:
    """How an optimizer was wrapped: the attributes that show it, and how to wrap a copy."""

    how: How
    passes: int
    names: dict[Parameter, str]
    #: The groups of parameters that are reduced together, if there is no Passes.
    groups: list[Sequence[Parameter]]
    #: Called to unpickle an optimizer, with the unwrapped one and the saved terms.
    wrap_again: Callable[[Any, dict[str, Any]], Any]
    #: The optimizer that was wrapped; None in a copy.
    original: Any = None
    #: Small gradients are reduced in groups that the user has not chosen.
    joins_small: bool = False


class Wrapped(_Base):
    """The methods of all wrapped optimizers, with or without other ranks."""

    _terms: Terms

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes per step, and counts from 0 again."""
        check_passes(passes)
        self._terms.passes = passes

    @staticmethod
    def find_duplicates(lst: Iterable[T]) -> set[T]:
        """Returns the items that occur more than once in `lst`."""
        seen: set[T] = set()
        duplicates: set[T] = set()
        for entry in lst:
            (duplicates if entry in seen else seen).add(entry)
        return duplicates

    def step(
        self, closure: Callable[[], Any] | None = None, *arguments: Any, **options: Any
    ) -> Any:
        """Calls the wrapped optimizer's step with these arguments.

        A scheduler of the wrapped optimizer counts the call too.
        """
        if closure is None and not arguments:
            result = super().step(**options)  # its step may not accept a closure
        else:
            result = super().step(closure, *arguments, **options)
        if not _is_compiling():
            core.count_step()
            _tell_scheduler_of(self._terms.original)
        return result

    def _end_round(self) -> None:
        """Ends a round of reductions that has begun. Discards its results."""

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Loads a state, as every optimizer, but in place.

        Groups and state stay the same objects, so a scheduler or the wrapped optimizer sees the
        loaded values. Values keep their types, see `load_in_place`.
        """
        load_in_place(self, super().load_state_dict, *args, **kwargs)

    def __copy__(self) -> Any:
        """Returns an optimizer on the same parameters that shares all state with this one."""
        copied = object.__new__(type(self))
        _move_attributes(self, copied)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Returns an optimizer on copies of the parameters, which reduces their gradients by the
        same names.

        In one `deepcopy` with the model it gets the parameters of the copied model. Attributes that
        the wrapped class does not copy, such as step hooks, are not copied. The copy begins a new
        round.
        """
        copied: Any = object.__new__(type(self))
        memo[id(self)] = copied
        _move_attributes(copy.deepcopy(self._unwrapped(), memo), copied)
        terms = self._terms
        names = {copy.deepcopy(p, memo): name for p, name in terms.names.items()}
        groups: list[Sequence[Parameter]] = [[memo[id(p)] for p in g] for g in terms.groups]
        copied._terms = dataclasses.replace(terms, names=names, groups=groups, original=None)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles the wrapped optimizer and the arguments of the wrapper.

        The loaded optimizer reduces the gradients of the parameters that are loaded with it, by the
        same names, and begins a new round.
        """
        terms = self._terms
        names = {**number_parameters(self.param_groups), **terms.names}
        saved = {
            "passes": terms.passes,
            "names": list(names.items()),
            "groups": self._groups(),
            "joins_small": terms.joins_small,
        }
        return terms.wrap_again, (self._unwrapped(), {**_saved_how(terms.how), **saved})

    def _groups(self) -> list[Sequence[Parameter]]:
        """Returns the groups of parameters that are reduced together."""
        return self._terms.groups

    def _unwrapped(self) -> Any:
        """Returns an optimizer of the wrapped class with all attributes except the wrapper's."""
        kinds = type(self).__mro__
        bare: Any = object.__new__(kinds[kinds.index(Wrapped) + 1])
        _move_attributes(self, bare)
        return bare


# Otherwise torch would wrap our step too, although the wrapped step has profiling and hooks.
Wrapped.step.hooked = True  # type: ignore[attr-defined]

#: Attributes that only the wrapper has.
_OURS = ("_terms", "_names", "_passes")


def _move_attributes(source: Any, target: Any) -> None:
    """Copies the attributes of `source` to `target`, but not the wrapper's own attributes to an
    optimizer that is not a wrapper."""
    attributes = dict(getattr(source, "__dict__", {}))
    attributes.pop("step", None)  # set by a learning-rate scheduler, bound to `source`
    if not isinstance(target, Wrapped):
        for name in _OURS:
            attributes.pop(name, None)
    if attributes:
        vars(target).update(attributes)
    for kind in type(source).__mro__:
        for slot in vars(kind).values():
            if isinstance(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    slot.__set__(target, slot.__get__(source))


def _tell_scheduler_of(original: Any) -> None:
    """Marks a step as done for a scheduler that was made for this optimizer."""
    if "step" in getattr(original, "__dict__", ()):
        original._opt_called = True
        original._step_count = getattr(original, "_step_count", 0) + 1  # torch before 2.4


def _saved_how(how: How) -> dict[str, Any]:
    """Returns `how` in a form that can be pickled: a process set as its ranks, None for all."""
    is_global = how.process_set is global_process_set
    return {**how._asdict(), "process_set": None if is_global else how.process_set.ranks}


class Shared(Wrapped):
    """The methods of optimizers with other ranks, for any op. `_passes` does the work."""

    _passes: Passes
    _names: dict[Parameter, str]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes per step, and counts from 0 again.

        Ends an incomplete round of reductions without its results.
        """
        super().set_backward_passes_per_step(passes)
        self._passes.set_passes(passes)

    def _end_round(self) -> None:
        self._passes.forget()
        self._passes.is_synchronized = self._passes.is_settled = False

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Loads a state, as every optimizer, but in place. Ends an incomplete round without its
        results.

        Groups and state stay the same objects, so a scheduler or the wrapped optimizer sees the
        loaded values. Values keep their types, see `load_in_place`.
        """
        self._end_round()
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, as every optimizer; gradients of the new parameters are reduced too."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = number_parameters(self.param_groups[number:], number)
        self._names.update(added)
        self._passes.add([[p] for p in added if can_be_trained(p)])

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups, as in every optimizer. A read by a GradScaler makes all ranks agree.

        All ranks must skip the same scaled steps. Reading this attribute is the only access to the
        optimizer that every GradScaler makes before it reads gradients.
        """
        if not _is_compiling():
            reader = sys._getframe(1).f_globals.get("__name__", "")
            if reader.endswith("grad_scaler") and not self._passes.is_settled:
                self._settle()
        groups: list[dict[str, Any]]
        if "param_groups" in self.__dict__:
            groups = self.__dict__["param_groups"]
        else:
            groups = super().param_groups  # the wrapped class has a property or a slot
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        kinds = type(self).__mro__
        for kind in kinds[kinds.index(Shared) + 1 :]:
            if hasattr(vars(kind).get("param_groups"), "__set__"):
                vars(kind)["param_groups"].__set__(self, groups)
                return
        self.__dict__["param_groups"] = groups

    def _settle(self) -> None:
        """Makes ranks agree on whether a scaled step is skipped."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = super().__deepcopy__(memo)
        copy_of = {parameter: memo[id(parameter)] for parameter in self._names}
        copied._names = copied._terms.names
        copied._passes = self._passes.copied(copied._names, copy_of)
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        return self._passes._groups()


def number_parameters(groups: Sequence[dict[str, Any]], first: int = 0) -> dict[Parameter, str]:
    """Returns a name for each parameter, by its position in `groups`."""
    return {
        parameter: f"noname.{i}.{j}"
        for i, group in enumerate(groups, first)
        for j, parameter in enumerate(group["params"])
    }


def _set_passes(wrapped: Wrapped, passes: int) -> None:
    wrapped.set_backward_passes_per_step(passes)


#: Attributes of a wrapper with arguments of DistributedOptimizer, unless the wrapped class has an
#: attribute of that name.
_SHOWN = {
    "backward_passes_per_step": property(lambda wrapped: wrapped._terms.passes, _set_passes),
    "op": property(lambda wrapped: wrapped._terms.how.op),
    "gradient_predivide_factor": property(lambda wrapped: wrapped._terms.how.predivide),
}


def wrap(kind: type[Wrapped], optimizer: Any, terms: Terms, **own: Any) -> Any:
    """Returns an object of a new class with all attributes of `optimizer`, `terms` and `own`.
    Groups and state are shared. The new class has the name of the class of `optimizer`."""
    parent = type(optimizer)
    body = {
        "__module__": "horovod.torch.optimizer",
        "__doc__": parent.__doc__,
        **{name: shown for name, shown in _SHOWN.items() if not hasattr(optimizer, name)},
    }
    distributed = types.new_class(
        parent.__name__, (kind, parent), {}, lambda made: made.update(body)
    )
    wrapped: Any = object.__new__(distributed)
    _move_attributes(optimizer, wrapped)
    vars(wrapped).update(own, _terms=terms)
    return wrapped
