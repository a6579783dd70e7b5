"""How the test cases of a suite are counted. A suite that does not build, crashes, hangs or has no
tests counts as one additional failure."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devtool.paths import BUILD, ROOT
from devtool.process import Ended, say, tail

RESULTS = BUILD / "results"


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    core_seconds: float = 0.0  #: used by the programs, as far as known
    failures: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)  #: why cases were skipped

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.core_seconds += other.core_seconds
        self.failures += other.failures
        self.reasons += other.reasons

    def fail(self, what: str) -> None:
        self.failed += 1
        self.failures.append(what)


def count_gtest(report: Path) -> Count:
    """Counts the cases of a GoogleTest JSON report."""
    count = Count()
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                count.fail(f"{suite['name']}.{case['name']}")
            elif case.get("result") == "SKIPPED":
                count.skipped += 1
            elif case.get("status") == "RUN":
                count.passed += 1
    return count


def count_junit(report: Path) -> Count:
    """Counts the cases of pytest's XML report."""
    count = Count()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.fail(f"{case.get('classname')}::{case.get('name')}")
        elif (skipped := case.find("skipped")) is not None:
            count.skipped += 1
            count.reasons[skipped.get("message", "no reason given").splitlines()[0]] += 1
        else:
            count.passed += 1
    return count


def counted(name: str, ended: Ended, report: Path, read: Callable[[Path], Count]) -> Count:
    """Counts the cases of one program, and a failure if it did not end by itself."""
    count = read(report) if report.is_file() else Count()
    count.core_seconds = ended.core_seconds
    if ended.timed_out:
        count.fail(f"{name}: ended by the watchdog")
    elif ended.code != 0 and count.failed == 0:
        count.fail(f"{name}: exited with code {ended.code}")
    elif count.passed + count.failed == 0:
        count.fail(f"{name}: has no tests")
    if count.failed:
        say(tail(ended.log, 60))
        say(f"  complete output: {ended.log.relative_to(ROOT)}")
    return count


def fresh_report(name: str) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / name
    report.unlink(missing_ok=True)
    return report
