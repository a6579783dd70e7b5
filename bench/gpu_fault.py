"""Measures how long a rank with GPU work under way takes to know that another one was killed.

./dev gpu runs it. Starts two ranks, on two GPUs or on one, which reduce without pause. Rank 1 kills
itself by SIGKILL; rank 0 notes when it got the error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 50
LIMIT_S = 100


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, help="write the row to this file")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def reduce_until_the_end(device: str, folder: Path) -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    index = hvd.local_rank() % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    tensor = torch.zeros(1 << 20, device=torch.device(device, index))
    for _ in range(ROUNDS):
        hvd.allreduce_(tensor, name="x", op=hvd.Sum)
    if hvd.rank() == 1:
        (folder / "killed").write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            hvd.allreduce_(tensor, name="x", op=hvd.Sum)
    except hvd.HorovodInternalError as error:
        now = time.monotonic()  # the clock of all processes of a machine
        (folder / "told").write_text(f"{now}\n{error}")
    os._exit(0)  # the GPU may be busy with what is lost


def launcher() -> str:
    return os.environ.get("HOROVODRUN") or shutil.which("horovodrun") or "horovodrun"


def main() -> int:
    arguments = parse_arguments()
    if arguments.rank_of:
        reduce_until_the_end(arguments.device, arguments.rank_of)
    with tempfile.TemporaryDirectory() as folder:
        command = [launcher(), "-np", "2", *sys.orig_argv, "--rank-of", folder]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        told = Path(folder, "told")
        if not told.exists():
            print(f"rank 0 was told nothing:\n{ended.stdout}{ended.stderr}", file=sys.stderr)
            return 1
        when, text = told.read_text().split("\n", 1)
        ms = (float(when) - float(Path(folder, "killed").read_text())) * 1e3
    print(f"{text}\n{'2 ranks: kill -9 to the error, ms':<52}{ms:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"2 ranks: kill -9 to the error, ms": ms}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
