from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import cluster as cluster
from cluster import network as network
from launcher import Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()
