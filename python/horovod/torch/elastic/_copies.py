"""Copies of a `state_dict` that reuse the memory of an earlier copy.

New memory for large tensors costs more than the copy: the kernel zeroes it page by page.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch

from horovod.torch._optimizer_state import fits


class Copying:
    """Copies one structure of dicts, lists, tensors and other values."""

    def __init__(self) -> None:
        self._memo: dict[int, Any] = {}  # what deepcopy has copied, so that it stays one object
        self._copies: dict[int, tuple[Any, torch.Tensor]] = {}  # keeps the source, for its id
        self._used: set[int] = set()

    @torch.no_grad()
    def copied(self, value: Any, into: Any) -> Any:
        """Returns a deep copy of `value`. Tensors of `into`, an earlier copy that is not needed any
        more, take the values of those in the same place if they fit."""
        if type(value) is torch.Tensor:
            if id(value) not in self._copies:
                self._copies[id(value)] = value, self._copied_tensor(value, into)
            return self._copies[id(value)][1]
        if isinstance(value, dict):
            former = into if isinstance(into, dict) else {}
            made = copy.copy(value)  # with the attributes of the dict, such as _metadata of torch
            for key, entry in value.items():
                made[key] = self.copied(entry, former.get(key))
            return made
        if type(value) is list:
            places = into if type(into) is list else ()
            return [
                self.copied(*pair) for pair in itertools.zip_longest(value, places[: len(value)])
            ]
        return copy.deepcopy(value, self._memo)

    def _copied_tensor(self, value: torch.Tensor, into: Any) -> Any:
        is_free = isinstance(into, torch.Tensor) and id(into) not in self._used
        if is_free and fits(into, value):
            self._used.add(id(into))
            into.copy_(value)
            return into
        return copy.deepcopy(value, self._memo)
