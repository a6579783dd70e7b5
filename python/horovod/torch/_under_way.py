"""Operations in flight of all optimizers.

Until these operations end, their names are in use and their gradients are written to. An optimizer
may be dropped or replaced in that time. So a new optimizer waits for operations of other optimizers
that have its names or its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

Parameter = torch.Tensor


class Sent:
    """Operations that were sent together, with their full names and their parameters."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parameters: list[Parameter] = []
        self.is_under_way = False  # sent but not finished yet
        self._error: Exception | None = None

    def _finish(self) -> None:
        """Waits for all operations. Raises the first error. Called once."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Returns whether all operations are known to have ended, successfully or not."""
        return False

    def begin(self) -> None:
        """Registers these operations, so that others wait for them."""
        self.is_under_way = True
        _under_way.append(self)

    def wait(self) -> None:
        """Waits for all operations. `finish` raises their errors."""
        if not self.is_under_way:
            return
        self.is_under_way = False
        _under_way.remove(self)
        try:
            self._finish()
        except (RuntimeError, ValueError) as error:
            self._error = error

    def finish(self) -> None:
        """Waits for all operations. Raises their first error."""
        self.wait()
        if self._error is not None:
            raise self._error


#: In the order of submission. Keeps gradients alive while they are written to.
_under_way: list[Sent] = []


def wait_for_names(names: Iterable[str], own: Sequence[Sent]) -> None:
    """Waits for operations with one of `names`; `own`: what the caller has sent itself."""
    if len(_under_way) == sum([sent.is_under_way for sent in own]):  # the common case
        return
    wanted = set(names)
    for sent in [sent for sent in _under_way if sent not in own]:
        if sent.is_over() or not wanted.isdisjoint(sent.names):
            sent.wait()


def wait_for_parameters(parameters: Iterable[Parameter]) -> None:
    """Waits for operations on gradients of `parameters`."""
    if not _under_way:
        return
    wanted = {id(parameter) for parameter in parameters}
    for sent in list(_under_way):
        if not wanted.isdisjoint(map(id, sent.parameters)):
            sent.wait()
