"""Loads the native module once for all bindings; the ImportError says how to fix a failure."""

from __future__ import annotations

import os

try:
    from horovod import _core as core
except ImportError as error:
    raise ImportError(
        f"the native module horovod._core could not be loaded from "
        f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))} ({error}); "
        "reinstall Horovod: pip install --no-cache-dir --force-reinstall horovod"
    ) from error

__all__ = ["core"]
