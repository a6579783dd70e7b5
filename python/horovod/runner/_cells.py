"""Runs cells on a rank of a notebook, one after the other, in a persistent namespace.

The main thread runs the cells. A second thread receives messages, since an interrupt must be
received while a cell runs. The output of a cell goes through the launcher, like all output of
ranks; a mark at its end tells the notebook that it is complete.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import queue
import signal
import sys
import threading
import time
import traceback
import types
from typing import Any

from horovod.common._channel import Channel, Closed
from horovod.runner._path import extend_path

#: Written before the number of a cell, after all its output. A control character that programs do
#: not print.
END_MARK = "\x1e"


class _Cells:
    """State that the two threads of a rank share."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.waiting: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self.running: int | None = None  # the cell that may be interrupted
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # makes definitions in cells picklable by name
        self.namespace = module.__dict__

    def listen(self) -> None:
        """Handles messages until the notebook ends or sends "stop"."""
        try:
            while True:
                what, *rest = self.channel.receive()
                if what == "cell":
                    self.waiting.put((rest[0], rest[1]))
                elif what == "interrupt":
                    self.interrupt(rest[0])
                elif what == "release":
                    self.release(rest[0])
                elif what == "stop":
                    break
        except Closed:
            pass
        self.waiting.put(None)
        if self.running is not None:  # no process waits for its result
            os.kill(os.getpid(), signal.SIGTERM)

    def interrupt(self, number: int) -> None:
        thread = threading.main_thread().ident
        if self.running == number and thread is not None:
            signal.pthread_kill(thread, signal.SIGINT)

    def release(self, number: int) -> None:
        """Ends an operation that waits for ranks that have left the cell."""
        core: Any = sys.modules.get("horovod._core")
        if self.running == number and core is not None and core.is_initialized():
            with contextlib.suppress(RuntimeError):  # a rank is lost: it has ended in any case
                core.shutdown()

    def run_all(self) -> None:
        while (cell := self.waiting.get()) is not None:
            number, source = cell
            begin = time.monotonic()
            shown, problem = self.run(number, source)
            seconds = time.monotonic() - begin
            _mark_end(number)
            self.channel.send(("done", number, seconds, shown, problem))

    def run(self, number: int, source: str) -> tuple[str | None, tuple[str, str] | None]:
        """Returns the value of the last expression as text, and the last line and text of a
        traceback."""
        try:
            self.running = number
            return self._execute(source, f"<cell {number}>"), None
        except BaseException as error:
            self.running = None
            shown = traceback.TracebackException(type(error), error, error.__traceback__)
            not_ours = [frame for frame in shown.stack if frame.filename != __file__]
            shown.stack = traceback.StackSummary.from_list(not_ours)
            line = "".join(shown.format_exception_only()).strip()
            return None, (line, "".join(shown.format()))
        finally:
            self.running = None

    def _execute(self, source: str, name: str) -> str | None:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr) or source.rstrip().endswith(";"):
            exec(compile(tree, name, "exec"), self.namespace)
            return None
        tree.body.pop()
        exec(compile(tree, name, "exec"), self.namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), self.namespace)
        if value is None:
            return None
        self.namespace["_"] = value
        return repr(value)


def serve(channel: Channel, path: list[str]) -> int:
    """Runs cells until the notebook ends or sends "stop". Returns the exit code."""
    extend_path(path)
    cells = _Cells(channel)

    def on_interrupt(*unused: object) -> None:
        if cells.running is not None:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
    threading.Thread(target=cells.listen, name="hvd-notebook", daemon=True).start()
    cells.run_all()
    return 0


def _mark_end(number: int) -> None:
    for stream, file in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
            os.write(file, f"{END_MARK}{number}\n".encode())
        except (OSError, ValueError):  # the cell has closed it
            continue
