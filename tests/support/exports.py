"""Symbols that the binaries of the package export and use, installed and in portable wheels."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from devtool.paths import ROOT

HEADER = ROOT / "include" / "horovod" / "horovod.h"
#: What MPI moves tensors by, for each kind of MPI that was there when the package was built.
PLUGINS = {"libhorovod_mpi_openmpi", "libhorovod_mpi_mpich"}
ADAPTERS = {
    "libhorovod_tensorflow": {
        f"hvd_tensorflow_{name}"
        for name in ("choose_streams", "drain", "problem", "use_gpus", "wait_for_gpus")
    },
    "libhorovod_jax": {"hvd_jax_collective", "hvd_jax_drain"},
    "libhorovod_mxnet": {
        "hvd_mxnet_drain",
        "hvd_mxnet_problem",
        "hvd_mxnet_push",
        "hvd_mxnet_wait",
    },
}
BINARIES = {"_core", "libhorovod", *ADAPTERS, "horovodrun"}


def symbols(path: Path, which: str) -> set[str]:
    """`which`: --defined-only or --undefined-only. Without their versions."""
    command = ["nm", "--dynamic", "--format=just-symbols", which, str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.partition("@")[0] for line in listing.splitlines()}


def c_interface() -> set[str]:
    return set(re.findall(r"HVD_API[\w\s*]*?\b(hvd_\w+)\(", HEADER.read_text()))


def wrong(name: str, path: Path) -> set[str]:
    """Returns the symbols that a library shows and should not, or should show and does not. The
    module also shows the exceptions of nanobind, so that modules of others can catch them."""
    shown = symbols(path, "--defined-only")
    if name == "_core":
        return {symbol for symbol in shown if "8nanobind" not in symbol} ^ {"PyInit__core"}
    expected = {"libhorovod": c_interface(), **ADAPTERS}
    return shown ^ expected.get(name, {"hvd_mpi_table"})
