"""The counting of ./dev test: whatever goes wrong is counted as a failure."""

from __future__ import annotations

import functools
import json
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from devtool import counts, lanes, process, suites
from devtool.counts import Count, count_gtest, count_junit, counted
from devtool.lanes import run_suites
from devtool.process import Ended, Failed, run_logged, tail
from devtool.suites import Suite

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
    monkeypatch.setattr(process, "_interrupted", threading.Event())
    monkeypatch.setattr(counts, "ROOT", tmp_path)


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
        ("import os; os.abort()", "exited with code -6"),
        ("raise SystemExit(3)", "exited with code 3"),
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

    monkeypatch.setitem(lanes.BUILDS, "broken", broken)
    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
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

    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
    monkeypatch.setitem(lanes.BUILDS, "endless", endless)
    with pytest.raises(KeyboardInterrupt):
        run_suites([Suite("a", "", "whole", interrupted), Suite("b", "", "endless", Count)])
    assert [one.code for one in ended] == [-15]


def test_an_interrupt_ends_what_the_other_lane_runs_and_starts_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, '{{}}').touch(); time.sleep(20)"

    def three_in_a_row() -> Count:
        with process.side_by_side(1) as one:
            for number in range(3):
                one.submit(run, code.format(number), 1000)
        return Count()

    def interrupted() -> Count:
        while not (tmp_path / "0").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
    with pytest.raises(KeyboardInterrupt):
        run_suites([Suite("a", "", "whole", three_in_a_row), Suite("b", "", "whole", interrupted)])
    assert [path.name for path in tmp_path.iterdir() if path.name != "logs"] == ["0"]


def test_two_suites_run_side_by_side_and_are_told_in_their_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meet = threading.Barrier(2)

    def meeting() -> Count:
        meet.wait(30)  # in vain if they ran one after the other
        return Count(passed=1)

    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
    total = run_suites([Suite(name, "", "whole", meeting) for name in "abcd"])
    assert (total.passed, total.failed) == (4, 0)
    table = capsys.readouterr().out.partition("\nsuites\n")[2]
    assert [line.split()[0] for line in table.splitlines()] == ["a", "b", "c", "d"]


def test_a_suite_whose_build_is_done_does_not_wait_for_that_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_run = threading.Event()

    def runs() -> Count:
        has_run.set()
        return Count(passed=1)

    def slow() -> str:
        assert has_run.wait(30)
        return ""

    monkeypatch.setitem(lanes.BUILDS, "first", lambda: "")
    monkeypatch.setitem(lanes.BUILDS, "slow", slow)
    order = [("a", "first"), ("b", "slow"), ("c", "first")]
    monkeypatch.setattr(lanes, "LANES", 1)
    ran = [Suite(name, "", needs, runs if name == "c" else Count) for name, needs in order]
    assert run_suites(ran).passed == 1


def test_what_a_suite_could_not_do_is_its_failure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Count:
        raise Failed("ctest said no")

    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
    two = functools.partial(Count, passed=2)
    total = run_suites([Suite("a", "", "whole", broken), Suite("b", "", "whole", two)])
    assert (total.passed, total.failures) == (2, ["a: ctest said no"])


def test_the_time_of_cores_is_that_of_a_program_and_its_children() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    ended = run(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])")
    assert ended.core_seconds >= 0.3


def test_what_runs_in_the_background_gives_way_to_other_sessions() -> None:
    code = """import os, pathlib, time
group = pathlib.Path("/proc/self/autogroup")
def sees() -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, 0)] + (
        [int(group.read_text().split()[-1])] if group.exists() else [])
while set(sees()) != {19}:
    time.sleep(0.01)
"""
    command = [sys.executable, "-c", code]
    assert run_logged(command, "test", deadline_s=30, in_background=True).code == 0


def test_what_was_skipped_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(lanes.BUILDS, "whole", lambda: "")
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


def test_many_seeds_are_divided_among_the_cores_and_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, int, int]] = []

    def seeds_of(cases: str, first: int, seeds: int) -> Count:
        ran.append((cases, first, seeds))
        return Count(passed=1)

    monkeypatch.setattr(suites, "SEEDS", 6)
    monkeypatch.setattr(suites, "cores", lambda: 2)
    monkeypatch.setattr(suites, "seeds_of", seeds_of)
    monkeypatch.setattr(suites, "elastic_seeds", functools.partial(seeds_of, "elastic"))
    kinds = ["elastic", *suites.MANY_SEEDS]
    assert suites.many_seeds().passed == 2 * len(kinds)
    assert sorted(ran) == sorted((kind, first, 3) for kind in kinds for first in (1, 4))
    assert capsys.readouterr().out == f"  6 seeds of each of {len(kinds)} kinds: 0 s\n"
