"""A job that belongs to this process: `horovodrun` as a child, and a connection to every rank.

One thread does everything: whoever owns the Job calls `turn()`, which waits for whatever happens
next, passes the output on and returns what the ranks have said. The job ends with this process,
however that ends (docs/decisions/0020-functions-travel-over-connections-to-the-caller.md).
"""

from __future__ import annotations

import codecs
import os
import secrets
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Literal

from horovod.runner import _program
from horovod.runner._channel import Channel, Closed, Message, secret_of

Stream = Literal["stdout", "stderr"]
#: Takes what the launcher writes: ranks' lines with their prefix, and words of its own.
Output = Callable[[Stream, str], None]

PORT_VARIABLE = "HOROVOD_CALLER_PORT"
#: Of the launcher, where the ranks are those of mpirun: the key in hexadecimal digits, and the
#: addresses of this host, with commas between.
CALLER_KEY = "HOROVOD_CALLER_KEY"
CALLER_HOSTS = "HOROVOD_CALLER_HOSTS"
#: A rank that takes nothing for so long is not going to.
_SEND_SECONDS = 300
#: How long a connection may take to say who it is.
_GREETING_SECONDS = 10
_STRANGERS = 64
_READ_BYTES = 1 << 16


class Job:
    """Use it in a `with` statement: what is left of the job at its end is ended."""

    def __init__(
        self,
        flags: Sequence[str],
        command: Sequence[str],
        output: Output,
        *,
        other_hosts: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Starts `horovodrun FLAGS COMMAND`. `other_hosts`: ranks may come from elsewhere, as they
        may where the launcher finds hosts by itself."""
        environment = environment or dict(os.environ)
        key = secrets.token_bytes(32)
        self._secret = secret_of(key)
        self._output = output
        self._ranks: dict[int, Channel] = {}
        self._strangers: dict[Channel, float] = {}  # until when they may remain it
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(other_hosts or finds_hosts(environment))
        self._open_streams = 0
        self._closed = False
        self.words: list[str] = []  #: what the launcher itself has said
        try:
            self._process = self._start(key, flags, command, environment)
        except BaseException:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._watch_stream("stdout")
        self._watch_stream("stderr")

    def _start(
        self,
        key: bytes,
        flags: Sequence[str],
        command: Sequence[str],
        environment: dict[str, str],
    ) -> subprocess.Popen[bytes]:
        """A session of its own: an interrupt of the terminal or the notebook is ours to pass on."""
        port = self._listener.getsockname()[1]
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
                env={**environment, PORT_VARIABLE: str(port)},
            )
        finally:
            os.close(file)

    @property
    def exit_code(self) -> int:
        """As a shell tells it. Known once `has_ended()`."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def has_ended(self) -> bool:
        """The launcher has closed its output, which it does when nothing of the job is left."""
        return self._open_streams == 0

    def watch(self, sock: socket.socket, readable: Callable[[], None]) -> None:
        """Calls `readable` within `turn()` when `sock` can be read."""
        self._selector.register(sock, selectors.EVENT_READ, lambda said: readable())

    def unwatch(self, sock: socket.socket) -> None:
        if not self._closed:
            self._selector.unregister(sock)

    def turn(self, seconds: float | None = None) -> list[tuple[int, Message]]:
        """Waits for the next thing to happen; returns what ranks said, each with its rank.

        Of a rank itself come ("hello", pid, host, whether mpirun has started it), once, and
        ("gone",) at the end.
        """
        now = time.monotonic()
        for stranger in [one for one, until in self._strangers.items() if now > until]:
            self._drop(stranger)
        if self._strangers:
            seconds = min(_GREETING_SECONDS, seconds if seconds is not None else _GREETING_SECONDS)
        said: list[tuple[int, Message]] = []
        for key, _ in self._selector.select(seconds):
            key.data(said)
        return said

    def send(self, rank: int, message: Message) -> None:
        """Does nothing if the rank is gone: `turn()` tells that."""
        channel = self._ranks.get(rank)
        if channel is None:
            return
        try:
            channel.send(message)
        except Closed:
            return

    def signal(self, number: signal.Signals) -> None:
        """To the launcher, which knows what that means for the ranks."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """Ends what is left, passing on what it still says, and closes everything. May be called
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
        """Ends it at once: what the launcher leaves behind is killed by its supervisor."""
        self._process.kill()

    def close(self) -> None:
        self._closed = True
        self._open_streams = 0
        for channel in [*self._ranks.values(), *self._strangers]:
            channel.close()
        self._ranks.clear()
        self._strangers.clear()
        self._listener.close()
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

        def readable(said: list[tuple[int, Message]]) -> None:
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

    def _accept(self, said: list[tuple[int, Message]]) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        connection.setblocking(True)
        connection.settimeout(_SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._strangers) >= _STRANGERS:
            self._drop(min(self._strangers, key=self._strangers.__getitem__))
        channel = Channel(connection, self._secret, "caller")
        self._strangers[channel] = time.monotonic() + _GREETING_SECONDS
        self._selector.register(
            channel, selectors.EVENT_READ, lambda said: self._greet(channel, said)
        )

    def _drop(self, stranger: Channel) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger)
        stranger.close()

    def _greet(self, channel: Channel, said: list[tuple[int, Message]]) -> None:
        """A stranger says something: from the first message on that is proved it is a rank."""
        try:
            messages = channel.arrived()
        except Closed:
            self._drop(channel)
            return
        if not messages:
            return
        (what, rank, *rest), *further = messages
        if what != "hello" or rank in self._ranks:
            self._drop(channel)
            return
        del self._strangers[channel]
        self._ranks[rank] = channel
        self._selector.modify(
            channel, selectors.EVENT_READ, lambda said: self._hear(rank, channel, said)
        )
        self.send(rank, ("welcome",))
        said.append((rank, ("hello", *rest)))
        said += [(rank, message) for message in further]

    def _hear(self, rank: int, channel: Channel, said: list[tuple[int, Message]]) -> None:
        try:
            said += [(rank, message) for message in channel.arrived()]
        except Closed:
            self._selector.unregister(channel)
            channel.close()
            del self._ranks[rank]
            said.append((rank, ("gone",)))


def finds_hosts(environment: Mapping[str, str]) -> bool:
    """Whether the launcher, given no hosts, takes those of an allocation of LSF, or those in the
    host file of Kubeflow's MPI operator (of its second or its first version)."""
    return (
        environment.get("LSB_JOBID", "") != ""
        or environment.get("K_MPI_JOB_ROLE") == "launcher"
        or environment.get("OMPI_MCA_plm_rsh_agent") == "/etc/mpi/kubexec.sh"
    )


def _listen(other_hosts: bool) -> socket.socket:
    """Ranks of this host need no other way than the loopback."""
    if not other_hosts:
        return socket.create_server(("127.0.0.1", 0), backlog=1024)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
        )
    return socket.create_server(("", 0), backlog=1024)
