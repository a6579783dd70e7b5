"""Measures how well and how soon horovodrun --dump explains hangs, and that it blames nobody else.

    ./dev bench hangs [--causes NAME...] [--after SECONDS]
    ./dev bench hangs --healthy MINUTES [--heartbeat SECONDS] [--pause SECONDS]
    ./dev bench hangs --cost ROUNDS

The first form starts a job of three ranks for each cause of tests/launch/hang_causes.py, for a
host that is cut off, and for two that do not reach each other. It asks `--after` seconds after the
hang has begun, until an answer names a cause. The table shows which parts of it are right, and the
time from the begin of the hang to the answer. The lines of some causes are known only if py-spy is
in PATH.

`--healthy` trains a small network on four ranks, with the shortest waiting time of stall reports,
and asks once a minute. All that is said about ranks is a false alarm.

`--cost` compares the CPU time of the smallest allreduce with stall check, heartbeat and dumps, and
without them. Of a step of 50 ms with 100 of them, less than half a percent may be for the checks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.places import PROGRAMS, ROOT

sys.path.insert(0, str(ROOT / "tests" / "launch"))

from cluster import Cluster, address, hosts, why_not
from dead_files import dead_files
from hang_causes import (
    CAUSES,
    LARGE_STEPS,
    NOT_STARTED,
    Hang,
    right_in,
    right_in_start,
    right_on_hosts,
    write_training,
)
from launcher import horovodrun

LIMIT_S = 5.0  #: of an explanation, from the begin of the hang
SHARE = 0.95  #: of the causes
COST_PERCENT = 0.5  #: of a step, at most
GIVE_UP_S = 60.0
PARTS = ("rank", "operation", "line", "class")
#: Causes that are not in tests/launch/hang_causes.py. A host that nobody reaches, and two that do
#: not reach each other.
NOT_INITIALISED, CUT_OFF, PARTED = "not_started", "host_cut_off", "partition"
Ask = Callable[[], Any]


@dataclass(frozen=True)
class Result:
    cause: str
    right: dict[str, bool | None]  #: by part; None: nobody can know it
    seconds: float
    text: str = ""

    @property
    def is_right(self) -> bool:
        return self.seconds <= LIMIT_S and False not in self.right.values()

    def row(self) -> str:
        words = {True: "right", False: "wrong", None: "-"}
        cells = [words[self.right[part]] for part in PARTS]
        return f"| {' | '.join([self.cause, *cells, f'{self.seconds:.1f} s'])} |"


# ---- Causes ------------------------------------------------------------------------------------


def asking(command: list[str]) -> Ask:
    def ask() -> Any:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_S)
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    return ask


def begin_in(folder: Path) -> float:
    """When the last rank has begun to hang."""
    file, end = folder / "begun", time.monotonic() + GIVE_UP_S
    while not file.exists():
        if time.monotonic() > end:
            raise SystemExit(f"the job did not start:\n{(folder / 'output').read_text()}")
        time.sleep(0.01)
    return float(file.read_text())


def first_answer(ask: Ask, begin: float, after: float) -> tuple[Any, float]:
    """The first that names a rank, and its time since `begin`."""
    time.sleep(max(0.0, begin + after - time.monotonic()))
    while True:
        found = ask()
        seconds = time.monotonic() - begin
        if found and (found["cause"]["ranks"] or seconds > GIVE_UP_S):
            return found, seconds
        if seconds > 2 * GIVE_UP_S:
            raise SystemExit("no dump could be taken")


@contextlib.contextmanager
def job(folder: Path, *words: str, env: dict[str, str] | None = None) -> Iterator[int]:
    command = [horovodrun(), "-np", "3", *words, sys.executable, str(folder / "train.py")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(env or {})}, stdout=output, stderr=output
        )
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


def explained(cause: str, hang: Hang, folder: Path, after: float) -> Result:
    with contextlib.ExitStack() as stack:
        env = {}
        if hang.needs_dead_file:
            files = stack.enter_context(dead_files(folder / "dead", reads=False))
            env = {"DEAD_FILE": str(files.file)}
        script = write_training(folder, hang.code)
        launcher = stack.enter_context(job(folder, env=env))
        ask = asking([horovodrun(), "--dump-json", str(launcher)])
        found, seconds = first_answer(ask, begin_in(folder), after)
        return Result(cause, dict(right_in(found, hang, script)), seconds, found["cause"]["text"])


def not_started(folder: Path, after: float) -> Result:
    """A rank that has not called hvd.init() has no operation."""
    script = write_training(folder, NOT_STARTED)
    with job(folder) as launcher:
        ask = asking([horovodrun(), "--dump-json", str(launcher)])
        found, seconds = first_answer(ask, begin_in(folder), after)
    right = right_in_start(found, script)
    return Result(NOT_INITIALISED, dict(right), seconds, found["cause"]["text"])


@contextlib.contextmanager
def hosts_for(folder: Path) -> Iterator[Cluster]:
    """Three hosts, with files in `folder`."""
    cluster = Cluster(folder / "hosts", 3)
    cluster.folder.mkdir()
    try:
        cluster.build()
        yield cluster
    finally:
        cluster.take_down()


def dump_between(
    folder: Path, after: float, fail: Callable[[Cluster, bool], None]
) -> tuple[Any, float]:
    """The dump of a job on three hosts whose network fails, and its time since then."""
    script = write_training(folder, LARGE_STEPS)
    with hosts_for(folder) as cluster:
        words = ["-np", "3", "-H", hosts(1, 1, 1), "--heartbeat-seconds", "1000"]
        process = cluster.start(*words, sys.executable, str(script), cwd=folder)
        begin_in(folder)
        fail(cluster, True)
        begin = time.monotonic()
        ask = asking(cluster.inside(1, horovodrun(), "--dump-json", str(process.pid)))
        found, seconds = first_answer(ask, begin, after)
        fail(cluster, False)
    return found, seconds


def judged(
    cause: str, kind: str, ranks: Sequence[int], failed: Sequence[int], found: Any, seconds: float
) -> Result:
    """Of a rank on a host that does not answer, no line can be known."""
    right = right_on_hosts(found, kind, ranks, [address(host) for host in failed])
    return Result(cause, {**right, "line": None}, seconds, found["cause"]["text"])


def cut_off(folder: Path, after: float) -> Result:
    answer = dump_between(folder, after, lambda cluster, off: cluster.cut(3, off))
    return judged(CUT_OFF, "unreachable", [2], [3], *answer)


def parted(folder: Path, after: float) -> Result:
    """The hosts of ranks 1 and 2 do not reach each other, and both reach the launcher."""
    answer = dump_between(folder, after, lambda cluster, off: cluster.isolate(2, 3, off=off))
    return judged(PARTED, "partition", [1, 2], [2, 3], *answer)


def measured(cause: str, folder: Path, after: float) -> Result | str:
    """A text: why it cannot be."""
    if cause == NOT_INITIALISED:
        return not_started(folder, after)
    if cause in (CUT_OFF, PARTED):
        return why_not() or (cut_off if cause == CUT_OFF else parted)(folder, after)
    try:
        return explained(cause, CAUSES[cause], folder, after)
    except OSError as error:
        return f"{cause}: {error}"


def explain_all(causes: list[str], after: float) -> bool:
    has_spy = shutil.which("py-spy") is not None
    print(
        f"The dump is asked for {after:g} s after the begin; {'with' if has_spy else 'no'} py-spy."
    )
    print(f"| cause | {' | '.join(PARTS)} | time to the report |\n|{'---|' * (len(PARTS) + 2)}")
    results: list[Result] = []
    for cause in causes:
        # A rank may still write there while it ends.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            found = measured(cause, Path(name), after)
        if isinstance(found, str):
            print(f"| {cause} | missing: {found} |{' |' * len(PARTS)}", flush=True)
            continue
        results.append(found)
        print(found.row(), flush=True)
    for one in results:
        if not one.is_right:
            print(f"{one.cause}: {one.text}")
    right = sum(one.is_right for one in results)
    print(f"{right} of {len(results)} are explained within {LIMIT_S:g} s")
    return bool(results) and right >= SHARE * len(results)


# ---- A healthy job -----------------------------------------------------------------------------

#: What is said about ranks, by kind.
ALARMS = {
    "stall reports": re.compile(r"Missing ranks:"),
    "ranks given up": re.compile(r"given (it|up)|is lost"),
}


def healthy(minutes: float, heartbeat: str, pause: float) -> bool:
    program = str(PROGRAMS / "healthy_training.py")
    flags = ["--stall-check-warning-time-seconds", "1", "--heartbeat-seconds", heartbeat]
    words = [sys.executable, program, str(minutes * 60), str(pause)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    blamed: list[str] = []
    dumps = 0
    with tempfile.TemporaryFile("w+") as output:
        command = [horovodrun(), "-np", "4", *flags, *words]
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
        ask = asking([horovodrun(), "--dump-json", str(process.pid)])
        begin = time.monotonic()
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                    break
                found = ask()
                dumps += 1
                if found and found["cause"]["class"] not in ("none", "start"):
                    blamed.append(found["cause"]["text"])
                print(f"{(time.monotonic() - begin) / 60:.0f} min: {tell(output, dumps, blamed)}")
                sys.stdout.flush()
        finally:
            process.kill()
            process.wait()
        print(tell(output, dumps, blamed))
        text = text_of(output)
        alarms = any(kind.search(text) for kind in ALARMS.values())
    print(f"exit code {process.returncode}; {(re.findall('steps: [0-9]+', text) or ['?'])[0]}")
    for line in blamed or ([text] if alarms or process.returncode else []):
        print(line)
    return process.returncode == 0 and not alarms and not blamed


def text_of(output: Any) -> str:
    return os.pread(output.fileno(), 1 << 24, 0).decode(errors="replace")


def tell(output: Any, dumps: int, blamed: list[str]) -> str:
    text = text_of(output)
    counts = [f"{len(kind.findall(text))} {name}" for name, kind in ALARMS.items()]
    return ", ".join([*counts, f"{len(blamed)} of {dumps} dumps that blame a rank"])


# ---- Cost --------------------------------------------------------------------------------------

OPERATIONS = 20_000
STEP_OPERATIONS, STEP_US = 100, 50_000
#: Each rank reduces a number again and again, and prints the CPU time of its process per operation.
SMALLEST = f"""
import array, time
import horovod._core as core
from horovod.common import _stack
_stack.prepare()
core.init()
values = array.array("f", [1.0])
tensor = values.buffer_info()[0], (1,), core.DTYPES["float32"], values
def reduce():
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), "x", tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
for _ in range(1000): reduce()
begin = time.process_time()
for _ in range({OPERATIONS}): reduce()
print("us:", (time.process_time() - begin) / {OPERATIONS} * 1e6, flush=True)
core.shutdown()
"""
OFF = {
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_HEARTBEAT_SECONDS": "0",
    "HOROVOD_DUMP_SIGNAL": "0",
}


def cpu_us(env: dict[str, str]) -> float:
    """Of an operation, on average over two ranks."""
    command = [horovodrun(), "-np", "2", sys.executable, "-c", SMALLEST]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    found = [float(word) for word in re.findall(r"us: ([0-9.]+)", ended.stdout)]
    if len(found) != 2:
        raise SystemExit(f"the job failed:\n{ended.stderr}")
    return statistics.mean(found)


def cost(rounds: int) -> bool:
    with_all, without = [], []
    for _ in range(rounds):
        with_all.append(cpu_us({}))
        without.append(cpu_us(OFF))
    # The least has the least noise of other programs, since ranks wait for each other.
    on, off = min(with_all), min(without)
    print(f"CPU time of an allreduce of 4 bytes, the least of {rounds} rounds:")
    print(f"{on:.2f} us with the checks, {off:.2f} us without")
    share = 100 * STEP_OPERATIONS * (on - off) / STEP_US
    print(f"{STEP_OPERATIONS} operations in a step of 50 ms: {share:+.3f} % of the step")
    return share < COST_PERCENT


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # jobs end with this program
    known = [*CAUSES, NOT_INITIALISED, CUT_OFF, PARTED]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--causes", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--after", type=float, default=1.2, metavar="SECONDS")
    parser.add_argument("--healthy", type=float, metavar="MINUTES")
    parser.add_argument("--heartbeat", default="2", metavar="SECONDS")
    parser.add_argument("--pause", type=float, default=0.05, metavar="SECONDS")
    parser.add_argument("--cost", type=int, metavar="ROUNDS")
    arguments = parser.parse_args()
    if arguments.cost:
        sys.exit(0 if cost(arguments.cost) else 1)
    elif arguments.healthy:
        sys.exit(0 if healthy(arguments.healthy, arguments.heartbeat, arguments.pause) else 1)
    else:
        sys.exit(0 if explain_all(arguments.causes, arguments.after) else 1)


if __name__ == "__main__":
    main()
