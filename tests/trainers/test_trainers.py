"""Trainers train over the backend "hvd", and by the strategy for Lightning, as over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_jobs import Job, start_job

SCRIPT = Path(__file__).parent / "training.py"
SECONDS = 300
ENVIRONMENT = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}  # one adds a process set


def trained(trainer: str, backend: str, folder: Path) -> Job:
    folder.mkdir()
    environment = dict(ENVIRONMENT)
    if trainer.endswith("unchanged") and backend == "hvd":
        environment["HOROVOD_REPLACE_GLOO"] = "1"
    job = start_job(2, SCRIPT, [trainer, backend], folder, environment, SECONDS)
    assert job.returncode == 0, job.output
    return job


@pytest.mark.parametrize(
    "trainer",
    [
        "lightning",
        "lightning-by-name",
        "lightning-in-parts",
        "lightning-unchanged",
        "accelerate",
        "accelerate-unchanged",
        "transformers",
        "transformers-unchanged",
    ],
)
def test_a_trainer_ends_with_equal_parameters_and_the_loss_of_gloo(
    trainer: str, tmp_path: Path
) -> None:
    ours = trained(trainer, "hvd", tmp_path / "hvd")
    ((loss_0, first),), ((loss_1, second),) = ours.told
    assert first == second
    gloo = trained(trainer, "gloo", tmp_path / "gloo")
    ((loss_of_gloo_0, parameters),), ((loss_of_gloo_1, _),) = gloo.told
    assert [loss_0, loss_1] == pytest.approx([loss_of_gloo_0, loss_of_gloo_1], rel=1e-5)
    assert first == pytest.approx(parameters, rel=1e-5, abs=1e-6)
    assert len(set(first)) > 1


def test_lightning_takes_options_of_the_optimizer(tmp_path: Path) -> None:
    ours = trained("lightning-with-options", "hvd", tmp_path / "hvd")
    ((_, first),), ((_, second),) = ours.told
    assert first == second
    gloo = trained("lightning-with-options", "gloo", tmp_path / "gloo")
    (((_, parameters),), _) = gloo.told
    assert first == pytest.approx(parameters, rel=1e-2, abs=1e-3)
    adasum = trained("lightning-adasum", "hvd", tmp_path / "adasum")
    ((_, combined),), ((_, again),) = adasum.told
    assert combined == again
    assert combined != pytest.approx(parameters, rel=1e-3)
    in_sets = trained("lightning-in-sets", "hvd", tmp_path / "sets")
    ((_, first),), ((_, second),) = in_sets.told
    assert first != second
