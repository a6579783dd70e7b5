"""The command line of ./dev."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from devtool import changed, counts, gpu, kernels, lanes, paths, setup, suites, wheel
from devtool.process import Failed, must, say, show, step

USAGE = """\
usage: ./dev COMMAND

  demo                    set up, build, and train a small network on Fashion-MNIST with 2 processes
  test [NAME...] [--all]  set up, build, and run the tests (all suites, or the named ones)
  test --changed          run the tests affected by differences from main, with reasons
  build                   set up and build; installs the package into .venv
  wheel [--python 3.11]   build the wheels that run on other systems, in dist/
  sim [SEED]              run the simulator's tests; with SEED, from that seed only
  fuzz --executions N     run the fuzzers N times in all, instead of for seconds
  chaos [--minutes N]     train while random ranks are killed and stopped; nothing may be lost
  bench                   run all benchmarks below except kernel and hangs, and write the report
  bench allreduce         allreduce of float32, compared with all peers, over shm or TCP
  bench half              allreduce of float16 and bfloat16
  bench collectives       allgather, broadcast, alltoall, reducescatter
  bench net               allreduce between network namespaces with one link each
  bench step              gradients of whole networks from torch, compared with DDP
  bench distributed       collectives of torch.distributed, compared with Gloo
  bench train             training to the same loss, compared with DDP
  bench trainers          steps by Lightning, Accelerate and Transformers, compared with Gloo
  bench overhead          cost of the optimizer with one process, and of the smallest allreduce
  bench start             start-up time and memory of horovodrun, mpirun and torchrun
  bench encrypt           cost of encrypted connections: allreduce over TCP with and without
  bench faults            time from a fault of a rank to the error on all others, by moment
  bench recovery          time from kill -9 in an elastic job to the next commit
  bench hangs             time until horovodrun --dump explains each of many hangs, and false alarms
  bench kernel            reduction on one core, by type and size; a minimal allreduce
  bench report            write docs/performance.md from stored results; --tables: all tables
  fmt                     format C++ and Python
  docs                    write docs/knobs.md from the knob table
  kernels                 compile the GPU kernels to PTX; needs clang-19
  gpu --python PYTHON     build, test and measure on an NVIDIA GPU, with the torch of PYTHON
  help                    print this text

A bench takes further arguments; `./dev bench NAME --help` lists them.
The first run installs Debian packages and makes .venv: it needs root or sudo, and the network. demo
installs only a part of them."""


def main(arguments: Sequence[str]) -> int:
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("help", [])
    commands: dict[str, Callable[[list[str]], int]] = {
        "demo": demo,
        "test": test,
        "build": build,
        "wheel": portable,
        "sim": sim,
        "fuzz": fuzz,
        "chaos": chaos,
        "bench": bench,
        "fmt": fmt,
        "docs": docs,
        "kernels": gpu_kernels,
        "gpu": gpu.main,
    }
    if command in ("help", "-h", "--help"):
        say(USAGE)
        return 0
    if command not in commands:
        say(f"./dev: unknown command {command!r}\n\n{USAGE}")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # child processes end with this one
    try:
        return commands[command](rest)
    except Failed as failure:
        say(f"./dev {command}: {failure}")
        return 1
    except KeyboardInterrupt:
        say(f"./dev {command}: interrupted")
        return 130


def prepare(*builds: str, with_package: bool = False) -> None:
    setup.set_up(setup.FOR_TESTS, with_package=with_package)
    if builds:
        say("build")
    for name in builds:
        step(name, setup.BUILDS[name])


def demo(rest: list[str]) -> int:
    begin = time.monotonic()
    setup.set_up(setup.FOR_DEMO, with_package=True)
    say("demo: 2 processes train a small network on Fashion-MNIST")
    program = [paths.venv_program("horovodrun"), "-np", "2", paths.venv_program("python")]
    code = show([*program, "examples/pytorch/fashion_mnist.py", "--epochs", "2", *rest])
    say(total_time(begin))
    return code


def total_time(begin: float) -> str:
    minutes = (time.monotonic() - begin) / 60
    return f"  {'everything':<14}{minutes:6.1f} min, set-up and builds included"


def test(rest: list[str]) -> int:
    # A shell starts background commands with SIGINT ignored, which all tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    everything = "--all" in rest
    names = [name for name in rest if name not in ("--all", "--changed")]
    known = suites.all_suites(everything)
    unknown = [name for name in names if name not in [suite.name for suite in known]]
    if unknown:
        say(f"no suite {', '.join(unknown)}; there are: {', '.join(suite.name for suite in known)}")
        return 2
    if "--changed" in rest:
        choice = changed.choose(paths.ROOT)
        say("\n".join(choice.why))
        known = suites.all_suites(everything, choice.only)
    begin = time.monotonic()
    chosen = [
        suite for suite in known if (suite.name in names if names else everything or not suite.slow)
    ]
    total = counts.Count()
    try:
        needs_package = any(suite.needs == "package" for suite in chosen)
        setup.set_up(setup.FOR_TESTS, with_package=needs_package)
        total.add(lanes.run_suites(chosen))
    except Failed as failure:
        say(str(failure))
        total.fail("set-up")
    say(total_time(begin))
    say(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


def build(rest: list[str]) -> int:
    prepare("release", with_package=True)
    return 0


def portable(rest: list[str]) -> int:
    chosen = wheel.options(rest)
    setup.set_up(setup.FOR_WHEEL)
    return wheel.main(chosen)


def sim(rest: list[str]) -> int:
    prepare("release")
    env = {"HVD_SIM_SEEDS": "1", "HVD_SIM_FROM": rest[0]} if rest else {}
    return show(["ctest", "--test-dir", "build/release", "-R", "sim", "--verbose"], env)


def fuzz(rest: list[str]) -> int:
    if len(rest) != 2 or rest[0] != "--executions" or not rest[1].isdecimal():
        say("./dev fuzz takes --executions N")
        return 2
    prepare("fuzz")
    count = suites.fuzz(suites.FuzzLimit(executions=-(-int(rest[1]) // len(suites.FUZZ_TARGETS))))
    return 1 if count.failed else 0


def chaos(rest: list[str]) -> int:
    prepare("release", with_package=True)
    script = str(paths.ROOT / "tests" / "chaos" / "chaos_run.py")
    return show([paths.venv_program("python"), script, *rest])


def bench(rest: list[str]) -> int:
    if not rest or (rest[0].startswith("-") and rest[0] not in ("-h", "--help")):
        rest = ["all", *rest]
    script = paths.ROOT / "bench" / f"{rest[0]}.py"
    if not script.is_file():
        there = ", ".join(path.stem for path in sorted((paths.ROOT / "bench").glob("*.py")))
        say(f"./dev bench takes one of: {there}")
        return 2
    # Everything that runs is built first.
    elsewhere = rest[0] == "report" or {"--ours", "--help", "-h", "--list"} & set(rest)
    if elsewhere:
        prepare()
    else:
        prepare("bench", with_package=True)
    return show([paths.venv_program("python"), str(script), *rest[1:]])


def gpu_kernels(rest: list[str]) -> int:
    for name in kernels.NAMES:
        kernels.ptx_of(name).write_text(kernels.compiled(name))
    return 0


def fmt(rest: list[str]) -> int:
    setup.set_up(setup.FOR_TESTS)
    cpp = [str(path) for path in paths.cpp_files()]
    python = [str(path) for path in paths.python_files()]
    must(["clang-format", "-i", *cpp], "fmt-cpp")
    must([paths.venv_program("ruff"), "format", *python], "fmt-ruff")
    must([paths.venv_program("ruff"), "check", "--fix", *python], "fmt-ruff-check")
    return 0


def docs(rest: list[str]) -> int:
    """The tests that compare generated pages with the tree write them if told to."""
    prepare("release")
    ctest = ["ctest", "--test-dir", "build/release", "-R", "^base$"]
    return show(ctest, {"HVD_UPDATE_GOLDEN": "1"})
