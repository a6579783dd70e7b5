"""What a worker that joins a running job does before the other ranks wait for it."""

from __future__ import annotations

import contextlib
import importlib

from horovod.common import elastic_job


def import_what_training_needs() -> None:
    """In a worker that has no place yet, imports what the first optimizer of torch would import.

    That takes seconds. `init` announces the worker, and from then on the other ranks wait for it.
    """
    if elastic_job.is_elastic() and elastic_job.generation() < 0:
        with contextlib.suppress(ImportError):
            importlib.import_module("torch._dynamo")
