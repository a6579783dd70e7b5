"""The test suites: how each is run, and how its single test cases are counted. A suite that does
not build, crashes, hangs or has no tests counts as one failure more than its cases say."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtool.paths import BUILD, LOGS, ROOT, VENV, venv_program
from devtool.process import Ended, Failed, done_step, end_what_runs, run_logged, say, tail
from devtool.setup import BUILDS, OLDEST, OLDEST_TENSORFLOW, THREADED, cores

RESULTS = BUILD / "results"
#: What the suite `sim` runs, and under how many seeds.
MANY_SEEDS = {"NegotiationSim.EveryRank*": 100_000, "WorldProgram.Every*": 50_000}
FUZZ_TARGETS = ("agreement", "frames", "handshake", "meeting", "store")


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)  #: why cases were skipped

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.reasons += other.reasons

    def fail(self, what: str) -> None:
        self.failed += 1
        self.failures.append(what)


@dataclass(frozen=True)
class Suite:
    name: str
    what: str
    needs: str  #: what is built before, of setup.BUILDS
    run: Callable[[], Count]
    slow: bool = False  #: only with --all or by name


@contextlib.contextmanager
def side_by_side(most: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for commands. An exception, as of an interrupt, ends what they wait for."""
    pool = ThreadPoolExecutor(most)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_what_runs()
        raise
    finally:
        pool.shutdown()


def count_gtest(report: Path) -> Count:
    """Cases of a GoogleTest JSON report."""
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
    """Cases of pytest's XML report."""
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
    """The cases of one program, and whether it came to its own end."""
    count = read(report) if report.is_file() else Count()
    if ended.timed_out:
        count.fail(f"{name}: the watchdog ended it")
    elif ended.code != 0 and count.failed == 0:
        count.fail(f"{name}: ended with {ended.code}")
    elif count.passed + count.failed == 0:
        count.fail(f"{name}: has no tests")
    if count.failed:
        say(tail(ended.log, 60))
        say(f"  the whole output: {ended.log.relative_to(ROOT)}")
    return count


def fresh_report(name: str) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / name
    report.unlink(missing_ok=True)
    return report


def test_programs(preset: str) -> list[dict[str, Any]]:
    """What CTest knows, each with a name and a command."""
    command = ["ctest", "--test-dir", str(BUILD / preset), "--show-only=json-v1"]
    listing = subprocess.run(command, capture_output=True, text=True)
    if listing.returncode != 0:
        raise Failed(f"`{' '.join(command)}` says: {listing.stderr}")
    programs: list[dict[str, Any]] = json.loads(listing.stdout)["tests"]
    return programs


def cpp(
    preset: str,
    env: Mapping[str, str],
    deadline_s: float,
    only: str = "*",
    folders: Sequence[str] = (),
) -> Count:
    """Runs the test programs of a preset, as many at once as there are cores: those of `folders`
    (none: all), and of them the cases that match `only`."""
    count = Count()
    programs = [test for test in test_programs(preset) if not folders or test["name"] in folders]
    with side_by_side(cores()) as several:
        runs = [
            several.submit(cpp_program, preset, test, env, deadline_s, only) for test in programs
        ]
        for run in runs:
            count.add(run.result())
    return count


def cpp_program(
    preset: str, test: Mapping[str, Any], env: Mapping[str, str], deadline_s: float, only: str
) -> Count:
    """Runs one test program, unless it has no case that matches `only`."""
    count = Count()
    name = f"{preset}-{test['name']}"
    if "command" not in test:
        count.fail(f"{name}: was not built")
        return count
    if only != "*" and not has_cases(test["command"], only):
        return count
    report = fresh_report(f"{name}.json")
    options = [f"--gtest_output=json:{report}", f"--gtest_filter={only}", "--gtest_brief=1"]
    command = [*test["command"], *options]
    ended = run_logged(command, f"test-{name}", deadline_s=deadline_s, env=env)
    return counted(name, ended, report, count_gtest)


def has_cases(command: Sequence[str], only: str) -> bool:
    listing = [*command, f"--gtest_filter={only}", "--gtest_list_tests"]
    return "  " in subprocess.run(listing, capture_output=True, text=True).stdout


def python(name: str, folder: str, deadline_s: float, slow: bool, venv: Path = VENV) -> Count:
    """Runs the pytest cases of one folder; with `slow`, those so marked as well."""
    report = fresh_report(f"{name}.xml")
    command = [venv_program("python", venv), "-m", "pytest", folder, f"--junitxml={report}"]
    command += [] if slow else ["-m", "not slow"]
    ended = run_logged(command, f"test-{name}", deadline_s=deadline_s)
    return counted(name, ended, report, count_junit)


def many_seeds() -> Count:
    """Agreement, and whole jobs, under many seeds; shows what the runs were made of."""
    count = Count()
    for cases, seeds in MANY_SEEDS.items():
        count.add(cpp("release", {"HVD_SIM_SEEDS": str(seeds)}, 7200, cases))
        say(tail(LOGS / "test-release-sim.log", 60))
    return count


def fuzz(seconds: int) -> Count:
    """Each target for `seconds`, as many at once as there are cores."""
    count = Count()
    with side_by_side(cores()) as several:
        runs = [(target, several.submit(fuzz_one, target, seconds)) for target in FUZZ_TARGETS]
        for target, run in runs:
            ended = run.result()
            say(f"  {target}: {executions(ended.log)} executions")
            if ended.code == 0:
                count.passed += 1
            else:
                count.fail(f"fuzz.{target}: ended with {ended.code}")
                say(tail(ended.log))
    return count


def fuzz_one(target: str, seconds: int) -> Ended:
    """From the corpus that is kept; what is found stays in build/."""
    found = BUILD / "fuzz" / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048"]
    limits += ["-malloc_limit_mb=128", "-max_len=4096"]
    output = [f"-artifact_prefix={found}-", "-print_final_stats=1", str(found)]
    program = [str(BUILD / "fuzz" / "tests" / "fuzz" / "fuzz"), f"--target={target}"]
    corpus = str(ROOT / "tests" / "fuzz" / "corpus" / target)
    command = [*program, *limits, *output, corpus]
    return run_logged(command, f"fuzz-{target}", deadline_s=seconds + 120)


def executions(log: Path) -> int:
    """As libFuzzer counts them at its end; 0 when it did not come that far."""
    found = re.search(r"number_of_executed_units: (\d+)", log.read_text(errors="replace"))
    return int(found[1]) if found else 0


def all_suites(everything: bool) -> list[Suite]:
    """In the order in which they run: what fails soonest comes first."""
    asan = {"HVD_SIM_PERCENT": "10", "ASAN_OPTIONS": "detect_stack_use_after_return=1"}
    tsan = {"HVD_SIM_PERCENT": "5", "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    deadline = 7200 if everything else 1800  # seconds, on a machine that does other work too

    def folder(name: str, what: str, needs: str = "package") -> Suite:
        run = functools.partial(python, name, f"tests/{name}", deadline, everything)
        return Suite(name, what, needs, run)

    def compiled(
        name: str, what: str, preset: str, env: Mapping[str, str], folders: Sequence[str] = ()
    ) -> Suite:
        run = functools.partial(cpp, preset, env, deadline, folders=folders)
        return Suite(name, what, preset, run)

    fuzz_for = functools.partial(fuzz, 300 if everything else 10)
    oldest = functools.partial(python, "torch-oldest", "tests/torch", deadline, False, OLDEST)
    oldest_tensorflow = functools.partial(
        python, "tensorflow-2.15", "tests/tensorflow", deadline, False, OLDEST_TENSORFLOW
    )
    return [
        folder("house", "the tree itself: layers, bans, format, types"),
        compiled("cpp", "the C++ tests, release", "release", {}),
        folder("launch", "horovodrun"),
        folder("runner", "horovod.run, and notebooks"),
        folder("launchers", "mpirun, srun, torchrun and others"),
        folder("deploy", "images, manifests and batch scripts"),
        folder("common", "what all bindings share, without a framework"),
        folder("torch", "horovod.torch under horovodrun"),
        folder("tensorflow", "horovod.tensorflow and Keras under horovodrun"),
        folder("examples", "the examples, shortened"),
        folder(
            "interface", "the C and the C++ interface, installed and from the wheel", "installed"
        ),
        compiled("cpp-asan", "the C++ tests, ASan and UBSan", "asan", asan),
        compiled("cpp-tsan", "the C++ tests with threads, TSan", "tsan", tsan, THREADED),
        Suite("fuzz", "what reads bytes from outside", "fuzz", fuzz_for),
        Suite("sim", "agreement and whole jobs under many seeds", "release", many_seeds, slow=True),
        Suite("torch-oldest", "horovod.torch, oldest torch", "oldest", oldest, slow=True),
        Suite(
            "tensorflow-2.15",
            "horovod.tensorflow, oldest TensorFlow",
            "oldest-tensorflow",
            oldest_tensorflow,
            slow=True,
        ),
    ]


class Builds:
    """Builds what suites need, one after another in a thread, while suites run that have theirs."""

    def __init__(self, suites: Sequence[Suite], worker: ThreadPoolExecutor) -> None:
        needs = dict.fromkeys(suite.needs for suite in suites)
        self._builds = {need: worker.submit(self._build, need) for need in needs}

    def has(self, need: str) -> bool:
        """Whether `need` was built; waits for it."""
        return self._builds[need].result()

    @staticmethod
    def _build(need: str) -> bool:
        try:
            say(done_step(f"built {need}", BUILDS[need]))
        except Failed as reason:
            say(f"  {need} could not be built: {reason}")
            return False
        return True


def run_suites(suites: Sequence[Suite]) -> Count:
    """Runs them one after another; prints the minutes of each and what failed."""
    total = Count()
    lines = []
    with side_by_side(1) as worker:
        builds = Builds(suites, worker)
        for suite in suites:
            is_built = builds.has(suite.needs)
            say(f"{suite.name}: {suite.what}")
            begin = time.monotonic()
            count = Count()
            if is_built:
                count = suite.run()
            else:
                count.fail(f"{suite.name}: did not build")
            minutes = (time.monotonic() - begin) / 60
            lines.append(suite_line(suite.name, minutes, count))
            say(lines[-1])
            total.add(count)
    say("\nsuites")
    for line in lines:
        say(line)
    for reason, cases in total.reasons.items():
        say(f"  skipped: {cases}: {reason}")
    for failure in total.failures:
        say(f"  failed: {failure}")
    return total


def suite_line(name: str, minutes: float, count: Count) -> str:
    skipped = f", {count.skipped} skipped" if count.skipped else ""
    return f"  {name:<14}{minutes:6.1f} min  {count.passed} passed, {count.failed} failed{skipped}"
