"""Encrypted connections of a job: what others see, change and notice of them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from elastic_training import entries, training
from launcher import Jobs, ended, wait_until
from test_silent_ranks import GRACE
from wire import CARD, Proxy, sniffed_loopback

pytest.importorskip("horovod._core")

TCP = {"HOROVOD_TRANSPORT": "tcp"}
TENSOR = b"weights of the first layer"
RANK = f"""
import array, os, sys
import horovod._core as core

FIRST
core.init()
values = array.array("b", {TENSOR!r} * 40000)
tensor = values.buffer_info()[0], (len(values),), core.DTYPES["int8"], values
operation = core.Operation(core.BROADCAST)
for number in range(3):
    handle = core.submit_tensors(operation, f"tensor.{{number}}", tensor, tensor, None)
    core.wait(handle)
    core.free(handle)
print("sum", sum(values), flush=True)
core.shutdown()
"""


def command(folder: Path, first: str = "") -> list[str]:
    """`first` is run before init."""
    (folder / "rank.py").write_text(RANK.replace("FIRST", first))
    return [sys.executable, "rank.py"]


@pytest.mark.parametrize("np", [2, 3])
def test_nobody_on_the_way_can_read_an_encrypted_job(jobs: Jobs, np: int) -> None:
    with sniffed_loopback(TENSOR, CARD) as own:
        jobs.through = own.enter
        plain = jobs.run("-np", str(np), *command(jobs.folder), env=TCP)
    assert plain.code == 0, plain.err
    assert own.seen == {TENSOR, CARD}, "the test does not see what it looks for"
    with sniffed_loopback(TENSOR, CARD) as own:
        jobs.through = own.enter
        result = jobs.run("-np", str(np), "--encrypt", *command(jobs.folder), env=TCP)
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == sorted(plain.out_lines)
    assert own.seen == set()


PROXY = """
if os.environ["HOROVOD_RANK"] == "1":
    import pathlib, time
    port = pathlib.Path("port")
    port.write_text(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    while not os.path.exists("proxy"):
        time.sleep(0.01)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = pathlib.Path("proxy").read_text()
"""
#: What the server sends before the first record: a challenge and a proof.
HANDSHAKE_BYTES = 40 + 88


def test_a_byte_that_is_changed_on_the_way_ends_the_job_with_a_sentence(jobs: Jobs) -> None:
    process = jobs.start("-np", "2", "--encrypt", *command(jobs.folder, PROXY))
    port, told = jobs.folder / "port", jobs.folder / "proxy"
    wait_until(lambda: port.exists() and port.read_text() != "", "the port")
    proxy = Proxy(int(port.read_text()), HANDSHAKE_BYTES + 10)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        (jobs.folder / "proxy.part").write_text(str(proxy.own_port))
        (jobs.folder / "proxy.part").rename(told)
        result = ended(process)
    finally:
        proxy.close()
    assert result.code != 0 and proxy.flipped
    changed = "an encrypted record from the launcher was changed, repeated, dropped or cut"
    assert changed in result.err, result.err


def test_ranks_that_differ_are_both_named_on_all_ranks(jobs: Jobs) -> None:
    first = 'os.environ["HOROVOD_TLS"] = os.environ["HOROVOD_RANK"]'
    result = jobs.run("-np", "2", *GRACE, *command(jobs.folder, first))
    assert result.code != 0
    sentence = "HOROVOD_TLS must be the same on every rank, but is 0 on rank 0, 1 on rank 1"
    lines = [line for line in result.err.splitlines() if sentence in line]
    assert [any(line.startswith(f"[{rank}]") for line in lines) for rank in range(2)] == [True] * 2


def test_an_elastic_job_is_encrypted_in_all_generations(jobs: Jobs) -> None:
    kill = "if (generation, rank, step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"
    words = training(jobs.folder, kill, "generation >= 2")
    options = ("-np", "3", "--min-np", "2", "--encrypt")
    with sniffed_loopback(CARD) as own:
        jobs.through = own.enter
        result = jobs.run(*options, *words, env=TCP)
    assert result.code == 0, result.err
    assert sorted(entries(result)) == [0, 1, 2]
    assert own.seen == set()
