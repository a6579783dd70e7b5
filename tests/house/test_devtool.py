"""The counting of ./dev test: whatever goes wrong is counted as a failure."""

from __future__ import annotations

import functools
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from devtool import process, setup, suites
from devtool.process import Ended, Failed, run_logged, tail
from devtool.suites import Count, Suite, count_gtest, count_junit, counted, run_suites

GTEST = {
    "testsuites": [
        {
            "name": "Ring",
            "testsuite": [
                {"name": "Turns", "status": "RUN", "result": "COMPLETED"},
                {"name": "Ends", "status": "RUN", "result": "COMPLETED", "failures": [{}]},
                {"name": "Waits", "status": "RUN", "result": "SKIPPED"},
                {"name": "DISABLED_Sleeps", "status": "NOTRUN", "result": "SUPPRESSED"},
            ],
        }
    ]
}
JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="passes"/>
<testcase classname="a" name="fails"><failure/></testcase>
<testcase classname="a" name="breaks"><error/></testcase>
<testcase classname="a" name="skips"><skipped message="no such launcher&#10;see below"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def logs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(suites, "ROOT", tmp_path)


def run(code: str, deadline_s: float = 30) -> Ended:
    return run_logged([sys.executable, "-c", code], "test", deadline_s=deadline_s)


def test_gtest_cases_are_counted(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(GTEST))
    count = count_gtest(tmp_path / "r.json")
    assert (count.passed, count.failed, count.skipped) == (1, 1, 1)
    assert count.failures == ["Ring.Ends"]


def test_pytest_cases_are_counted(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(JUNIT)
    count = count_junit(tmp_path / "r.xml")
    assert (count.passed, count.failed, count.skipped) == (1, 2, 1)
    assert count.reasons == {"no such launcher": 1}


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import os; os.abort()", "ended with -6"),
        ("raise SystemExit(3)", "ended with 3"),
        ("pass", "has no tests"),
    ],
)
def test_a_program_without_a_report_is_one_failure(tmp_path: Path, code: str, what: str) -> None:
    count = counted("core", run(code), tmp_path / "none.json", count_gtest)
    assert (count.passed, count.failed) == (0, 1)
    assert what in count.failures[0]


def test_a_program_that_hangs_is_ended_with_its_children_and_counted(tmp_path: Path) -> None:
    child = "import subprocess as s; s.run(['sleep', '1000'])"
    ended = run(child, deadline_s=0.5)
    assert ended.timed_out
    assert counted("core", ended, tmp_path / "none.json", count_gtest).failed == 1


def test_passed_cases_count_even_when_the_program_fails_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text("<testsuite><testcase name='a'/></testsuite>")
    count = counted("core", run("raise SystemExit(1)"), tmp_path / "r.xml", count_junit)
    assert (count.passed, count.failed) == (1, 1)


def test_a_suite_that_does_not_build_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise Failed("ninja said no")

    monkeypatch.setitem(setup.BUILDS, "broken", broken)
    monkeypatch.setitem(setup.BUILDS, "whole", lambda: "")
    two = functools.partial(Count, passed=2)
    total = run_suites([Suite("a", "", "broken", two), Suite("b", "", "whole", two)])
    assert (total.passed, total.failed) == (2, 1)


def test_an_interrupt_ends_the_build_that_runs_beside_a_suite(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    code = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(1000)"
    ended: list[Ended] = []

    def endless() -> str:
        ended.append(run(code, deadline_s=1000))
        return ""

    def interrupted() -> Count:
        while not started.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setitem(setup.BUILDS, "whole", lambda: "")
    monkeypatch.setitem(setup.BUILDS, "endless", endless)
    with pytest.raises(KeyboardInterrupt):
        run_suites([Suite("a", "", "whole", interrupted), Suite("b", "", "endless", Count)])
    assert [one.code for one in ended] == [-15]


def test_what_was_skipped_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(setup.BUILDS, "whole", lambda: "")
    parts = [Count(passed=1, skipped=2, reasons=Counter({"no mpirun": 2})) for _ in range(2)]
    run_suites([Suite(name, "", "whole", lambda: parts.pop()) for name in "ab"])
    assert "skipped: 4: no mpirun\n" in capsys.readouterr().out


def test_a_step_that_fails_shows_the_end_of_its_log() -> None:
    with pytest.raises(Failed, match="the reason"):
        process.must([sys.executable, "-c", "print('the reason'); raise SystemExit(1)"], "x")


def test_executions_of_a_fuzzer_are_read_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO: x\nstat::number_of_executed_units: 4855\nstat::y: 1\n")
    (tmp_path / "none").write_text("ERROR: it ended early\n")
    assert suites.executions(tmp_path / "log") == 4855
    assert suites.executions(tmp_path / "none") == 0


def test_every_fuzz_target_is_run() -> None:
    sources = (process.ROOT / "tests" / "fuzz").glob("*.cc")
    declared = [re.search(r'^const Target \w+\{"(\w+)"', s.read_text(), re.M) for s in sources]
    assert sorted(found[1] for found in declared if found) == sorted(suites.FUZZ_TARGETS)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\nthree\n")
    assert tail(tmp_path / "log", 2) == "two\nthree"


def test_missing_debian_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list").write_text("# packages\nbash\nno-such-package-here\n")
    monkeypatch.setattr(setup, "PACKAGES", tmp_path / "list")
    assert setup.missing_packages() == ["no-such-package-here"]
