"""A launcher that does nothing but set variables: `start_all.py VARIABLES COMMAND...`, where
VARIABLES is a list in JSON with a dictionary for each process. Ends with the first status that is
not 0; who has not ended a while after that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

GRACE_SECONDS = 10


def wait_for(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Returns the first status that is not 0; the others then have limited time to exit."""
    code = 0
    deadline = None
    while any(process.poll() is None for process in processes):
        ended = [process.returncode for process in processes if process.returncode]
        if ended and deadline is None:
            code, deadline = ended[0], time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(0.01)
    return code or next((process.returncode for process in processes if process.returncode), 0)


def main() -> int:
    variables = json.loads(sys.argv[1])
    return wait_for(
        [subprocess.Popen(sys.argv[2:], env={**os.environ, **one}) for one in variables]
    )


if __name__ == "__main__":
    sys.exit(main())
