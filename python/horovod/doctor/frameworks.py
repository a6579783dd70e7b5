"""Loads each framework and our adapter for it in a separate interpreter. If that crashes, hangs or
prints, this is reported as a finding."""

from __future__ import annotations

import importlib.util
import re
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

#: Our adapter per package. A package without one works through another package, or is not
#: supported.
ADAPTERS = {
    "torch": "horovod.torch",
    "tensorflow": "horovod.tensorflow",
    "keras": "horovod.keras",
    "tf_keras": "",
    "jax": "horovod.jax",
    "mxnet": "horovod.mxnet",
}
#: Keras usually loads TensorFlow, which takes the longest: load it once for both.
_TOGETHER = (("torch",), ("tensorflow", "keras"), ("jax",), ("mxnet",))
#: A first import from a file system that many hosts share is slow.
SECONDS = 120
_MARK = "horovod-doctor:"
#: Log lines of absl, and of TensorFlow, which begin with the date.
_LOG_LINE = re.compile(r"[IWEF]\d{4} |(INFO|WARNING|ERROR): |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_PROBE = f"""
import importlib, sys
for name in sys.argv[1:]:
    print("{_MARK} loading", name, flush=True)
    module = importlib.import_module(name)
    print("{_MARK} loaded", name, getattr(module, "__version__", ""), flush=True)
"""


@dataclass
class Probe:
    """Frameworks that one interpreter loads, one after another."""

    frameworks: list[Framework]
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    until: float


def start(only: Sequence[str] | None = None) -> tuple[list[Framework], list[Probe]]:
    """Returns all installed frameworks, and the probes that load them. `only`: load only these."""
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
    """Waits and fills in the results. Frameworks after a failed one are loaded by a new probe."""
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
            found.append(name)  # installed, but broken
    return found


def _version(name: str) -> str:
    """The version from the metadata, for a package that does not load."""
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
    """Returns the frameworks that the probe did not reach."""
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
        guilty.problem = f"it did not load within {SECONDS} s"
    elif code < 0:
        guilty.problem = f"it was killed by {_signal_text(-code)} while loading"
    else:
        guilty.problem = (
            _reason(said) or f"the interpreter exited with code {code} while loading it"
        )
    return probe.frameworks[index + 1 :]


def _failed_at_exit(probe: Probe, code: int | None) -> None:
    """Reports the failure for the framework that was loaded last: the cause is unknown."""
    last = probe.frameworks[-1]
    last.at_exit = True
    last.failed = ", ".join(_modules(probe.frameworks))
    if code is None:
        last.problem = f"an interpreter loaded it, but did not end within {SECONDS} s"
    else:
        how = f"was killed by {_signal_text(-code)}" if code < 0 else f"exited with code {code}"
        last.problem = f"an interpreter loaded it, but {how} when it ended"


def _reason(said: Sequence[str]) -> str:
    """Returns the last line that is not a log line: frameworks log until they end."""
    return next((line for line in reversed(said) if not _LOG_LINE.match(line)), "")


def _signal_text(number: int) -> str:
    return f"signal {number} ({signal.strsignal(number) or 'unknown'})"


def _exit_code(probe: Probe) -> int | None:
    """Returns None if the time is up."""
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
