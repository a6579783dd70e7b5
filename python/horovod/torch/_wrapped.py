"""What DistributedOptimizer puts in front of the class of the wrapped optimizer, for any op."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch

from horovod.torch._passes import Parameter, Passes

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object

T = TypeVar("T")

#: torch 2.1 cannot tell.
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


class Wrapped(_Base):
    """What is there whoever else has a part."""

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on a step has `passes` backward passes; counts from 0 again."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be positive, got {passes}")

    @staticmethod
    def find_duplicates(lst: Iterable[T]) -> set[T]:
        """What occurs more than once in `lst`."""
        seen: set[T] = set()
        duplicates: set[T] = set()
        for entry in lst:
            (duplicates if entry in seen else seen).add(entry)
        return duplicates


class Shared(Wrapped):
    """The part where other ranks step too, whatever is reduced. `_passes` does the work."""

    _passes: Passes
    _names: dict[Parameter, str]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on a step has `passes` backward passes; counts from 0 again.

        Ends a round of reductions that has begun, without its results.
        """
        super().set_backward_passes_per_step(passes)
        self._passes.set_passes(passes)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As in every optimizer; ends a round of reductions that has begun, without its results."""
        self._passes.forget()
        self._passes.is_synchronized = self._passes.is_settled = False
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in every optimizer; reduces what belongs to the new parameters too."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = number_parameters(self.param_groups[number:], number)
        self._names.update(added)
        self._passes.add([[p] for p in added if p.requires_grad])

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """As in every optimizer. A GradScaler sees by it what all ranks agree on.

        Whether a scaled step is skipped must be the same on all ranks. Reading this attribute is
        the only thing that every GradScaler does with an optimizer before it looks at gradients.
        """
        if not _is_compiling():
            reader = sys._getframe(1).f_globals.get("__name__", "")
            if reader.endswith("grad_scaler") and not self._passes.is_settled:
                self._settle()
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def _settle(self) -> None:
        """Makes ranks agree on whether a scaled step is skipped."""
        raise NotImplementedError

    def __copy__(self) -> Any:
        """An optimizer on the same parameters, which shares everything with this one."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        vars(copied).pop("step", None)  # a learning-rate scheduler's, bound to this one
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """An optimizer on copies of the parameters; reduces their gradients under the same names.

        In one `deepcopy` with the model it gets the parameters of the copied model. Step hooks are
        not copied, as in every optimizer. The copy begins a new round.
        """
        copied: Any = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        copy_of = {parameter: memo[id(parameter)] for parameter in self._names}
        copied._names = {copy_of[parameter]: name for parameter, name in self._names.items()}
        copied._passes = self._passes.copied(copied._names, copy_of)
        return copied

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a DistributedOptimizer cannot be pickled, since it has hooks in this process: pickle "
            "its state_dict(), and wrap an optimizer anew where it is loaded"
        )


def number_parameters(groups: Sequence[dict[str, Any]], first: int = 0) -> dict[Parameter, str]:
    """A name for each parameter, by its place in `groups`."""
    return {
        parameter: f"noname.{i}.{j}"
        for i, group in enumerate(groups, first)
        for j, parameter in enumerate(group["params"])
    }


def wrap(kind: type[Wrapped], optimizer: torch.optim.Optimizer, **own: Any) -> Any:
    """An object of a new class with all that `optimizer` has, and `own` attributes; groups and
    state are shared."""
    parent = type(optimizer)
    distributed = type(parent.__name__, (kind, parent), {"__module__": parent.__module__})
    wrapped: Any = object.__new__(distributed)
    attributes = dict(vars(optimizer))
    attributes.pop("step", None)  # a learning-rate scheduler's, bound to `optimizer`
    vars(wrapped).update(attributes, **own)
    return wrapped
