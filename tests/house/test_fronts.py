"""The packages of all frameworks offer the same names for the same things, to type checkers too."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path

from devtool.paths import ROOT, venv_program
from horovod.common import front

PACKAGES = [
    "torch",
    "torch.mpi_ops",
    "tensorflow",
    "tensorflow.mpi_ops",
    "tensorflow.keras",
    "keras",
    "jax",
    "mxnet",
]
#: What a name of each kind is for a type checker: how it is used, and the type of the result.
USES = {
    "rank()": "int",
    "is_initialized()": "bool",
    "nccl_built()": "int",
    "Adasum": "int",
    "global_process_set": "horovod.common.process_sets.ProcessSet",
    "add_process_set([0])": "horovod.common.process_sets.ProcessSet",
    "init(comm=None, process_sets='dynamic')": "None",
}


def checked(script: str, folder: Path) -> str:
    """What mypy says of a user's script."""
    path = folder / "script.py"
    path.write_text(script)
    command = [venv_program("mypy"), "--strict", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def test_every_package_offers_the_common_names_to_type_checkers(tmp_path: Path) -> None:
    names = [f"hvd{at}.{name}" for at in range(len(PACKAGES)) for name in front.__all__]
    uses = [f"reveal_type(hvd{at}.{use})" for at in range(len(PACKAGES)) for use in USES]
    imports = [f"import horovod.{package} as hvd{at}" for at, package in enumerate(PACKAGES)]
    said = checked("\n".join([*imports, f"print({', '.join(names)})", *uses]), tmp_path)
    assert len(names) > 150
    assert "error:" not in said, said
    for kind in set(USES.values()):
        expected = len(PACKAGES) * list(USES.values()).count(kind)
        assert said.count(f'Revealed type is "{kind}"') == expected, said


def test_a_name_that_is_not_there_is_seen(tmp_path: Path) -> None:
    assert "error:" in checked("import horovod.torch as hvd\nprint(hvd.ranks)\n", tmp_path)


def test_every_common_function_is_documented_where_it_is_defined() -> None:
    functions = [name for name in front.__all__ if callable(getattr(front, name))]
    assert [name for name in functions if not inspect.getdoc(getattr(front, name))] == []
    assert len(functions) > 20
