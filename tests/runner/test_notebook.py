"""`%load_ext horovod`, in real kernels."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import wait_gone, wait_until

pytest.importorskip("horovod._core")
pytest.importorskip("nbclient", reason="nbclient is not installed")

import nbclient
import nbformat
from kernels import SECONDS, Notebook, Outcome


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """With three ranks, for tests that leave them as they were."""
    notebook = Notebook(tmp_path_factory.mktemp("three"))
    assert "3 ranks are running" in notebook.run("%hvd start -np 3").text
    notebook.run("%%hvd\nimport os\nrank = int(os.environ['HOROVOD_RANK'])")
    yield notebook
    notebook.close()


# ---- what a cell shows -------------------------------------------------------------------------


def test_each_rank_has_a_collapsed_block(three: Notebook) -> None:
    found = three.run("%%hvd\nprint('<b>', rank)\nrank * 2")
    assert not found.error
    assert found.text == "[0] <b> 0\n[0] 0\n[1] <b> 1\n[1] 2\n[2] <b> 2\n[2] 4"
    assert found.html.count("<details style") == 3 and "<details open" not in found.html
    assert "<b>rank 2</b>" in found.html and "&lt;b&gt; 2" in found.html


def test_names_stay_and_a_cell_may_be_for_some_ranks(three: Notebook) -> None:
    assert three.run("%%hvd --rank 0,2\nseen = rank + 10").error == ""
    found = three.run("%%hvd\nglobals().get('seen')")
    assert found.text == "[0] 10\n[2] 12"
    found = three.run("%%hvd --rank 1-2\nrank")
    assert found.text == "[1] 1\n[2] 2"
    assert "<details open" in three.run("%%hvd --rank 1\nrank").html


def test_the_value_of_a_last_expression_is_shown_unless_it_ends_with_a_semicolon(
    three: Notebook,
) -> None:
    assert three.run("%%hvd --rank 0\n'a value'").text == "[0] 'a value'"
    assert three.run("%%hvd --rank 0\n'a value';").text == ""
    assert three.run("%%hvd --rank 0\n_").text == "[0] 'a value'"


def test_all_that_a_rank_writes_is_in_its_block_in_order(three: Notebook) -> None:
    source = "import os, sys\nprint('first')\nos.system('echo child')\nprint('no end', end='')"
    assert three.run(f"%%hvd --rank 1\n{source}").text == "[1] first\n[1] child\n[1] no end"
    many = three.run("%%hvd --rank 2\nfor i in range(20000): print(i)")
    assert many.text.endswith("[2] 19999")
    assert "[2] ... 15000 lines are omitted\n[2] 15000\n" in many.text
    bar = three.run("%%hvd --rank 0\nfor i in range(5): print(f'{i} of 5', end='\\r')\nprint()")
    assert "4 of 5" in bar.text and "3 of 5" not in bar.text


def test_output_is_shown_while_the_cell_runs(three: Notebook) -> None:
    request = three.send(
        "%%hvd --rank 0\nimport os, time\nprint('early')\n"
        "while not os.path.exists('go'): time.sleep(0.01)"
    )
    shown = ""
    while "early" not in shown:
        message = three.client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "display_data":
            shown = message["content"]["data"]["text/html"]
    assert "running · 0 of 1 ranks have ended" in shown
    (three.folder / "go").touch()
    assert three.take(request).updates >= 1


def test_an_exception_is_shown_with_its_rank_and_its_line(three: Notebook) -> None:
    found = three.run("%%hvd\nif rank != 0:\n    1 / 0  # here\n'fine'")
    assert found.error == "RankError: ranks 1, 2: ZeroDivisionError: division by zero"
    assert "[0] 'fine'" in found.text and "[1]     1 / 0  # here" in found.text
    assert "_cells.py" not in found.text
    assert found.html.count("<details open") == 2
    assert three.run("%%hvd\nrank").text == "[0] 0\n[1] 1\n[2] 2"
    assert "SyntaxError" in three.run("%%hvd\nif").error


def test_ranks_reduce_together(three: Notebook) -> None:
    three.run("%%hvd\nimport torch\nimport horovod.torch as hvd\nhvd.init()")
    found = three.run("%%hvd\nhvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum).item()")
    assert found.text == "[0] 3.0\n[1] 3.0\n[2] 3.0"
    three.run("%%hvd\nhvd.shutdown()")


def test_what_cells_define_can_be_pickled(three: Notebook) -> None:
    three.run("%%hvd\nimport pickle\nclass Mine: pass\ndef double(x): return 2 * x")
    found = three.run("%%hvd --rank 0\ntype(pickle.loads(pickle.dumps(Mine()))) is Mine")
    assert found.text == "[0] True"


@pytest.mark.parametrize("line", ["--rank 3", "--rank x", "--rank 2-1", "again"])
def test_a_line_that_cannot_be_is_an_error(line: str, three: Notebook) -> None:
    assert "expected --rank with ranks from 0 to 2" in three.run(f"%%hvd {line}\n1").error


def test_status_names_the_ranks_and_a_second_start_is_refused(three: Notebook) -> None:
    assert "3 ranks" in three.run("%hvd status").text and len(three.pids()) == 3
    assert "ranks are running already" in three.run("%hvd start -np 2").error
    assert "%hvd start -np N" in three.run("%hvd what").error


# ---- beginnings and ends -----------------------------------------------------------------------


def test_ranks_end_when_told_and_begin_anew(notebook: Notebook) -> None:
    assert "no ranks" in notebook.run("%hvd status").text
    assert "no ranks" in notebook.run("%%hvd\n1").error
    assert not notebook.run("%hvd start -np 2").error
    pids = notebook.pids()
    assert not notebook.run("%hvd stop").error
    wait_gone(pids)
    assert "1 ranks are running" in notebook.run("%hvd start -np 1").text
    pids = notebook.pids()
    assert not notebook.run("%unload_ext horovod").error
    wait_gone(pids)


def test_what_cannot_be_started_is_told(notebook: Notebook) -> None:
    assert "-np N is required" in notebook.run("%hvd start").error
    assert "invalid flags of horovodrun" in notebook.run("%hvd start -np 1 --what").error
    assert "1 available" in notebook.run("%hvd start -np 2 -H localhost:1").error


def test_a_rank_that_dies_ends_the_job_and_is_named(notebook: Notebook) -> None:
    notebook.run("%hvd start -np 2")
    pids = notebook.pids()
    found = notebook.run(
        "%%hvd\nimport os, time\nif os.environ['HOROVOD_RANK'] == '1': os.kill(os.getpid(), 9)\n"
        "time.sleep(600)"
    )
    assert "rank 1 was killed by signal 9" in found.error and "%hvd start" in found.error
    wait_gone(pids)
    assert "2 ranks are running" in notebook.run("%hvd start -np 2").text


@pytest.mark.parametrize("end", ["kill", "shutdown", "restart"])
def test_nothing_is_left_when_the_kernel_ends(end: str, notebook: Notebook) -> None:
    notebook.run("%hvd start -np 2")
    pids = notebook.pids()
    assert len(pids) == 2
    if end == "kill":
        notebook.manager.signal_kernel(signal.SIGKILL)
    elif end == "shutdown":
        notebook.manager.shutdown_kernel()
    else:
        notebook.manager.restart_kernel()
    wait_gone(pids)


def test_nothing_is_left_when_the_kernel_is_killed_while_a_cell_runs(
    notebook: Notebook,
) -> None:
    notebook.run("%hvd start -np 2")
    pids = notebook.pids()
    notebook.send("%%hvd\nimport time\nopen(f'{os.getpid()}.on', 'w')\ntime.sleep(600)")
    notebook.manager.signal_kernel(signal.SIGKILL)
    wait_gone(pids)


# ---- interrupts --------------------------------------------------------------------------------


def interrupted(notebook: Notebook, source: str, folder: Path, ranks: int) -> Outcome:
    """Runs a cell, and interrupts the kernel when `ranks` ranks have made a file *.on."""
    request = notebook.send(source)
    wait_until(lambda: len(list(folder.glob("*.on"))) == ranks, "ranks to begin the cell")
    time.sleep(0.2)  # until they sleep or wait
    notebook.manager.interrupt_kernel()
    return notebook.take(request)


def test_an_interrupt_ends_the_cell_and_not_the_ranks(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("%hvd start -np 2")
    pids = notebook.pids()
    notebook.run("%%hvd\nimport os, time\nkept = 5")
    source = "%%hvd\nopen(f'{os.getpid()}.on', 'w').close()\ntime.sleep(600)"
    found = interrupted(notebook, source, tmp_path, 2)
    assert found.error == "CellInterrupted: interrupted; the ranks are still running"
    assert "[1] KeyboardInterrupt" in found.text
    assert notebook.run("%%hvd\nkept").text == "[0] 5\n[1] 5"
    assert notebook.pids() == pids


def test_an_interrupt_ends_operations_that_wait_for_ranks_which_left(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run("%hvd start -np 2")
    notebook.run("%%hvd\nimport os, time, torch\nimport horovod.torch as hvd\nhvd.init()")
    source = (
        "%%hvd\ndef begin(): open(f'{os.getpid()}.on', 'w').close()\n"
        "if hvd.rank() == 0: begin(); time.sleep(600)\n"
        "try: begin(); hvd.allreduce(torch.ones(2), name='w')\n"
        "except KeyboardInterrupt: hvd.barrier()"  # it has come before the wait; so wait now
    )
    found = interrupted(notebook, source, tmp_path, 2)
    assert "call hvd.init() again" in found.error, found.text
    assert "[0] KeyboardInterrupt" in found.text and "[1] Traceback" in found.text
    again = notebook.run("%%hvd\nhvd.init()\nhvd.allreduce(torch.ones(1), name='w').item()")
    assert again.text == "[0] 1.0\n[1] 1.0"


def test_a_second_interrupt_ends_the_ranks(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("%hvd start -np 1")
    pids = notebook.pids()
    request = notebook.send(
        "%%hvd\nimport time\nwhile True:\n    try:\n        open('0.on', 'w').close()\n"
        "        time.sleep(600)\n    except KeyboardInterrupt:\n        open('1.on', 'w').close()"
    )
    wait_until((tmp_path / "0.on").exists, "the cell")
    notebook.manager.interrupt_kernel()
    wait_until((tmp_path / "1.on").exists, "the interrupt")
    notebook.manager.interrupt_kernel()
    assert "the ranks were ended" in notebook.take(request).error
    wait_gone(pids)
    assert "no ranks" in notebook.run("%hvd status").text


# ---- the launcher in a cell --------------------------------------------------------------------


def test_a_horovodrun_line_streams(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "slow.sh").write_text("echo began\nwhile ! [ -e go ]; do sleep 0.05; done\n")
    request = notebook.send("!horovodrun -np 2 sh slow.sh")
    shown = ""
    while shown.count("began") < 2:  # both lines, while the command runs
        message = notebook.client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "stream":
            shown += message["content"]["text"]
    assert "[0]<stdout>:began" in shown and "[1]<stdout>:began" in shown
    (tmp_path / "go").touch()
    notebook.take(request)


def test_run_streams_into_the_cell_and_returns_results(notebook: Notebook) -> None:
    found = notebook.run(
        "import horovod, os\n"
        "def work(x):\n    print('in a cell')\n    return x + int(os.environ['HOROVOD_RANK'])\n"
        "print(horovod.run(work, (40,), num_proc=2))"
    )
    assert "[0]<stdout>:in a cell" in found.text and found.text.endswith("[40, 41]\n")


def test_a_notebook_is_executed_as_a_whole() -> None:
    sources = ["%load_ext horovod", "%hvd start -np 2", "%%hvd\n40 + 2", "%hvd stop"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=SECONDS).execute()
    assert notebook.cells[2].outputs[0].data["text/plain"] == "[0] 42\n[1] 42"
