from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from launcher import Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()


@pytest.fixture
def cluster(network: Cluster) -> Iterator[Cluster]:
    """The hosts of a test's file, on which it may leave nothing, however its job ended."""
    yield network
    network.end_and_look()
