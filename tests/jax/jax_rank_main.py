"""What a rank runs: the tests that jax_ranks.py asks for."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import jax_ranks

if __name__ == "__main__":
    jax_ranks.RANKS.serve("optax")
