"""The wheels on every Python of this machine that they are for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from systems import Environment, empty_environment, installation, wheel_for

from devtool.setup import TOOLS
from devtool.wheel import Version, interpreters

OLDEST = (3, 10)
PYTHONS = {version: path for version, path in sorted(interpreters().items()) if version >= OLDEST}
#: The oldest supported frameworks with what they need. They have wheels for this Python.
OLDEST_FRAMEWORKS = {"torch": "oldest", "tensorflow": "tensorflow-2.15"}
OF_OLDEST_FRAMEWORKS = (3, 11)
DOWNLOAD_SECONDS = 1200
by_name = {"ids": lambda version: "{}.{}".format(*version)}


@pytest.fixture
def environment(version: Version, tmp_path: Path) -> Iterator[Environment]:
    """Is removed: pytest keeps folders of several runs, and torch with its libraries has 5 GiB."""
    made = empty_environment(PYTHONS[version], tmp_path / "environment")
    yield made
    shutil.rmtree(made.folder)


def test_there_is_a_python_for_every_wheel() -> None:
    assert {(3, 10), (3, 11)} <= set(PYTHONS)
    assert max(PYTHONS) > (3, 12), "the stable ABI is for versions after the one it was built with"


@pytest.mark.parametrize("version", PYTHONS, **by_name)
def test_it_runs_without_a_compiler_and_leaves_nothing(
    version: Version, environment: Environment
) -> None:
    environment.pip("install", "cloudpickle")
    before = environment.files()
    said = environment.pip(*installation())
    assert wheel_for(version).name in said, said
    environment.pip("check")
    assert environment.job("sum_of_ranks.py").count("sums are right") == 2
    shown = environment.run("horovodrun", "--check-build")
    assert "[ ] PyTorch" in shown and "[X] MPI" in shown, shown
    assert "Python {}.{}".format(*version) in environment.run("horovodrun", "--doctor")
    environment.pip("uninstall", "--yes", "horovod")
    assert environment.files() == before


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS, **by_name)
def test_torch_trains(version: Version, environment: Environment) -> None:
    environment.pip("install", f"{wheel_for(version)}[torch]", seconds=DOWNLOAD_SECONDS)
    environment.pip("check")
    assert environment.job("one_step_torch.py").count("trains") == 2


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS, **by_name)
def test_tensorflow_trains(version: Version, environment: Environment) -> None:
    environment.pip("install", f"{wheel_for(version)}[tensorflow]", seconds=DOWNLOAD_SECONDS)
    environment.pip("check")
    assert environment.job("one_step_tensorflow.py").count("trains") == 2


@pytest.mark.slow
@pytest.mark.parametrize("version", [OF_OLDEST_FRAMEWORKS], **by_name)
@pytest.mark.parametrize("framework", OLDEST_FRAMEWORKS)
def test_the_oldest_frameworks_train(
    framework: str, version: Version, environment: Environment
) -> None:
    requirements = str(TOOLS / f"requirements-{OLDEST_FRAMEWORKS[framework]}.txt")
    wheel = str(wheel_for(version))
    environment.pip("install", "-r", requirements, wheel, seconds=DOWNLOAD_SECONDS)
    environment.pip("check")
    assert environment.job(f"one_step_{framework}.py").count("trains") == 2
