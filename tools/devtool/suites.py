"""The test suites, and how each is run."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtool import emulated, mutants
from devtool.counts import Count, count_gtest, count_junit, counted, fresh_report
from devtool.mutations import MUTATIONS
from devtool.paths import BUILD, ROOT, VENV, venv_program
from devtool.process import Ended, Failed, run_logged, say, side_by_side, tail
from devtool.setup import (
    APART,
    ON_STAND_INS,
    THREADED,
    cores,
)
from devtool.threads import threaded_cases

#: The cases of the suite `sim`, besides tests/elastic, and the number of seeds of each.
MANY_SEEDS = ("NegotiationSim.EveryRank*", "WorldProgram.EveryOperation*")
SEEDS = 100_000
#: The files of tests/launch that cover most of the launcher: its loop, supervisors, agents.
LAUNCHER_TESTS = tuple(
    f"tests/launch/test_{name}.py"
    for name in ("launch_signals", "launch_ending", "launch_output", "host_tree")
)
#: The files of tests/gpu that are a suite of their own: most of its time is TensorFlow's import.
GPU_TENSORFLOW = (
    "tests/gpu/test_gpu_tensorflow.py",
    "tests/gpu/test_gpu_tensorflow_waits.py",
)
#: The files of tests/gpu that share ranks of torch. They run beside the others of their suite, and
#: about as long.
GPU_HALF = tuple(
    f"tests/gpu/test_{name}.py"
    for name in (
        "gpu_training",
        "gpu_operations",
        "gpu_messages",
        "gpu_mutations",
        "stand_in_device",
    )
)
FUZZ_TARGETS = (
    "agent",
    "agreement",
    "frames",
    "handshake",
    "launcher",
    "records",
    "rendezvous",
    "store",
)


@dataclass(frozen=True)
class Suite:
    name: str
    what: str
    needs: str  #: the build that it needs, from builds.BUILDS
    run: Callable[[], Count]
    slow: bool = False  #: runs only with --all or by name
    empty: bool = False  #: no part of it is selected


def test_programs(preset: str) -> list[dict[str, Any]]:
    """Returns the tests that CTest lists, each with a name and a command."""
    command = ["ctest", "--test-dir", str(BUILD / preset), "--show-only=json-v1"]
    listing = subprocess.run(command, capture_output=True, text=True)
    if listing.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed: {listing.stderr}")
    programs: list[dict[str, Any]] = json.loads(listing.stdout)["tests"]
    return programs


def cpp(
    preset: str,
    env: Mapping[str, str],
    deadline_s: float,
    only: str = "*",
    folders: Sequence[str] = (),
    without: Sequence[str] = (),
    with_threads: bool = False,
) -> Count:
    """Runs the test programs of a preset in `folders` (empty: all but `without`), one per core in
    parallel. Limited to the cases that match `only`, or that use threads."""
    count = Count()
    programs = [
        test
        for test in test_programs(preset)
        if (test["name"] in folders if folders else test["name"] not in without)
    ]
    with side_by_side(cores()) as several:
        choose = threaded_cases if with_threads else lambda command: only
        runs = [
            several.submit(cpp_program, preset, test, env, deadline_s, choose) for test in programs
        ]
        for run in runs:
            count.add(run.result())
    return count


def cpp_program(
    preset: str,
    test: Mapping[str, Any],
    env: Mapping[str, str],
    deadline_s: float,
    choose: Callable[[Sequence[str]], str],
) -> Count:
    """Runs the cases of one test program that match the filter from `choose` for its command, if
    there are any."""
    count = Count()
    name = f"{preset.replace('/', '-')}-{test['name']}"
    if "command" not in test:
        count.fail(f"{name}: was not built")
        return count
    only = choose(test["command"])
    if only != "*" and not (only and has_cases(test["command"], only)):
        return count
    report = fresh_report(f"{name}.json")
    options = [f"--gtest_output=json:{report}", f"--gtest_filter={only}", "--gtest_brief=1"]
    command = [*test["command"], *options]
    ended = run_logged(command, f"test-{name}", deadline_s=deadline_s, env=env)
    return counted(name, ended, report, count_gtest)


def has_cases(command: Sequence[str], only: str) -> bool:
    listing = [*command, f"--gtest_filter={only}", "--gtest_list_tests"]
    return "  " in subprocess.run(listing, capture_output=True, text=True).stdout


def python(
    name: str,
    where: Sequence[str],
    deadline_s: float,
    slow: bool,
    venv: Path = VENV,
    env: Mapping[str, str] | None = None,
) -> Count:
    """Runs the pytest cases of folders or files; with `slow`, also the cases marked as slow."""
    report = fresh_report(f"{name}.xml")
    command = [venv_program("python", venv), "-m", "pytest", *where, f"--junitxml={report}"]
    command += [] if slow else ["-m", "not slow"]
    ended = run_logged(command, f"test-{name}", deadline_s=deadline_s, env=env)
    return counted(name, ended, report, count_junit)


def many_seeds() -> Count:
    """Runs negotiation, whole jobs and elastic jobs under many seeds, on all cores; prints what
    they consisted of, and how long they took."""
    count = Count()
    begin = time.monotonic()
    share = -(-SEEDS // cores())
    kinds: list[Callable[[int, int], Count]] = [elastic_seeds]
    kinds += [functools.partial(seeds_of, cases) for cases in MANY_SEEDS]
    with side_by_side(cores()) as several:
        runs = [
            several.submit(kind, part * share + 1, share)
            for kind in kinds
            for part in range(cores())
        ]
        for run in runs:
            count.add(run.result())
    seconds = time.monotonic() - begin
    say(f"  {share * cores():,} seeds of each of {len(kinds)} kinds: {seconds:.0f} s")
    return count


def seeds_of(cases: str, first: int, seeds: int) -> Count:
    (program,) = [test for test in test_programs("release") if test["name"] == "sim"]
    name = f"sim-{cases.partition('.')[0]}-{first}"
    report = fresh_report(f"{name}.json")
    options = [f"--gtest_output=json:{report}", f"--gtest_filter={cases}", "--gtest_brief=1"]
    command = [*program["command"], *options]
    ended = run_logged(command, name, deadline_s=7200, env=seed_variables(first, seeds))
    say(tail(ended.log, 80))
    return counted(name, ended, report, count_gtest)


def elastic_seeds(first: int, seeds: int) -> Count:
    env = seed_variables(first, seeds)
    return python(f"sim-elastic-{first}", ["tests/elastic", "-k", "counts"], 7200, False, env=env)


def seed_variables(first: int, seeds: int) -> dict[str, str]:
    return {"HVD_SIM_FROM": str(first), "HVD_SIM_SEEDS": str(seeds)}


def all_mutants() -> Count:
    missed = mutants.run_all()
    count = Count(passed=len(MUTATIONS) - len(missed))
    for guard in missed:
        count.fail(f"the simulator does not notice the absence of: {guard}")
    return count


@dataclass(frozen=True)
class FuzzLimit:
    """Of one target: a time, or a number of executions."""

    seconds: int = 0
    executions: int = 0

    def options(self) -> list[str]:
        if self.executions:
            return [f"-runs={self.executions}"]
        return [f"-max_total_time={self.seconds}"]

    def deadline_s(self) -> float:
        return 7200 if self.executions else self.seconds + 120


def fuzz(limit: FuzzLimit) -> Count:
    """Runs each target up to `limit`, one per core in parallel."""
    count = Count()
    with side_by_side(cores()) as several:
        runs = [(target, several.submit(fuzz_one, target, limit)) for target in FUZZ_TARGETS]
        for target, run in runs:
            ended = run.result()
            say(f"  {target}: {executions(ended.log):,} executions")
            count.core_seconds += ended.core_seconds
            if ended.code == 0:
                count.passed += 1
            else:
                count.fail(f"fuzz.{target}: exited with code {ended.code}")
                say(tail(ended.log))
    return count


def fuzz_one(target: str, limit: FuzzLimit) -> Ended:
    """Starts from the stored corpus. New inputs stay in build/."""
    found = BUILD / "fuzz" / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    limits = [*limit.options(), "-timeout=10", "-rss_limit_mb=2048"]
    limits += ["-malloc_limit_mb=128", "-max_len=4096"]
    output = [f"-artifact_prefix={found}-", "-print_final_stats=1", str(found)]
    program = [str(BUILD / "fuzz" / "tests" / "fuzz" / "fuzz"), f"--target={target}"]
    corpus = str(ROOT / "tests" / "fuzz" / "corpus" / target)
    command = [*program, *limits, *output, corpus]
    return run_logged(command, f"fuzz-{target}", deadline_s=limit.deadline_s())


def executions(log: Path) -> int:
    """Returns the number that libFuzzer prints at its end; 0 if it ended earlier."""
    found = re.search(r"number_of_executed_units: (\d+)", log.read_text(errors="replace"))
    return int(found[1]) if found else 0


ASAN = {"HVD_SIM_PERCENT": "10", "ASAN_OPTIONS": "detect_stack_use_after_return=1"}
TSAN = {"HVD_SIM_PERCENT": "5", "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}


@dataclass(frozen=True)
class Wanted:
    """Makes the suites. `only` selects the files per folder, and the programs of the suite `cpp`;
    None selects all. `everything` includes the slow cases."""

    everything: bool
    only: Mapping[str, Sequence[str]] | None = None

    @property
    def deadline_s(self) -> float:
        """Deadline of a suite. Generous, for a machine that also does other work."""
        return 7200 if self.everything else 2700

    def parts(self, suite: str, all_of_it: Sequence[str]) -> list[str]:
        """Returns the selected parts of a suite."""
        return list(all_of_it) if self.only is None else list(self.only.get(suite, []))

    def folder(self, name: str, what: str, needs: str = "package") -> Suite:
        where = self.parts(name, [f"tests/{name}"])
        run = functools.partial(python, name, where, self.deadline_s, self.everything)
        return Suite(name, what, needs, run, empty=not where)

    def compiled(
        self,
        name: str,
        what: str,
        preset: str,
        env: Mapping[str, str],
        folders: Sequence[str] = (),
        without: Sequence[str] = (),
        with_threads: bool = False,
        slow: bool = False,
    ) -> Suite:
        """The test programs of `folders` (empty: all but `without`); with `with_threads`, only
        cases that use threads."""
        programs = self.parts("cpp", folders)
        if folders:
            programs = [one for one in programs if one in folders]
        programs = [one for one in programs if one not in without]
        run = functools.partial(
            cpp,
            preset,
            env,
            self.deadline_s,
            folders=programs,
            without=without,
            with_threads=with_threads,
        )
        empty = self.only is not None and not programs
        return Suite(name, what, preset, run, slow=slow, empty=empty)

    def gpu(self) -> Suite:
        """What runs on the stand-ins: test programs, and Python with torch or no framework."""
        programs = self.compiled("gpu", "", "release", {}, ON_STAND_INS)
        every = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("tests/gpu/test_*.py"))
        chosen = [file for file in self.parts("gpu", every) if file not in GPU_TENSORFLOW]
        half = [file for file in chosen if file in GPU_HALF]
        rest = [file for file in chosen if file not in GPU_HALF]
        wanted = [] if programs.empty else [programs.run]
        for name, files in (("gpu", rest), ("gpu-training", half)):
            if files:
                wanted.append(
                    functools.partial(python, name, files, self.deadline_s, self.everything)
                )

        def run() -> Count:
            count = Count()
            with side_by_side(cores()) as several:
                for one in [several.submit(part) for part in wanted]:
                    count.add(one.result())
            return count

        return Suite("gpu", "GPUs and NCCL, on stand-ins", "gpu", run, empty=not wanted)

    def gpu_tensorflow(self) -> Suite:
        name, what = "gpu-tensorflow", "horovod.tensorflow on GPUs, on stand-ins"
        chosen = [file for file in self.parts("gpu", GPU_TENSORFLOW) if file in GPU_TENSORFLOW]
        run = functools.partial(python, name, chosen, self.deadline_s, self.everything)
        return Suite(name, what, name, run, empty=not chosen)

    def launcher_asan(self) -> Suite:
        chosen = self.parts("launch", LAUNCHER_TESTS)
        tests = [test for test in LAUNCHER_TESTS if test in chosen]
        env = {**ASAN, "HOROVODRUN": str(BUILD / "asan" / "launcher" / "horovodrun")}
        name = "launcher-asan"
        run = functools.partial(python, name, tests, self.deadline_s, False, env=env)
        return Suite(name, "horovodrun, ASan and UBSan", name, run, empty=not tests)

    def fuzzed(self) -> Suite:
        run = functools.partial(fuzz, FuzzLimit(seconds=300 if self.everything else 10))
        empty = self.only is not None and "fuzz" not in self.only
        return Suite("fuzz", "parsers of untrusted bytes", "fuzz", run, empty=empty)

    def apart(self, name: str, what: str, tests: str, of: str | None = None) -> Suite:
        """In an environment of its own, or in that of another suite."""
        environment = of or name
        venv = APART[environment].venv
        run = functools.partial(python, name, [tests], self.deadline_s, False, venv)
        return Suite(name, what, environment, run, slow=True)


def all_suites(everything: bool, only: Mapping[str, Sequence[str]] | None = None) -> list[Suite]:
    """Returns the suites in the order in which lanes take them: long ones early, beside suites that
    mostly wait for processes. `only`: see Wanted; suites without selected parts are left out."""
    make = Wanted(everything, only)
    suites = [
        make.folder("house", "the tree itself: layers, bans, format, types"),
        make.folder("tensorflow", "horovod.tensorflow and Keras under horovodrun"),
        make.compiled("cpp", "the C++ tests, release", "release", {}, without=ON_STAND_INS),
        make.folder("launch", "horovodrun"),
        make.folder("runner", "horovod.run, and notebooks"),
        make.folder("launchers", "mpirun, srun, torchrun and others"),
        make.folder("deploy", "images, manifests and batch scripts"),
        make.gpu(),
        make.gpu_tensorflow(),
        make.folder("common", "common parts of all bindings, without a framework"),
        make.folder(
            "interface", "the C and the C++ interface, installed and from the wheel", "installed"
        ),
        make.folder("torch", "horovod.torch under horovodrun"),
        make.folder("jax", "horovod.jax under horovodrun"),
        make.folder(
            "elastic", "elastic jobs with the launcher's decisions, simulated", "installed"
        ),
        make.folder("chaos", "elastic training under random faults"),
        make.folder("wheel", "portable wheels: what is in them, and what they need", "wheel"),
        make.folder("examples", "the examples, shortened"),
        make.compiled("cpp-asan", "the C++ tests, ASan and UBSan", "asan", ASAN),
        make.launcher_asan(),
        make.compiled(
            "cpp-tsan",
            "the C++ tests with threads, TSan",
            "tsan",
            TSAN,
            THREADED,
            with_threads=True,
        ),
        make.fuzzed(),
        make.compiled(
            emulated.TARGET.cpu,
            f"the C++ tests of SIMD and bytes, {emulated.TARGET.cpu} under qemu-user",
            emulated.TESTS,
            {"HVD_SIM_PERCENT": "1"},
            emulated.TESTED,
            slow=True,
        ),
        Suite("sim", "all simulators under many seeds", "installed", many_seeds, slow=True),
        Suite(
            "mutants",
            "guards that the simulator needs",
            "release",
            all_mutants,
            slow=True,
        ),
        make.apart("torch-oldest", "horovod.torch, oldest torch", "tests/torch"),
        make.apart("tensorflow-2.15", "horovod.tensorflow, oldest TensorFlow", "tests/tensorflow"),
        make.apart("jax-oldest", "horovod.jax, oldest JAX, with flax and equinox", "tests/jax"),
        make.apart(
            "trainers",
            "Lightning, Accelerate and Transformers on the backend of torch.distributed",
            "tests/trainers",
        ),
        make.apart("c10d", "torch's own tests of process groups", "tests/c10d", of="trainers"),
        # Its tests take about a core minute, but its environment of 250 MB is a minute more where
        # nothing is cached, which would be most of what is left of a run without `--all`.
        make.apart("mxnet", "horovod.mxnet under horovodrun", "tests/mxnet"),
    ]
    return [suite for suite in suites if not suite.empty]
