"""The command line of ./dev."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from devtool import paths, setup, suites
from devtool.process import Failed, must, say, show, step

USAGE = """\
usage: ./dev COMMAND

  demo                    set up, build, and train a small network on Fashion-MNIST with 2 processes
  test [NAME...] [--all]  set up, build, and run the tests (all suites, or those named)
  build                   set up and build; installs the package into .venv
  sim [SEED]              the simulator's tests, from one seed when given
  bench                   all of the following but kernel, and docs/performance.md
  bench allreduce         beside every peer, by blocking calls: float32, in shared memory or TCP
  bench half              the same for float16 and bfloat16
  bench collectives       allgather, broadcast, alltoall, reducescatter
  bench net               between network namespaces with a wire each
  bench step              the gradients of whole networks from torch, beside DDP
  bench train             a training to the same loss, beside DDP
  bench overhead          of our optimizer at one process; of the smallest allreduce
  bench start             horovodrun beside mpirun and torchrun; the memory that it takes
  bench faults            kill -9 in the middle of an allreduce: time to the error on the survivors
  bench kernel            reducing on one core, by type and size; an allreduce without a library
  bench report            docs/performance.md from what the above have stored by --json
  fmt                     format C++ and Python
  docs                    write docs/knobs.md from the knob table
  help                    this text

A bench takes further arguments; `./dev bench NAME --help` lists them.
The first run installs Debian packages and makes .venv: it needs root or sudo, and the network."""


def main(arguments: Sequence[str]) -> int:
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("help", [])
    commands: dict[str, Callable[[list[str]], int]] = {
        "demo": demo,
        "test": test,
        "build": build,
        "sim": sim,
        "bench": bench,
        "fmt": fmt,
        "docs": docs,
    }
    if command in ("help", "-h", "--help"):
        say(USAGE)
        return 0
    if command not in commands:
        say(f"./dev: there is no command {command!r}\n\n{USAGE}")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started ends with us
    try:
        return commands[command](rest)
    except Failed as failure:
        say(f"./dev {command}: {failure}")
        return 1
    except KeyboardInterrupt:
        say(f"./dev {command}: interrupted")
        return 130


def prepare(*builds: str) -> None:
    setup.set_up()
    if builds:
        say("build")
    for name in builds:
        step(name, setup.BUILDS[name])


def demo(rest: list[str]) -> int:
    prepare("package")
    say("demo: 2 processes train a small network on Fashion-MNIST")
    program = [paths.venv_program("horovodrun"), "-np", "2", paths.venv_program("python")]
    return show([*program, "examples/pytorch/fashion_mnist.py", "--epochs", "2", *rest])


def test(rest: list[str]) -> int:
    # A shell has what it runs in the background ignore it, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    everything = "--all" in rest
    names = [name for name in rest if name != "--all"]
    known = suites.all_suites(everything)
    unknown = [name for name in names if name not in [suite.name for suite in known]]
    if unknown:
        say(f"no suite {', '.join(unknown)}; there are: {', '.join(suite.name for suite in known)}")
        return 2
    begin = time.monotonic()
    chosen = [
        suite for suite in known if (suite.name in names if names else everything or not suite.slow)
    ]
    total = suites.Count()
    try:
        setup.set_up()
        total.add(suites.run_suites(chosen))
    except Failed as failure:
        say(str(failure))
        total.fail("set-up")
    minutes = (time.monotonic() - begin) / 60
    say(f"  {'everything':<14}{minutes:6.1f} min, set-up and builds included")
    say(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


def build(rest: list[str]) -> int:
    prepare("package", "release")
    return 0


def sim(rest: list[str]) -> int:
    prepare("release")
    env = {"HVD_SIM_SEEDS": "1", "HVD_SIM_FROM": rest[0]} if rest else {}
    return show(["ctest", "--test-dir", "build/release", "-R", "sim", "--verbose"], env)


def bench(rest: list[str]) -> int:
    if not rest or (rest[0].startswith("-") and rest[0] not in ("-h", "--help")):
        rest = ["all", *rest]
    script = paths.ROOT / "bench" / f"{rest[0]}.py"
    if not script.is_file():
        there = ", ".join(path.stem for path in sorted((paths.ROOT / "bench").glob("*.py")))
        say(f"./dev bench takes one of: {there}")
        return 2
    # What runs is built already, or nothing runs.
    elsewhere = rest[0] == "report" or {"--ours", "--help", "-h", "--list"} & set(rest)
    prepare(*[] if elsewhere else ["package", "bench"])
    return show([paths.venv_program("python"), str(script), *rest[1:]])


def fmt(rest: list[str]) -> int:
    setup.set_up()
    cpp = [str(path) for path in paths.cpp_files()]
    python = [str(path) for path in paths.python_files()]
    must(["clang-format", "-i", *cpp], "fmt-cpp")
    must([paths.venv_program("ruff"), "format", *python], "fmt-ruff")
    must([paths.venv_program("ruff"), "check", "--fix", *python], "fmt-ruff-check")
    return 0


def docs(rest: list[str]) -> int:
    """The tests that compare generated pages with the tree write them when told to."""
    prepare("release")
    ctest = ["ctest", "--test-dir", "build/release", "-R", "^base$"]
    return show(ctest, {"HVD_UPDATE_GOLDEN": "1"})
