"""What is installed is found without importing it."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from horovod.common import util


def test_a_framework_that_the_build_left_out_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ModuleSpec("any", None, origin=str(tmp_path / "_core.so"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert util.extension_available("torch")
    assert not util.extension_available("tensorflow", verbose=True)
    assert "(Horovod was built without tensorflow)" in capsys.readouterr().out
    (tmp_path / "libhorovod_tensorflow.so").touch()
    assert util.extension_available("tensorflow")
