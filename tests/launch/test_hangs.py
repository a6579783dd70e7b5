"""horovodrun --dump names rank, operation, line and class of the cause of a hang."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hanging import dump, dumped, explained, line_of, start_hanging, write_training
from launcher import Jobs, ended, inherited, wait_until


@dataclass
class Hang:
    """What the last rank does instead of its next operation. `# here` marks its line."""

    code: str
    kind: str
    function: str = "hang"
    has_place: bool = True
    operation: str = "grad.fc.weight"
    words: str = ""  #: in the first line


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
        "\ndef hang():\n    os.kill(os.getpid(), signal.SIGSTOP)\n",
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
    "blocked_signals": Hang(
        """
def hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    time.sleep(1000)
""",
        "no_answer",
        has_place=False,
        words="does not take signals",
    ),
}


def place_in(found: Any, hang: Hang, last: int) -> tuple[int, str]:
    """The line and the function of the first frame of the script."""
    (report,) = [one for one in found["ranks"] if one["rank"] == last]
    stack = report["gil_holder"] or report["stack"]
    frames = [one for one in stack if one["file"].endswith("train.py")]
    if hang.kind == "order":
        frames = frames[1:]  # the first one is that of reduce()
    return frames[0]["line"], frames[0]["function"]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_hang_is_explained(jobs: Jobs, cause: str) -> None:
    hang = CAUSES[cause]
    found = explained(start_hanging(jobs, hang.code), [2])
    text = found["cause"]["text"]
    assert found["cause"]["class"] == hang.kind, text
    assert found["cause"]["operation"] == hang.operation
    begin = f"rank 2 has not submitted {hang.operation}, which ranks 0, 1 have awaited for "
    assert text.startswith(begin) and hang.words in text
    if hang.has_place:
        line = line_of(jobs.folder / "train.py")
        assert place_in(found, hang, 2) == (line, hang.function), found
        if hang.kind != "order":
            assert f"train.py:{line} in {hang.function}" in text


def test_a_rank_that_has_not_called_init_is_named(jobs: Jobs) -> None:
    wait = 'if os.environ["HOROVOD_RANK"] == "2":\n    time.sleep(1000)\n'
    found = explained(start_hanging(jobs, wait), [2], starts=True)
    assert found["cause"]["class"] == "start"
    text = "rank 2 has not called hvd.init(), in which ranks 0, 1 wait"
    assert found["cause"]["text"] == text


def test_the_text_shows_what_each_rank_does(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["lock"].code)
    cause = explained(job, [2])["cause"]["text"]
    result = dump(job)
    first, *lines = result.stdout.splitlines()
    assert first.split(" for ")[0] == cause.split(" for ")[0]
    assert "lock.acquire()  # here" in [line.strip() for line in lines]
    assert [line for line in lines if line.startswith("Rank 2 on localhost, process ")]
    assert "  generation 1, step 3, 5 batches" in lines
    awaited = "  pending: grad.fc.weight (allreduce float32 [4]), "
    assert len([line for line in lines if line.startswith(awaited)]) == 2
    assert len([line for line in lines if line.startswith("  submitted last: loss (")]) == 1


SECOND_JOB = """
def main():
    for steps in 1, 5:
        _stack.prepare()
        core.init()
        train(steps)
        core.shutdown()
def hang():
    time.sleep(1000)  # here
def train(steps):
    for step in range(steps):
        reduce("loss")
        if step == 2 and RANK == core.world().size - 1:
            hang()
        reduce("grad.fc.weight")
main()
"""


def test_a_second_job_of_the_same_processes_is_explained(jobs: Jobs) -> None:
    found = explained(start_hanging(jobs, SECOND_JOB), [2])
    assert found["cause"]["operation"] == "grad.fc.weight"
    assert found["cause"]["text"].endswith("in hang")


def test_a_stopped_worker_of_an_elastic_job_is_named_by_its_rank(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["sigstop"].code, "--min-np", "2")
    found = explained(job, [2])
    assert (found["cause"]["class"], found["cause"]["operation"]) == ("stopped", "grad.fc.weight")
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2]


def test_a_quit_signal_shows_the_dump_and_the_job_goes_on(jobs: Jobs) -> None:
    with inherited(signal.SIGQUIT, signal.SIG_DFL):
        job = start_hanging(jobs, CAUSES["lock"].code)
    explained(job, [2])
    assert job.stderr is not None
    for _ in range(2):
        job.send_signal(signal.SIGQUIT)
        line = job.stderr.readline().decode()
        assert line.startswith("horovodrun: rank 2 has not submitted grad.fc.weight, which ranks ")
        rank, begin = -1, "horovodrun: Rank "
        while rank != 2 or not line.endswith(" train(5)\n"):  # the last one
            line = job.stderr.readline().decode()
            rank = int(line[len(begin)]) if line.startswith(begin) else rank
    assert job.poll() is None


def test_a_stall_report_is_followed_by_the_cause_and_the_stack(jobs: Jobs) -> None:
    stall = ["--stall-check-warning-time-seconds", "1"]
    job = start_hanging(jobs, CAUSES["lock"].code, *stall)
    assert job.stderr is not None
    lines: list[str] = []
    while not lines or lines[-1] != "horovodrun:       lock.acquire()  # here":
        lines.append(job.stderr.readline().decode().rstrip())
    report = next(index for index, line in enumerate(lines) if line.endswith("Missing ranks:"))
    begin = (
        "horovodrun: rank 2 has not submitted grad.fc.weight, which ranks 0, 1 have awaited for "
    )
    assert [line for line in lines[report:] if line.startswith(begin)]
    assert not [line for line in lines if line.startswith("horovodrun: Rank 0")]


def test_the_ranks_of_a_stopped_launcher_are_asked_without_it(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["lock"].code)
    explained(job, [2])
    job.send_signal(signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{job.pid}/status").read_text(), "the stop")
    found = dumped(job)
    assert found["cause"]["class"] == "lock"
    remark = f"horovodrun (process {job.pid}) does not answer: only ranks on this host are shown"
    assert found["remarks"] == [remark]


HEALTHY = """
def hang(): pass
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
def reduce(name):
    values = array.array("f", [1.0])
    tensor = values.buffer_info()[0], (1,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), name, tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
    assert values[0] == core.world().size
    time.sleep(0.001)
"""


def test_a_healthy_job_is_not_accused_and_goes_on(jobs: Jobs) -> None:
    script = write_training(jobs.folder, HEALTHY, steps=1500)
    job = jobs.start("-np", "2", sys.executable, str(script))
    causes: list[str] = []

    def has_seen_some() -> bool:
        found = dumped(job)
        if found is not None and all(one["state"] for one in found["ranks"]):
            causes.append(found["cause"]["class"])
        return len(causes) == 10

    wait_until(has_seen_some, "ten dumps")
    job.send_signal(signal.SIGUSR1)  # the script's own
    result = ended(job)
    assert (result.code, result.out_lines.count("[0]<stdout>:end")) == (0, 1), result.err
    assert set(causes) == {"none"}


def test_a_signal_that_has_a_handler_is_left_alone(jobs: Jobs) -> None:
    mine = "signal.signal(59, lambda *_: os._exit(9))\n" + CAUSES["sleep"].code
    job = start_hanging(jobs, mine)
    texts: list[str] = []

    def has_dumped_all() -> bool:
        found = dumped(job)
        if found is None or not all(one["initialized"] for one in found["ranks"]):
            return False
        assert not any(one["answers"] or one["state"] for one in found["ranks"])
        texts.append(found["cause"]["text"])
        return True

    wait_until(has_dumped_all, "a dump")
    assert texts[-1] == "no rank has told what it waits for"
    assert job.poll() is None


def test_without_a_job_the_dump_says_so(jobs: Jobs) -> None:
    result = jobs.run("--dump", "1")
    assert result.code == 2
    assert result.said[0].startswith("process 1 is not a horovodrun of this user that has started")
