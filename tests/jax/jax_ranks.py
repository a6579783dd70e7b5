"""The tests of horovod.jax on every rank of real jobs: see forked_ranks.py."""

from __future__ import annotations

from pathlib import Path

from forked_ranks import EVERYWHERE as EVERYWHERE
from forked_ranks import JOB_SECONDS as JOB_SECONDS
from forked_ranks import ForkedRanks
from rank_jobs import tell as tell

#: JAX reads them when it is imported, and when its backend is created.
RANKS = ForkedRanks(
    Path(__file__).parent / "jax_rank_main.py",
    "horovod.jax",
    {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
)
on_ranks = RANKS.on_ranks
run_alone = RANKS.run_alone
