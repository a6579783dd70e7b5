"""torch's own tests of process groups pass over the backend "hvd". What is left out or skipped has
a reason that is listed here or in tools/torch_suite.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torch_suite

RANKS = 4
#: As docs/torch_distributed.md says, of torch 2.13.
PASSED = 111
LEFT_OUT = 22
#: Why tests are skipped, as they say: they need GPUs or nccl, more ranks or torchvision, or torch
#: has turned them off.
REASONS = (
    r"CUDA",
    r"only nccl|nccl .*only",
    r"Skipped due to small world size",
    r"no torchvision",
    r"flak|Test is failing|^https://github\.com/pytorch/pytorch/issues/\d+$",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs all of them once."""
    file = tmp_path_factory.mktemp("suite") / "outcomes.json"
    command = [sys.executable, torch_suite.__file__, "--np", str(RANKS), "--json", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)
    return json.loads(file.read_text())


def names(found: Any, kind: str) -> list[str]:
    return [name for name, (outcome, _) in found["outcomes"].items() if outcome == kind]


def test_none_fails(found: Any) -> None:
    reasons = found["outcomes"]
    assert {name: reasons[name][1] for name in names(found, torch_suite.FAILED)} == {}


def test_as_many_pass_as_the_documentation_says(found: Any) -> None:
    assert len(names(found, torch_suite.PASSED)) >= PASSED
    text = (Path(torch_suite.__file__).parents[1] / "docs" / "torch_distributed.md").read_text()
    assert f"| passed | {PASSED} |" in text


def test_skipped_ones_say_why(found: Any) -> None:
    skipped = {name: found["outcomes"][name][1] for name in names(found, torch_suite.SKIPPED)}
    known = re.compile("|".join(REASONS), re.IGNORECASE)
    unknown = {name: why for name, why in skipped.items() if not known.search(why)}
    assert unknown == {}


def test_those_left_out_have_a_reason(found: Any) -> None:
    assert len(found["left_out"]) == LEFT_OUT
    assert all(found["left_out"].values())
