"""Causes of hangs: what the last of three ranks does instead of its next operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: For scripts that import `array` and `horovod._core as core`.
REDUCE = """
def reduce(name, count=4):
    values = array.array("f", [1.0] * count)
    tensor = values.buffer_info()[0], (count,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), name, tensor, tensor, None)
    try:
        core.wait(handle)
    finally:
        core.free(handle)
"""

#: Every rank reduces two small arrays per step. The last rank hangs in step 2, between the two, and
#: writes when to the file "begun".
TRAINING = """
import array, ctypes, os, queue, signal, socket, subprocess, sys, threading, time
from horovod.common import _stack
import horovod._core as core

RANK = int(os.environ["HOROVOD_RANK"])

{reduce}
def begins():
    with open("begun.part", "w") as file:
        file.write(str(time.monotonic()))
    os.rename("begun.part", "begun")

{hang}

def train(steps):
    for step in range(steps):
        core.count_step()
        reduce("loss")
        if step == 2 and RANK == core.world().size - 1:
            begins()
            hang()
        reduce("grad.fc.weight")

_stack.prepare()
core.init()
train({steps})
core.shutdown()
print("end", flush=True)
"""

#: Replaces the second array of each step by a barrier of a blocking group.
GROUP = """
groups = []
by_name = reduce
def reduce(name):
    if name == "loss":
        return by_name(name)
    if not groups:
        groups.append(core.Group([0, 1, 2]))
    groups[0].barrier()
"""


def write_training(folder: Path, hang: str, steps: int = 5) -> Path:
    script = folder / "train.py"
    script.write_text(TRAINING.format(reduce=REDUCE, hang=hang, steps=steps))
    return script


def line_of(script: Path, mark: str = "# here") -> int:
    lines = script.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
    return number


@dataclass
class Hang:
    """What the last rank does instead of its next operation. `# here` marks its line."""

    code: str
    kind: str
    function: str = "hang"
    has_place: bool = True  #: without py-spy
    operation: str = "grad.fc.weight"
    words: str = ""  #: in the first line
    is_call: bool = False  #: the others wait in a call on a blocking group
    needs_dead_file: bool = False  #: in DEAD_FILE


CAUSES = {
    "data_loader": Hang(
        """
class Loader:
    def next_batch(self):
        return queue.Queue().get()  # here
def hang():
    Loader().next_batch()
""",
        "data",
        "next_batch",
    ),
    "lock": Hang(
        """
def hang():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # here
""",
        "lock",
    ),
    "two_locks": Hang(
        """
first, second = threading.Lock(), threading.Lock()
def other():
    with second:
        held.set()
        with first:
            pass
held = threading.Event()
def hang():
    with first:
        threading.Thread(target=other, daemon=True).start()
        held.wait()
        with second:  # here  (a lock)
            pass
""".replace("  # here  (a lock)", "  # a lock # here"),
        "lock",
    ),
    "thread": Hang(
        """
def hang():
    worker = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    worker.start()
    worker.join()  # here
""",
        "lock",
    ),
    "event": Hang("\ndef hang():\n    threading.Event().wait()  # here\n", "lock"),
    "program": Hang(
        """
def hang():
    subprocess.run(["sleep", "1000"])  # here
""",
        "lock",
    ),
    "branch": Hang(
        """
def hang():
    reduce("only.here")  # a branch # here
""",
        "order",
        words="it waits for only.here instead",
    ),
    "another_order": Hang(
        """
def hang():
    reduce("grad.fc.bias")  # here
    reduce("grad.fc.weight")
""",
        "order",
        words="it waits for grad.fc.bias instead",
    ),
    "a_swallowed_exception": Hang(
        """
def hang():
    raise KeyError("a broken sample")
def train(steps):
    for step in range(steps):
        try:
            reduce("loss")  # here
            if step == 2 and RANK == core.world().size - 1:
                begins()
                hang()
            reduce("grad.fc.weight")
        except KeyError:
            continue
def main():
    _stack.prepare()
    core.init()
    train(5)
main()
""",
        "order",
        "train",
        words="it waits for loss instead",
    ),
    "a_loop_of_another_length": Hang(
        """
def hang():
    reduce("end of the epoch")  # here
""",
        "order",
    ),
    "shapes_that_depend_on_the_rank": Hang(
        """
def train(steps):
    for step in range(steps):
        reduce("loss")
        try:
            reduce("rows", 4 + RANK)
        except ValueError:
            if RANK == core.world().size - 1:
                begins()
                time.sleep(1000)  # here
        reduce("grad.fc.weight")
def main():
    _stack.prepare()
    core.init()
    train(5)
main()
""",
        "failed",
        "train",
    ),
    "sigstop": Hang(
        "\ndef hang():\n    os.kill(os.getpid(), signal.SIGSTOP)  # here\n",
        "stopped",
        has_place=False,
        words="is stopped, by SIGSTOP or a debugger",
    ),
    "gil": Hang(
        """
def hang():
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(1000)  # here
""",
        "gil",
    ),
    "gil_of_another_thread": Hang(
        """
def hold():
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(1000)  # here
def hang():
    threading.Thread(target=hold, daemon=True).start()
    while True:
        time.sleep(0.001)
""",
        "gil",
        "hold",
        words="another thread is blocked in C code and holds the GIL",
    ),
    "fifo": Hang(
        """
def hang():
    os.mkfifo("fifo")
    open("fifo").read()  # here
""",
        "io",
    ),
    "dead_file_system": Hang(
        """
def hang():
    open(os.environ["DEAD_FILE"]).read()  # here
""",
        "io",
        has_place=False,
        words="which no signal interrupts: a file system or a device does not answer",
        needs_dead_file=True,
    ),
    "pipe": Hang(
        """
def hang():
    read, write = os.pipe()
    os.read(read, 1)  # here
""",
        "io",
    ),
    "socket": Hang(
        """
def hang():
    here, there = socket.socketpair()
    here.recv(1)  # here
""",
        "io",
    ),
    "endless_loop": Hang(
        """
def hang():
    while True: pass  # here
""",
        "busy",
    ),
    "sleep": Hang("\ndef hang():\n    time.sleep(1000)  # here\n", "elsewhere"),
    "group_call": Hang(
        GROUP + "def hang():\n    time.sleep(1000)  # here\n",
        "elsewhere",
        operation="call 3 (barrier) on hvd.Group([0, 1, 2])",
        is_call=True,
    ),
    "group_branch": Hang(
        GROUP.replace("2])", '2], "tp")') + 'def hang():\n    by_name("only.here")  # here\n',
        "order",
        operation="call 3 (barrier) on group tp",
        words="it waits for only.here instead",
        is_call=True,
    ),
    "group_creation": Hang(
        """
by_name = reduce
def reduce(name):
    by_name(name) if name == "loss" else core.Group([0, 1, 2])
def hang():
    time.sleep(1000)  # here
""",
        "elsewhere",
        operation="the creation of hvd.Group([0, 1, 2]), number 3",
        is_call=True,
    ),
    "blocked_signals": Hang(
        """
def hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    time.sleep(1000)  # here
""",
        "no_answer",
        has_place=False,
        words="does not take signals",
    ),
}


#: The first job of a process that has not called hvd.init().
NOT_STARTED = """
if os.environ["HOROVOD_RANK"] == "2":
    begins()
    time.sleep(1000)  # here
"""

#: Trains for ever on arrays that are so large that each pair of hosts sends something.
LARGE_STEPS = """
def main():
    _stack.prepare()
    core.init()
    for step in range(1_000_000_000):
        reduce("loss", 1 << 18)
        if step == 2 and RANK == core.world().size - 1:
            begins()
        reduce("grad.fc.weight", 1 << 18)
main()
"""


def place_in(found: Any, kind: str, rank: int) -> tuple[int, str] | None:
    """The line and the function of the first frame of the script."""
    (report,) = [one for one in found["ranks"] if one["rank"] == rank]
    stack = report["gil_holder"] or report["stack"]
    frames = [one for one in stack if one["file"].endswith("train.py")]
    if kind == "order":
        frames = frames[1:]  # the first one is that of reduce()
    return (frames[0]["line"], frames[0]["function"]) if frames else None


def right_in(found: Any, hang: Hang, script: Path) -> dict[str, bool]:
    """Which parts of the cause of three ranks are right, whose last one hangs."""
    cause, text = found["cause"], found["cause"]["text"]
    begin = f"rank 2 has not submitted {hang.operation}, which ranks 0, 1 have awaited for "
    if hang.is_call:
        begin = f"rank 2 has not entered {hang.operation}, in which ranks 0, 1 have waited for "
    line = line_of(script)
    is_named = hang.kind == "order" or f"train.py:{line} in {hang.function}" in text
    is_there = place_in(found, hang.kind, 2) == (line, hang.function)
    return {
        "rank": cause["ranks"] == [2] and text.startswith(begin),
        "operation": cause["operation"] == hang.operation,
        "line": is_there and is_named,
        "class": cause["class"] == hang.kind and hang.words in text,
    }


def right_in_start(found: Any, script: Path) -> dict[str, bool]:
    """Of NOT_STARTED: the others wait in hvd.init()."""
    cause = found["cause"]
    begin = "rank 2 has not called hvd.init(), in which ranks 0, 1 have waited for "
    return {
        "rank": cause["ranks"] == [2] and cause["text"].startswith(begin),
        "operation": cause["operation"] == "hvd.init()",
        "line": place_in(found, "start", 2) == (line_of(script), "<module>"),
        "class": cause["class"] == "start",
    }


def right_on_hosts(
    found: Any, kind: str, ranks: Sequence[int], failed: Sequence[str]
) -> dict[str, bool]:
    """Of hosts at these addresses, which fail in LARGE_STEPS. No line can be known."""
    cause = found["cause"]
    is_named = all(f"host {address}" in cause["text"] for address in failed)
    return {
        "rank": cause["ranks"] == list(ranks) and is_named,
        "operation": cause["operation"] in ("loss", "grad.fc.weight"),
        "class": cause["class"] == kind,
    }
