"""`horovodrun --doctor`, and `python -m horovod.doctor`: checks hosts and prints one report."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horovod.doctor import examine, gpus, host, hosts, wire
from horovod.doctor.collect import collect
from horovod.doctor.facts import Facts, from_json
from horovod.doctor.finding import Block, Finding, count, merged, ok, problem, report
from horovod.runner import _program

#: More than the slowest host needs, so only a host that hangs reaches it.
_SECONDS = 300
#: Time for ranks to end by themselves after one has failed.
_GRACE_SECONDS = 60
#: With more hosts than this, hosts with the same findings share one block.
_MOST_BLOCKS = 4
#: Variables that write files, or that choose another launcher.
_NOT_FOR_US = ("HOROVOD_TIMELINE", "HOROVOD_AUTOTUNE_LOG", "HOROVOD_CONTROLLER")


@dataclass
class Listed:
    name: str
    slots: int
    here: bool


@dataclass
class Outcome:
    """The result of a job with one rank per host."""

    exit_code: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)  #: start-up state per host
    written: list[str] = field(default_factory=list)  #: standard output per rank
    complaints: list[str] = field(default_factory=list)  #: standard error per rank
    words: list[str] = field(default_factory=list)  #: the launcher's messages


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if sys.stderr.isatty():
        print("checking; loading the frameworks takes a few seconds", file=sys.stderr)
    try:
        blocks = _Examination(options).blocks()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if not _print(_text(blocks, options)) or count(blocks, "problem") else 0


def _text(blocks: list[Block], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps([dataclasses.asdict(block) for block in blocks], indent=1)
    shown = blocks
    if not options.verbose and len(options.host) > _MOST_BLOCKS:
        shown = [*merged(blocks[: len(options.host)]), *blocks[len(options.host) :]]
    return "\n".join(report(shown, options.verbose))


def _print(text: str) -> bool:
    """Returns False, after reporting it, if the text cannot be written. A closed pipe is not an
    error."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Python would write the remaining buffer again at exit, with a traceback.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return True
        print(f"horovodrun: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return False
    return True


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.doctor",
        description="Checks this host, or all hosts given, and prints problems and remedies.",
    )
    parser.add_argument("--host", action="append", metavar="NAME=SLOTS", default=[])
    parser.add_argument("--here", action="append", metavar="NAME", default=[],
                        help="which of the hosts is this machine")  # fmt: skip
    parser.add_argument("--program", help="the horovodrun that starts the jobs of the doctor")
    parser.add_argument("--ssh-port")
    parser.add_argument("--ssh-identity-file")
    parser.add_argument("--network-interfaces")
    parser.add_argument("--frameworks", help="load only these of the installed frameworks: A,B")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--verbose", action="store_true", help="also print one line per check that passed"
    )
    options = parser.parse_args(arguments)
    listed = []
    for word in options.host:
        name, _, slots = word.rpartition("=")
        listed.append(Listed(name, int(slots), name in options.here))
    options.host = listed or [Listed("localhost", 0, True)]
    return options


class _Examination:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._hosts: list[Listed] = options.host
        self._found: dict[str, list[Finding]] = {}  # for hosts that could not be checked
        self._facts: dict[str, Facts] = {}

    def blocks(self) -> list[Block]:
        self._examine(self._hosts)
        told = {variable for name in self._facts for variable in self._strange(name)}
        blocks = []
        for listed in self._hosts:
            found = list(self._found.get(listed.name, []))
            facts = self._facts.get(listed.name)
            if facts is not None:
                # All hosts get this shell's environment: unknown variables in it are reported once.
                facts.strange_variables = sorted(told)
                told = set()
                found += host.findings(facts)
            rows = gpus.table(facts) if facts is not None else []
            blocks.append(Block(_title(listed, facts), found, rows))
        if not self._facts:
            blocks.append(Block("this host", host.findings(self._of_this_host(0))))
        if len(self._facts) > 1:
            blocks.append(self._between())
        return blocks

    def _strange(self, name: str) -> list[tuple[str, str]]:
        return self._facts[name].strange_variables

    def _of_this_host(self, slots: int) -> Facts:
        ranks = sum(one.slots for one in self._hosts)
        return collect(slots, ranks, self._only())

    def _only(self) -> list[str] | None:
        names: str | None = self._options.frameworks
        return None if names is None else [name for name in names.split(",") if name]

    def _examine(self, listed: list[Listed]) -> None:
        """Reports hosts that are not ready, and checks the other hosts without them."""
        while listed:
            words = ["--slots", ",".join(str(one.slots) for one in listed)]
            if self._options.frameworks is not None:
                words += ["--frameworks", self._options.frameworks]
            outcome = self._job(listed, "horovod.doctor.examine", words)
            missing = [row for row in outcome.rows if not row["ready"] and row["problem"]]
            if not missing:
                self._take(listed, outcome)
                return self._take_ways_back(outcome.rows)
            for row in missing:
                self._found[row["host"]] = [_not_ready(row)]
            listed = [one for one in listed if one.name not in self._found]

    def _take(self, listed: list[Listed], outcome: Outcome) -> None:
        for rank, one in enumerate(listed):
            text = outcome.written[rank] if rank < len(outcome.written) else ""
            lines = [line for line in text.splitlines() if line.startswith(examine.MARK)]
            try:
                self._facts[one.name] = from_json(lines[-1].removeprefix(examine.MARK))
                continue
            except (IndexError, ValueError, TypeError, KeyError):
                self._found[one.name] = [_not_told(rank, outcome)]
            if one.here:
                self._facts[one.name] = self._of_this_host(one.slots)

    def _take_ways_back(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            if row["reached_at"]:
                way = f"ssh; connects back through {row['interface']} to {row['reached_at']}"
                self._found.setdefault(row["host"], []).append(ok(way))

    def _between(self) -> Block:
        block = Block("between hosts", hosts.compare(self._facts))
        able = [one for one in self._hosts if one.name in self._facts]
        able = [one for one in able if not self._facts[one.name].native_problem]
        if len(able) < 2:
            return block
        outcome = self._job(able, "horovod.doctor.wire", [])
        told = [one for text in outcome.written for one in wire.told(text)]
        network = hosts.Network({one.name: self._facts[one.name] for one in able}, told)
        if outcome.exit_code != 0:
            block.findings.append(_not_measured(outcome))
        block.findings += network.findings()
        block.table = network.table(self._options.verbose)
        return block

    def _job(self, listed: Sequence[Listed], module: str, words: Sequence[str]) -> Outcome:
        """Runs the module on one rank per host."""
        options = self._options
        flags = ["--gloo", "--caller", str(os.getpid()), "--grace-seconds", str(_GRACE_SECONDS)]
        flags += ["-np", str(len(listed))]
        # Passed even if this is the only host: without -H, a batch system's hosts would be used.
        flags += ["-H", ",".join(f"{_bracketed(one.name)}:1" for one in listed)]
        for name in ("ssh_port", "ssh_identity_file", "network_interfaces"):
            value = getattr(options, name)
            flags += [f"--{name.replace('_', '-')}", value] if value else []
        with tempfile.TemporaryDirectory(prefix="horovod-doctor-") as folder:
            flags += ["--output-filename", f"{folder}/out", "--tell-start", f"{folder}/start"]
            program = options.program or _program.find()
            command = [program, *flags, sys.executable, "-m", module, *words]
            return _ended(command, Path(folder))


def _ended(command: Sequence[str], folder: Path) -> Outcome:
    environment = {name: text for name, text in os.environ.items() if name not in _NOT_FOR_US}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        _, said = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, said = process.communicate()
        said += f"\nhorovodrun: the check did not end within {_SECONDS} s".encode()
    except KeyboardInterrupt:
        # horovodrun was interrupted too. It writes to the folder until its ranks have ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=2 * _GRACE_SECONDS)
        raise
    lines = said.decode(errors="replace").splitlines()
    mark = "horovodrun: "
    outcome = Outcome(process.returncode)
    outcome.words = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    if (folder / "start").exists():
        outcome.rows = json.loads((folder / "start").read_text(errors="replace") or "[]")
    ranks = sorted(folder.glob("out/rank.*"), key=lambda path: int(path.name.partition(".")[2]))
    for rank in ranks:
        outcome.written.append((rank / "stdout").read_text(errors="replace"))
        outcome.complaints.append((rank / "stderr").read_text(errors="replace"))
    return outcome


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _title(listed: Listed, facts: Facts | None) -> str:
    own = facts.hostname if facts else ""
    title = own if own and listed.name == "localhost" else listed.name
    if own and own != title:
        title += f" ({own})"
    if listed.slots:
        title += f", {listed.slots} rank{'' if listed.slots == 1 else 's'}"
    return title


_WHY = {
    "resolve": "this machine cannot resolve the host's name",
    "ssh": "no job can start there: horovodrun reaches other hosts by ssh without prompts",
    "agent": "no job can start there: ssh works, but not horovodrun on that host",
    "program": "no job can start there: the same programs must be at the same paths",
    "connect back": "no job can start there: its ranks could not connect to ranks on other hosts",
}


def _not_ready(row: dict[str, Any]) -> Finding:
    step = str(row["step"])
    said = str(row["problem"]).removeprefix("ssh: ")  # ssh prefixes its messages with its name
    return problem(f"{step}: {said}", _WHY.get(step, ""), *row["advice"])


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _not_told(rank: int, outcome: Outcome) -> Finding:
    """The finding if a rank ended before it reported its facts, or no rank was started."""
    if not outcome.written and outcome.words:
        return problem(
            f"horovodrun starts no job: {outcome.words[0]}",
            "no job starts from this shell",
            "correct or unset what the message names",
        )
    said = _last(outcome.complaints[rank]) if rank < len(outcome.complaints) else ""
    if not said:
        said = outcome.words[0] if outcome.words else f"it ended with code {outcome.exit_code}"
    return problem(
        f"the check could not run: {said}",
        "a script that imports Horovod would fail there too",
        f"{sys.executable} -m pip install --no-cache-dir --force-reinstall horovod",
    )


def _not_measured(outcome: Outcome) -> Finding:
    said = [line for line in map(_last, outcome.complaints) if line] or outcome.words
    return problem(
        "the ranks could not connect to each other: " + (said[0] if said else "no reason given"),
        "a job on these hosts would fail in the same way",
        "allow TCP on all ports between the hosts of a job, or name a network that they share: "
        "horovodrun --network-interfaces NAME ...",
    )
