"""The stack of the main thread, for horovodrun --dump."""

from __future__ import annotations

import faulthandler

from horovod.common._extension import core


def prepare() -> None:
    """Lets a signal write the stack of the main thread, also while C code holds the GIL.

    Other threads are left out: only a thread itself can read its stack safely at any time.
    """
    signal, descriptor = core.prepare_dump()
    if signal == 0:
        return
    faulthandler.register(signal, file=descriptor, all_threads=False, chain=False)
    core.take_stack_handler(signal, descriptor)
