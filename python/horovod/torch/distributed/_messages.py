"""send and recv: messages of the progress engine, matched by sender, receiver and tag."""

from __future__ import annotations

import functools

import torch

from horovod.common._extension import core
from horovod.torch._submission import start
from horovod.torch.distributed import _memory
from horovod.torch.distributed._errors import as_of_torch
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._negotiated import LABEL, Submitted
from horovod.torch.distributed._work import All, Pending


class Messages:
    """Those of one rank of a process group, in which ranks count. Messages of one sender, receiver
    and tag are received in the order in which they were sent.

    In the timeline and the stall report they are torch.<group>.message.<sender>-<receiver>.<tag>,
    with global ranks.
    """

    def __init__(self, group: str, rank: int, meetings: Meetings) -> None:
        """`group`: its name, the same on all of its ranks. `meetings`: for its global ranks and its
        timeout."""
        self._group = group
        self._rank = rank
        self._ranks = meetings.ranks
        self._meetings = meetings

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return self._start(self._rank, to, tag, _memory.movable(tensor))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        flat = _memory.movable(tensor)
        received = self._start(source, self._rank, tag, flat)
        return All([received], functools.partial(_memory.restore, flat, tensor))

    def _start(self, sender: int, receiver: int, tag: int, flat: torch.Tensor) -> Pending:
        peer = receiver if sender == self._rank else sender
        if not 0 <= peer < len(self._ranks) or peer == self._rank:
            raise ValueError(
                f"rank {self._rank} cannot exchange messages with rank {peer} of a group of "
                f"{len(self._ranks)}"
            )
        ends = self._ranks[sender], self._ranks[receiver]
        stream = f"{self._group}.message.{ends[0]}-{ends[1]}"
        with as_of_torch():
            handle = start(
                core.MESSAGE,
                f"{LABEL}.{stream}",
                str(tag),
                [flat],
                [flat],
                form=list,
                root=ends[0],
                receiver=ends[1],
                timeout=self._meetings.seconds(),
            )
        return Submitted(handle, f"{stream}.{tag}", None)
