"""Makes the backend "hvd" of torch.distributed and the strategy "horovod" of Lightning known.

`register` is the entry point of the group `torch.backends`, which torch calls at the end of `import
torch`. This module is not in the package: an error here, or a folder `horovod` that Python finds
first, must not make `import torch` fail. The package is imported when a script creates its first
process group. In ranks of horovodrun a small part of it is imported at once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any, TypeGuard

NAME = "hvd"
STRATEGY = "horovod"

#: A variable: scripts that ask for gloo get this backend. Read once, at `import torch`.
REPLACE_GLOO = "HOROVOD_REPLACE_GLOO"

#: The modules of Lightning, under its two names, that have a registry of strategies.
_REGISTRIES = ("lightning.pytorch.strategies", "pytorch_lightning.strategies")


class _Asked:
    """The attribute `Backend.HVD`, which torch reads when a script names the backend. Until then
    torch must have no plugin: it gives "cpu:gloo" a default backend only if there is none.

    The ranks of horovodrun also meet here, when their first init_process_group reads it."""

    def __init__(self) -> None:
        self._is_registered = self._has_met = False

    def __get__(self, instance: Any, backend: Any) -> str:
        if not self._is_registered:
            self._is_registered = True
            delattr(backend, NAME.upper())  # torch before 2.7 registers no backend that it knows
            backend.backend_list.remove(NAME)
            backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
            setattr(backend, NAME.upper(), self)
        caller = sys._getframe(1).f_back  # of the constructor of Backend
        if not self._has_met and "HOROVOD_RANK" in os.environ and _is_of_torch(caller):
            importlib.import_module("horovod.torch.distributed").await_others(caller.f_locals)
            self._has_met = True
        return NAME


def _is_of_torch(frame: FrameType | None) -> TypeGuard[FrameType]:
    """Whether it is init_process_group, which asks for the backend before it looks for ranks."""
    return (
        frame is not None
        and frame.f_code.co_name == "init_process_group"
        and frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d"
    )


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
            sys.meta_path.insert(0, _Lightning())
            if os.environ.get(REPLACE_GLOO, "").lower() in ("1", "true", "yes", "on"):
                _replace_gloo(distributed)
        _answer_dumps()
    except Exception as error:
        warnings.warn(f"the backend hvd of torch.distributed is missing: {error!r}", stacklevel=2)


def _answer_dumps() -> None:
    """A rank of horovodrun shows where it hangs before it imports the package, too."""
    if "HOROVOD_RANK" not in os.environ and "HOROVOD_WORKER" not in os.environ:
        return
    with contextlib.suppress(Exception):
        found = importlib.util.find_spec("horovod")
        package = os.path.join(os.path.dirname(__file__), "horovod")
        # Not a script that is called horovod.py: it would run twice.
        if found is not None and os.path.dirname(found.origin or "") == package:
            importlib.import_module("horovod.common._stack").prepare_if_launched()


def _create(options: Any, _backend_options: Any = None) -> Any:
    return importlib.import_module("horovod.torch.distributed").create(options)


def _replace_gloo(distributed: Any) -> None:
    """The only function of torch that is replaced, and only if a user asks for it. Torch looks at
    the names of its own backends before those of plugins, so no plugin can take one over."""
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(_instead_of(backend), *args, **kwargs)

    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group


def _instead_of(backend: Any) -> Any:
    """Returns the backend for what a script has asked for. Without a name torch takes gloo on
    machines that have no accelerator."""
    if backend is None:
        return backend if _has_accelerator() else NAME
    return NAME if str(backend).lower() in ("gloo", "cpu:gloo") else backend


def _has_accelerator() -> bool:
    torch: Any = sys.modules["torch"]
    # Before 2.6, torch knows no other ones.
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


class _Lightning(importlib.abc.MetaPathFinder):
    """Adds the strategy when the registry of Lightning is imported. Lightning has entry points for
    callbacks only, and loads them when it has chosen the strategy."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _REGISTRIES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a registry as `loader` does, which the module has afterwards, and adds the strategy."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            add_strategy(module)
        except Exception as error:
            warnings.warn(f"the strategy horovod of Lightning is missing: {error!r}", stacklevel=2)


def add_strategy(registry: ModuleType) -> None:
    """`registry`: a module of Lightning that has a StrategyRegistry. The package is imported when a
    script asks for the strategy."""
    package = registry.__name__.rpartition(".")[0]

    def make(**options: Any) -> Any:
        return importlib.import_module("horovod.torch.lightning").strategy_for(package)(**options)

    registry.StrategyRegistry.register(STRATEGY, make, description="horovod.torch", override=True)
