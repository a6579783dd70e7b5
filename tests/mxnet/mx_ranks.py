"""The tests of horovod.mxnet on every rank of real jobs: see forked_ranks.py."""

from __future__ import annotations

from pathlib import Path

from forked_ranks import EVERYWHERE as EVERYWHERE
from forked_ranks import ForkedRanks
from rank_jobs import tell as tell

RANKS = ForkedRanks(Path(__file__).parent / "mx_rank_main.py", "horovod.mxnet")
on_ranks = RANKS.on_ranks
run_alone = RANKS.run_alone
