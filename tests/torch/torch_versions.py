"""What older versions of torch do not have, and marks for tests that need it."""

from __future__ import annotations

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def has_torch(wanted: str) -> bool:
    """Returns whether this is `wanted`, such as "2.4", or later."""
    return tuple(map(int, wanted.split("."))) <= VERSION


def needs_torch(wanted: str, what: str) -> pytest.MarkDecorator:
    """Skips a test of `what` with an older torch. Above `on_ranks`."""
    return pytest.mark.skipif(not has_torch(wanted), reason=f"{what} needs torch {wanted}")


#: Mixed precision on CPUs scales the loss from then on.
SCALES_ON_CPUS = "2.3"
