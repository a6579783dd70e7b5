"""Gives the hosts that a HostDiscovery finds to `horovodrun`, by a script that prints them."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path

from horovod.runner.elastic.discovery import HostDiscovery

_EVERY_SECONDS = 1.0
_MOST_SLOTS = 65536


class PublishedHosts:
    """Use it in a `with` statement. A thread of its own calls the HostDiscovery every second."""

    def __init__(self, discovery: HostDiscovery) -> None:
        """Calls it for the first time, and raises what it raises."""
        self._discovery = discovery
        self._folder = tempfile.TemporaryDirectory(prefix="horovod-hosts-")
        self._file = Path(self._folder.name) / "hosts"
        #: The program for --host-discovery-script.
        self.script = str(Path(self._folder.name) / "discover")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="horovod-hosts", daemon=True)
        try:
            self._publish()
            Path(self.script).write_text(f"#!/bin/sh\nexec cat {shlex.quote(str(self._file))}\n")
            os.chmod(self.script, 0o700)
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> PublishedHosts:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        """Does not wait for a call of the HostDiscovery that hangs."""
        self._ends.set()
        self._thread.join(_EVERY_SECONDS)
        self._folder.cleanup()

    def _watch(self) -> None:
        problem = ""
        while not self._ends.wait(_EVERY_SECONDS):
            try:
                self._publish()
                problem = ""
            except (Exception, SystemExit) as error:  # which would end this thread only
                if not self._ends.is_set() and problem != repr(error):
                    problem = repr(error)
                    warnings.warn(
                        f"the HostDiscovery of horovod.run failed, so the hosts stay as they are: "
                        f"{problem}",
                        RuntimeWarning,
                        stacklevel=1,
                    )

    def _publish(self) -> None:
        found = self._discovery.find_available_hosts_and_slots()
        new = self._file.with_suffix(".new")
        new.write_text("".join(_line(host, slots) for host, slots in _checked(found).items()))
        new.replace(self._file)  # the script prints either the old or the new hosts


def _checked(found: object) -> Mapping[object, object]:
    if not isinstance(found, Mapping):
        raise TypeError(
            f"find_available_hosts_and_slots() returned {found!r}: it must be a dict of hosts and "
            "their slots, as in {'node1': 2}"
        )
    return found


def _line(host: object, slots: object) -> str:
    is_number = isinstance(slots, int) and not isinstance(slots, bool)
    if not isinstance(host, str) or not host or not is_number or not 0 <= slots <= _MOST_SLOTS:  # type: ignore[operator]
        raise ValueError(
            f"find_available_hosts_and_slots() returned the host {host!r} with {slots!r} slots: a "
            "host is a str, and its slots are an int"
        )
    return f"{host}:{slots}\n" if slots else ""
