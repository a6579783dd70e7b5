"""The stack of the main thread, for horovodrun --dump."""

from __future__ import annotations

import contextlib
import faulthandler
import os

from horovod.common._extension import core


def prepare_if_launched() -> None:
    """A rank of horovodrun shows where it hangs before it calls init, too.

    Errors in the variables of the process are those of init.
    """
    if "HOROVOD_RANK" in os.environ or "HOROVOD_WORKER" in os.environ:
        with contextlib.suppress(ValueError):
            prepare()


def prepare() -> None:
    """Lets a signal write the stack of the main thread, also while C code holds the GIL.

    Other threads are left out: only a thread itself can read its stack safely at any time.
    """
    signal, descriptor = core.prepare_dump()
    if signal == 0:
        return
    faulthandler.register(signal, file=descriptor, all_threads=False, chain=False)
    core.take_stack_handler(signal, descriptor)
