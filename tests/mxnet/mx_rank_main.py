"""What a rank runs: the tests that mx_ranks.py asks for."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import mx_ranks

if __name__ == "__main__":
    mx_ranks.RANKS.serve("mxnet")
