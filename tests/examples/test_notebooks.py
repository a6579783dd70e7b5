"""The notebooks run from top to bottom, at a small size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devtool.paths import ROOT

pytest.importorskip("nbclient", reason="nbclient is not installed")

import nbclient
import nbformat

FOLDER = ROOT / "examples" / "notebooks"
SMALL = {"scaling.ipynb": "processes = [1, 2]\nimages = 1_000\nepochs = 1\nhosts = None"}


def stored(name: str) -> Any:
    return nbformat.read(FOLDER / name, as_version=4)


def outputs_of(cell: Any) -> str:
    parts = [output.get("text") or output.get("data", {}) for output in cell.get("outputs", [])]
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)


@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_is_stored_without_outputs(name: str) -> None:
    notebook = stored(name)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_every_notebook_is_run_here() -> None:
    assert {path.name for path in FOLDER.glob("*.ipynb")} == set(SMALL)


def test_the_notebook_about_scaling_measures_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = stored("scaling.ipynb")
    (parameters,) = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    for line in SMALL["scaling.ipynb"].splitlines():
        assert line.split(" =")[0] in parameters.source  # what is set here is there
    parameters.source = SMALL["scaling.ipynb"]
    client = nbclient.NotebookClient(
        notebook, timeout=240, resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()  # raises when a cell does
    shown = "".join(outputs_of(cell) for cell in notebook.cells)
    assert "processes: 1, " in shown and "processes: 2, " in shown
    assert "image/png" in shown
    assert "[1] tensor([1.])" in shown and "<details" in shown
    assert "[0]<stdout>:Image/sec" in shown
    assert "one machine only" in shown
