"""Every sample of an epoch counts once, whatever happens to ranks and hosts, with the decisions of
the real launcher."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from driven_worlds import run_driven_worlds
from elastic_data import KINDS
from elastic_worlds import seeds

Patch = pytest.MonkeyPatch
ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "release" / "launcher" / "libelastic_driver.so"
LIBRARY = Path(os.environ.get("HVD_ELASTIC_DRIVER", BUILT))  # a mutant of it


def test_every_sample_counts_once(monkeypatch: Patch) -> None:
    chosen = seeds(3000)
    found = run_driven_worlds(chosen, LIBRARY, monkeypatch)
    print("\n".join(f"{count:>12} {what}" for what, count in sorted(found.items())))
    if len(chosen) >= 1000:
        assert found["finished"] > len(chosen) // 2
        for what in (
            "kill", "stop", "cut", "host", "dark", "given up with their host",
            "killed while it asks", "late joiners", "refused", "changed hosts", "clock jumps",
            "slow commits", "asks twice", "generations", "explained waits", "leavers",
            "left at a commit", "all have left", "stopped before it asks",
            "given up while stopped", "rejected", "kills of --chaos", "ended by the reset limit",
            *KINDS,
        ):  # fmt: skip
            assert found[what] > 0, what


def test_one_seed_is_one_sequence(monkeypatch: Patch) -> None:
    once = run_driven_worlds(range(50), LIBRARY, monkeypatch)
    assert run_driven_worlds(range(50), LIBRARY, monkeypatch) == once
