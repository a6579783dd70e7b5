"""The programs of the tests, compiled once against the package that this Python imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from building import build
from launcher import Jobs

from devtool.paths import ROOT
from horovod.common.util import cmake_prefix_path


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    return build(ROOT / "tests" / "interface" / "programs", folder, cmake_prefix_path())


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    return build(ROOT / "examples" / "cpp", folder, cmake_prefix_path())
