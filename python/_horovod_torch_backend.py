"""Makes the backend "hvd" of torch.distributed known.

`register` is the entry point of the group `torch.backends`, which torch calls at the end of `import
torch`. This module imports nothing of the package, and is not in it: an error here, or a folder
`horovod` that Python finds first, must not make `import torch` fail. The package is imported when a
script creates its first process group.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

NAME = "hvd"


class _Asked:
    """The attribute `Backend.HVD`, which torch reads when a script names the backend. Until then
    torch must have no plugin: it gives "cpu:gloo" a default backend only if there is none."""

    def __get__(self, instance: Any, backend: Any) -> str:
        delattr(backend, NAME.upper())  # torch before 2.7 registers no backend that it knows
        backend.backend_list.remove(NAME)
        backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
        return NAME


def register() -> None:
    """Makes `torch.distributed.init_process_group("hvd")` work. Does nothing if it does already, or
    if this torch was built without torch.distributed."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available():
            return
        backend = distributed.Backend
        if NAME not in backend.backend_list:
            setattr(backend, NAME.upper(), _Asked())
            backend.backend_list.append(NAME)
    except Exception as error:
        warnings.warn(f"the backend hvd of torch.distributed is missing: {error!r}", stacklevel=2)


def _create(options: Any, _backend_options: Any = None) -> Any:
    return importlib.import_module("horovod.torch.distributed").create(options)
