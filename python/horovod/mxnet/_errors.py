"""Errors of operations: MXNet's own, which users of MXNet catch, and those of Horovod as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mxnet import base

from horovod.common import exceptions


def _without_type(text: Any, name: str) -> str:
    """MXNet passes the text with the type that it was told."""
    return str(text).removeprefix(f"{name}: ")


class HorovodInternalError(base.MXNetError, exceptions.HorovodInternalError):
    """An operation failed because a rank was lost or the job has ended."""

    def __init__(self, text: Any = "") -> None:
        super().__init__(_without_type(text, "HorovodInternalError"))


class HorovodMismatchError(HorovodInternalError, exceptions.HorovodMismatchError):
    """Ranks disagree about one operation. The job continues, and the name can be used again."""

    def __init__(self, text: Any = "") -> None:
        super().__init__(_without_type(text, "HorovodMismatchError"))


base.register_error(HorovodInternalError)
base.register_error(HorovodMismatchError)


@contextlib.contextmanager
def as_mxnet_errors() -> Iterator[None]:
    """Errors of blocking operations are of the same types as those that MXNet's engine raises."""
    try:
        yield
    except exceptions.HorovodMismatchError as error:
        raise HorovodMismatchError(error) from error
    except exceptions.HorovodInternalError as error:
        raise HorovodInternalError(error) from error
