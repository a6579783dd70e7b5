"""Processes that end while daemon threads wait for operations, or that fork beside operations."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from typing import Any

import tensorflow as tf
from test_tf_pending import in_session
from tf_ranks import run_alone, tell

import horovod.tensorflow as hvd
from horovod.tensorflow import _library


def end_with_threads_that_wait() -> None:
    """Each waits for what the other rank never does."""
    gc.unfreeze()  # so that it exits as any process does
    hvd.init()
    x, me = tf.ones(3), hvd.rank()
    in_function = tf.function(lambda t: hvd.allreduce(t, name=f"function {me}"), autograph=False)

    def eager() -> None:
        hvd.allreduce(x, name=f"eager {me}")

    def function() -> None:
        in_function(x)

    for body in (eager, function, hvd.barrier if me == 0 else hvd.join):
        threading.Thread(target=body, daemon=True).start()
    time.sleep(1)  # most wait by now; wherever they are, the end is the same
    tell("end")
    sys.exit(3)


def test_daemon_threads_that_wait_leave_the_exit_code_alone() -> None:
    job = run_alone(2, end_with_threads_that_wait)
    assert job.returncode == 3, job.output
    assert job.told == [["end"]] * 2, job.output


def fork_while_a_node_is_at_work() -> None:
    """The child does at its end what the package has registered. It has no thread that could end
    the node."""
    hvd.init()
    has_begun, over = threading.Event(), threading.Event()

    def slow(t: Any) -> Any:
        has_begun.set()
        over.wait()
        return t

    def body(x: Any) -> Any:
        return tf.py_function(slow, [hvd.allreduce(x, name="x")], tf.float32)

    thread = threading.Thread(target=in_session, args=(body, -1))
    thread.start()
    has_begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        _library._end_nodes()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    over.set()
    thread.join()
    tell("done")


def test_a_child_that_is_forked_while_a_node_is_at_work_does_not_wait_for_it() -> None:
    job = run_alone(2, fork_while_a_node_is_at_work)
    assert job.returncode == 0, job.output
    assert job.told == [["done"]] * 2, job.output
