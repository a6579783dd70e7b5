"""A notebook on one host, and ranks of it on others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, address, address_v6, hosts

from devtool.paths import ROOT

pytest.importorskip("horovod._core")
pytest.importorskip("nbclient", reason="nbclient is not installed")

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager, KernelManager
from kernels import Notebook, on_host

SCALING = ROOT / "examples" / "notebooks" / "scaling.ipynb"
COUNT = 2  #: hosts


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path, KernelManager(**on_host(cluster, tmp_path / "kernels")))
    yield notebook
    notebook.close()


def test_cells_run_on_other_hosts(notebook: Notebook) -> None:
    started = notebook.run(f"%hvd start -np 3 -H {hosts(1, 2)}")
    assert "3 ranks are running" in started.text, started.error
    found = notebook.run(
        "%%hvd\nimport socket, torch\nimport horovod.torch as hvd\nhvd.init()\n"
        "total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()\n"
        "socket.gethostname(), total"
    )
    expected = ["[0] ('node1', 6.0)", "[1] ('node2', 6.0)", "[2] ('node2', 6.0)"]
    assert found.text.splitlines() == expected, found.error
    status = notebook.run("%hvd status").text
    assert [status.count(f" on {address(host)}\n") for host in (1, 2)] == [1, 2], status
    assert not notebook.run("%hvd stop").error


def test_the_notebook_about_scaling_goes_on_to_several_hosts(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its first part and its last; what is between them needs no other hosts."""
    notebook = nbformat.read(SCALING, as_version=4)
    (between,) = [
        index
        for index, cell in enumerate(notebook.cells)
        if cell.source.startswith("## Interactive ranks")
    ]
    notebook.cells[between:-1] = []
    (parameters,) = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    listed = f"{address(1)}:2,[{address_v6(2)}]:2"
    parameters.source = f"processes = [1]\nimages = 400\nepochs = 1\nhosts = {listed!r}"
    manager = AsyncKernelManager(**on_host(cluster, tmp_path / "kernels"))
    resources = {"metadata": {"path": str(SCALING.parent)}}
    try:
        nbclient.NotebookClient(notebook, manager, timeout=240, resources=resources).execute()
    finally:
        asyncio.run(manager.shutdown_kernel(now=True))
    last = notebook.cells[-1].outputs
    printed = "".join(output.get("text", "") for output in last)
    assert "processes: 4 on 2 machines, " in printed
    assert any("image/png" in output.get("data", {}) for output in last)
