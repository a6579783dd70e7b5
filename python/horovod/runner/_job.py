"""A job that belongs to this process: `horovodrun` as a child, and a connection to every rank.

Single-threaded: the owner of the Job calls `turn()`, which waits for the next event, forwards the
output and returns the messages of ranks. The job ends when this process ends, for whatever reason
(docs/decisions/0020-functions-travel-over-connections-to-the-caller.md). In an elastic job, a
"rank" here is the number of a worker, in the order in which they connect.
"""

from __future__ import annotations

import codecs
import os
import secrets
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Literal

from horovod.common._channel import Channel, Closed, Message, Stalled, secret_of
from horovod.common._gate import BACKLOG, Gate, run_ready
from horovod.runner import _program

Stream = Literal["stdout", "stderr"]
#: Receives the launcher's output: lines of ranks with their prefix, and its own messages.
Output = Callable[[Stream, str], None]

PORT_VARIABLE = "HOROVOD_CALLER_PORT"
#: The purpose for which the job's key is used here.
PURPOSE = "horovod.run"
#: Set by the launcher for ranks of mpirun: the key in hexadecimal digits, and the comma-separated
#: addresses of this host.
CALLER_KEY = "HOROVOD_CALLER_KEY"
CALLER_HOSTS = "HOROVOD_CALLER_HOSTS"
#: A rank that accepts no data for this long is lost.
_SEND_SECONDS = 300
_READ_BYTES = 1 << 16


class Job:
    """Use it in a `with` statement, which ends the job."""

    def __init__(
        self,
        flags: Sequence[str],
        command: Sequence[str],
        output: Output,
        *,
        other_hosts: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Starts `horovodrun FLAGS COMMAND`. `other_hosts`: ranks may run on other hosts; also if
        the launcher finds hosts by itself."""
        environment = environment or dict(os.environ)
        key = secrets.token_bytes(32)
        self._output = output
        self._ranks: dict[int, Channel] = {}
        self._numbers: dict[str, int] = {}
        self._said: list[tuple[int, Message]] = []  # since the last turn returned
        self._selector = selectors.DefaultSelector()
        listener = _listen(other_hosts or finds_hosts(environment))
        self._port: int = listener.getsockname()[1]
        self._open_streams = 0
        self._closed = False
        self.words: list[str] = []  #: the launcher's messages, and why a rank was given up
        try:
            self._process = self._start(key, flags, command, environment)
        except BaseException:
            listener.close()
            raise
        self._gate = Gate(
            listener, secret_of(key, PURPOSE), self._selector, self._admit, _SEND_SECONDS
        )
        self._watch_stream("stdout")
        self._watch_stream("stderr")

    def _start(
        self,
        key: bytes,
        flags: Sequence[str],
        command: Sequence[str],
        environment: dict[str, str],
    ) -> subprocess.Popen[bytes]:
        """Starts it in its own session, so that interrupts of the terminal reach only this
        process."""
        file = os.memfd_create("horovod-key", os.MFD_CLOEXEC)
        try:
            os.pwrite(file, key, 0)
            caller = ("--caller", str(os.getpid()), "--caller-key", str(file))
            return subprocess.Popen(
                [_program.find(), *caller, *flags, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[file],
                start_new_session=True,
                env={**environment, PORT_VARIABLE: str(self._port)},
            )
        finally:
            os.close(file)

    @property
    def exit_code(self) -> int:
        """As a shell reports it. Valid once `has_ended()`."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def has_ended(self) -> bool:
        """True once the launcher has closed its output, which it does when no process of the job is
        left."""
        return self._open_streams == 0

    def watch(self, sock: socket.socket, readable: Callable[[], None]) -> None:
        """Calls `readable` within `turn()` when `sock` is readable."""
        self._selector.register(sock, selectors.EVENT_READ, readable)

    def unwatch(self, sock: socket.socket) -> None:
        if not self._closed:
            self._selector.unregister(sock)

    def turn(self, seconds: float | None = None) -> list[tuple[int, Message]]:
        """Waits for the next event. Returns the messages of ranks, each with its rank.

        This class adds ("hello", pid, host, whether mpirun started it) once per rank, and ("gone",)
        at its end.
        """
        run_ready(self._selector, seconds, self._gate.tend(), 0 if self._said else None)
        said, self._said = self._said, []
        return said

    def send(self, rank: int, message: Message) -> None:
        """Sends `message`. Does nothing if the rank has ended, which `turn()` reports. Ends the job
        if the rank no longer accepts data."""
        channel = self._ranks.get(rank)
        if channel is None:
            return
        try:
            channel.send(message)
        except Stalled as error:
            self.words.append(f"rank {rank} cannot be reached: {error}")
            self._lose(rank, channel)
            self.signal(signal.SIGTERM)
        except Closed:
            return

    def signal(self, number: signal.Signals) -> None:
        """Sends the signal to the launcher, which handles the ranks."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """Ends the job, forwarding its remaining output, and closes everything. May be called
        again."""
        if self._closed:
            return
        self.signal(signal.SIGTERM)
        try:
            while not self.has_ended():
                self.turn()
        except KeyboardInterrupt:
            self.kill()
            raise
        finally:
            self.close()

    def kill(self) -> None:
        """Kills the launcher; its supervisor kills the remaining processes."""
        self._process.kill()

    def close(self) -> None:
        self._closed = True
        self._open_streams = 0
        for channel in self._ranks.values():
            channel.close()
        self._ranks.clear()
        self._gate.close()
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *unused: object) -> None:
        self.end()

    def _watch_stream(self, stream: Stream) -> None:
        pipe: IO[bytes] | None = getattr(self._process, stream)
        assert pipe is not None
        file = pipe.fileno()
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        line = ""

        def readable() -> None:
            nonlocal line
            received = os.read(file, _READ_BYTES)
            text = decoder.decode(received, final=not received)
            if text:
                self._output(stream, text)
            if stream == "stderr":
                *whole, line = (line + text).split("\n")
                self.words += [word for word in whole if word.startswith("horovodrun: ")]
            if not received:
                self._selector.unregister(file)
                self._open_streams -= 1

        self._selector.register(file, selectors.EVENT_READ, readable)
        self._open_streams += 1

    def _admit(self, channel: Channel, messages: list[Message]) -> None:
        (what, name, *rest), *further = messages
        rank = self._number_of(name)
        if what != "hello" or rank in self._ranks:
            channel.close()
            return
        self._ranks[rank] = channel
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear(rank, channel))
        self.send(rank, ("welcome",))
        self._said.append((rank, ("hello", *rest)))
        self._said += [(rank, message) for message in further]

    def _number_of(self, name: int | str) -> int:
        """Workers of an elastic job have names, since their ranks change."""
        if isinstance(name, int):
            return name
        return self._numbers.setdefault(name, len(self._numbers))

    def _hear(self, rank: int, channel: Channel) -> None:
        try:
            self._said += [(rank, message) for message in channel.arrived()]
        except Closed:
            self._lose(rank, channel)

    def _lose(self, rank: int, channel: Channel) -> None:
        self._selector.unregister(channel)
        channel.close()
        del self._ranks[rank]
        self._said.append((rank, ("gone",)))


def finds_hosts(environment: Mapping[str, str]) -> bool:
    """True if the launcher, given no hosts, uses those of an LSF allocation, or of the host file of
    Kubeflow's MPI operator (version 1 or 2)."""
    return (
        environment.get("LSB_JOBID", "") != ""
        or environment.get("K_MPI_JOB_ROLE") == "launcher"
        or environment.get("OMPI_MCA_plm_rsh_agent") == "/etc/mpi/kubexec.sh"
    )


def _listen(other_hosts: bool) -> socket.socket:
    """Listens on loopback only, unless ranks may run on other hosts."""
    if not other_hosts:
        return socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
        )
    return socket.create_server(("", 0), backlog=BACKLOG)
