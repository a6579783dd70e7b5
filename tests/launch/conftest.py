from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import COUNT, Cluster, cluster_or_skip
from launcher import Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()


@pytest.fixture(scope="module")
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Of as many hosts as the test's file says by its COUNT."""
    count = getattr(request.module, "COUNT", COUNT)
    cluster = cluster_or_skip(tmp_path_factory.mktemp("cluster"), count)
    yield cluster
    cluster.take_down()


@pytest.fixture
def cluster(network: Cluster) -> Iterator[Cluster]:
    """The hosts of a test's file, on which it may leave nothing, however its job ended."""
    yield network
    network.end_and_look()
