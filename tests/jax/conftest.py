"""Fixtures of the JAX tests: what runs on ranks is in jax_ranks.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from core_seconds import pytest_runtest_call as pytest_runtest_call
from core_seconds import pytest_terminal_summary as pytest_terminal_summary

sys.path.insert(0, str(Path(__file__).parent))

import jax_ranks


def pytest_collection_finish(session: pytest.Session) -> None:
    jax_ranks.RANKS.select(session.items)
