"""Operations that optimizers have sent and not waited for yet, whichever optimizer sent them.

Until such operations end, their names are taken and their gradients are written to. An optimizer
can be dropped or get a successor in that time, so an optimizer waits here for operations of others
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
        self.is_under_way = False  # sent, and nobody has waited for it yet
        self._error: Exception | None = None

    def _finish(self) -> None:
        """Waits for all operations. Raises the first error. Called once."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Whether it is known that all operations have ended, well or not."""
        return False

    def begin(self) -> None:
        """From now on others wait for these operations."""
        self.is_under_way = True
        _under_way.append(self)

    def wait(self) -> None:
        """Waits for all operations. `finish` tells of an error."""
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


#: In the order in which they were sent. Holds gradients alive for as long as they are written to.
_under_way: list[Sent] = []


def wait_for_names(names: Iterable[str], own: Sequence[Sent]) -> None:
    """Waits for operations with one of `names`; `own`: what the caller has sent itself."""
    if len(_under_way) == sum([sent.is_under_way for sent in own]):  # usual, and many
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
