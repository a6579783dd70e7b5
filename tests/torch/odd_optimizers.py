"""Optimizers that are made in another way than those of torch, as third parties make them."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch


class Mode(enum.Enum):
    TRAIN = 1


Pair = collections.namedtuple("Pair", ["first", "second"])


class Rich(torch.optim.SGD):
    """Has state of every kind: what is in it depends on the number of steps."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for parameter in group["params"]:
                self.state[parameter].update(rich_state(parameter, group["steps"]))
        return loss


def rich_state(parameter: torch.Tensor, steps: int) -> dict[str, Any]:
    shared = torch.full((2,), float(steps))
    return {
        "step": torch.tensor(float(steps)),
        "master": parameter.detach().float() + steps,
        "double": torch.full((2,), steps / 3, dtype=torch.float64),
        "count": torch.tensor([steps]),
        "mask": torch.tensor([steps > 1, True]),
        "codes": torch.full((3,), steps, dtype=torch.uint8),
        "complex": torch.tensor([steps + 1j]),
        "sparse": torch.eye(2).mul(steps).to_sparse(),
        "empty": torch.empty(0, steps),
        "expanded": torch.full((1,), float(steps)).expand(3),
        "turned": torch.arange(6.0).mul(steps).view(2, 3).t(),
        "one": shared,
        "other": shared,
        "parameter": torch.nn.Parameter(torch.full((2,), float(steps))),
        "text": "train" * steps,
        "bytes": bytes([steps]),
        "array": np.arange(3) * steps,
        "none": None,
        "pair": Pair(steps, [steps]),
        "mode": Mode.TRAIN,
        "set": {steps},
        "range": range(steps),
        "ordered": collections.OrderedDict(b=steps, a=torch.ones(1) * steps),
        "nested": {"list": [torch.ones(2) * steps, {"deep": (steps, torch.zeros(1))}]},
        "function": len,
    }


class WithoutClosure(torch.optim.Optimizer):
    """`step` takes nothing."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.5})

    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.sub_(parameter.grad, alpha=group["lr"])


class Around(torch.optim.Optimizer):
    """Has groups and state of another one, as properties; `__init__` does not call its parent's."""

    def __init__(self, base: torch.optim.Optimizer, *, rounds: int) -> None:
        self.base = base
        self.rounds = rounds

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.base.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.base.state

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        return self.base.defaults

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self.base, "rounds": self.rounds}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def state_dict(self) -> dict[str, Any]:
        return {"base": self.base.state_dict(), "rounds": self.rounds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.base.load_state_dict(state_dict["base"])
        self.rounds = state_dict["rounds"]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.base.add_param_group(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        return self.base.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)


class Slotted(torch.optim.SGD):
    """Keeps something beside its dictionary."""

    __slots__ = ("__private", "factor", "unset")

    def __init__(self, parameters: Iterable[torch.Tensor], factor: float) -> None:
        super().__init__(parameters, lr=0.5)
        self.factor = factor
        self.__private = factor

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        assert self.factor == self.__private
        return super().step(closure)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "factors": (self.factor, self.__private)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "factors" in state:
            self.factor, self.__private = state.pop("factors")
        super().__setstate__(state)


class Bare:
    """No subclass of torch's; as much of an optimizer as it takes. All of it is in slots."""

    __slots__ = ("param_groups", "state")

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self.param_groups = [{"params": list(parameters), "lr": 0.5}]
        self.state: dict[Any, Any] = {}

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.sub_(parameter.grad, alpha=self.param_groups[0]["lr"])

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"lr": self.param_groups[0]["lr"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.param_groups = [{**self.param_groups[0], **state_dict}]


class HasOp(torch.optim.SGD):
    """Has an attribute of its own with a name that a wrapper would show."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, lr=0.5)
        self.op = "mine"


#: By name: makes one for parameters.
MAKERS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.5),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.5)),
    "rich": lambda parameters: Rich(parameters, lr=0.5),
    "without closure": WithoutClosure,
    "around": lambda parameters: Around(torch.optim.Adam(parameters, lr=0.5), rounds=3),
    "slotted": lambda parameters: Slotted(parameters, factor=2.0),
    "bare": Bare,
    "has op": HasOp,
}
