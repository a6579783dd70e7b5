"""At which ports a process listens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def ports_of(pid: int) -> list[int]:
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    ports = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            inode = os.readlink(entry).removeprefix("socket:[").removesuffix("]")
            if inode in listening:
                ports.append(listening[inode])
    return sorted(ports)
