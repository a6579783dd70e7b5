"""The program of each rank of a chaos run.

    chaos_rank.py FOLDER STEP_MS COMMIT_EVERY

It notes its birth before it imports torch, which takes seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chaos_notes import BIRTH, Notebook


def main(folder: Path, step_ms: float, commit_every: int) -> None:
    notes = Notebook(folder)
    notes.write(BIRTH)
    from chaos_train import train

    train(notes, folder, step_ms / 1e3, commit_every)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
