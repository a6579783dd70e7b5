"""Loads each framework and our adapter for it in an interpreter of its own: one that crashes, hangs
or writes is a finding and nothing else."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import IO

from horovod.doctor.facts import Framework

#: Our adapter of each package; those without one work through another package, or not yet.
ADAPTERS = {
    "torch": "horovod.torch",
    "tensorflow": "horovod.tensorflow",
    "keras": "horovod.keras",
    "tf_keras": "",
    "jax": "",
    "mxnet": "",
}
#: Keras usually loads TensorFlow, which takes longest of all: once is enough.
_TOGETHER = (("torch",), ("tensorflow", "keras"))
#: A first import from a file system that many hosts share takes its time.
SECONDS = 120
_MARK = "horovod-doctor:"
_PROBE = f"""
import importlib, sys
for name in sys.argv[1:]:
    print("{_MARK} loading", name, flush=True)
    module = importlib.import_module(name)
    print("{_MARK} loaded", name, getattr(module, "__version__", ""), flush=True)
"""


@dataclass
class Probe:
    """Some frameworks that one interpreter loads, one after another."""

    frameworks: list[Framework]
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    until: float


def start(only: Sequence[str] | None = None) -> tuple[list[Framework], list[Probe]]:
    """All that are there, and what loads them. `only`: load just these."""
    there = {name: Framework(name, _version(name), ADAPTERS[name]) for name in _installed()}
    probes = []
    for names in _TOGETHER:
        loaded = [there[name] for name in names if name in there]
        loaded = [one for one in loaded if only is None or one.name in only]
        if loaded:
            probes.append(_probe(loaded))
    for one in there.values():
        one.is_loaded = any(one in probe.frameworks for probe in probes)
    return list(there.values()), probes


def wait(probes: Iterable[Probe]) -> None:
    """Fills in what came of loading them. What a failure kept from being tried is tried alone."""
    for probe in probes:
        left = _take(probe)
        if left:
            wait([_probe(left)])


def _installed() -> list[str]:
    found = []
    for name in ADAPTERS:
        try:
            if importlib.util.find_spec(name) is not None:
                found.append(name)
        except (ImportError, ValueError):
            found.append(name)  # there, and broken
    return found


def _version(name: str) -> str:
    """For where it does not load."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _modules(frameworks: Iterable[Framework]) -> list[str]:
    return [module for one in frameworks for module in (one.name, one.adapter)]


def _probe(frameworks: list[Framework]) -> Probe:
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    command = [sys.executable, "-c", _PROBE, *_modules(frameworks)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
    return Probe(frameworks, process, output, errors, time.monotonic() + SECONDS)


def _take(probe: Probe) -> list[Framework]:
    """Returns those that it has not come to."""
    code = _exit_code(probe)
    with probe.output, probe.errors:
        lines, said = _lines(probe.output), _lines(probe.errors)
    told = [line.split()[1:] for line in lines if line.startswith(_MARK)]
    for event, name, *version in told:
        for one in probe.frameworks:
            if event == "loaded" and name == one.name and version:
                one.version = version[0]
    if code == 0:
        return []
    if told and told[-1][:2] == ["loaded", _modules(probe.frameworks)[-1]]:
        _failed_at_exit(probe, code)
        return []
    stopped_at = told[-1][1] if told else probe.frameworks[0].name
    index = next(
        index for index, one in enumerate(probe.frameworks) if stopped_at in (one.name, one.adapter)
    )
    guilty = probe.frameworks[index]
    guilty.failed = stopped_at
    if code is None:
        guilty.is_slow = True
        guilty.problem = f"it had not loaded after {SECONDS} s"
    elif code < 0:
        guilty.problem = f"it was killed by {_signal_text(-code)} while loading"
    else:
        guilty.problem = said[-1] if said else f"it ended with code {code} while loading"
    return probe.frameworks[index + 1 :]


def _failed_at_exit(probe: Probe, code: int | None) -> None:
    """Whose fault it is cannot be told, so the one that was loaded last tells it."""
    last = probe.frameworks[-1]
    last.at_exit = True
    last.failed = ", ".join(_modules(probe.frameworks))
    if code is None:
        last.problem = f"an interpreter had loaded it, and had not ended after {SECONDS} s"
    else:
        how = f"was killed by {_signal_text(-code)}" if code < 0 else f"ended with code {code}"
        last.problem = f"an interpreter had loaded it, and {how} at its end"


def _signal_text(number: int) -> str:
    return f"signal {number} ({signal.strsignal(number) or 'unknown'})"


def _exit_code(probe: Probe) -> int | None:
    """None: its time was up."""
    try:
        return probe.process.wait(max(0, probe.until - time.monotonic()))
    except subprocess.TimeoutExpired:
        probe.process.kill()
        probe.process.wait()
        return None


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
