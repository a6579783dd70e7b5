"""Fixtures of the MXNet tests: what runs on ranks is in mx_ranks.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from core_seconds import pytest_runtest_call as pytest_runtest_call
from core_seconds import pytest_terminal_summary as pytest_terminal_summary

sys.path.insert(0, str(Path(__file__).parent))

import mx_ranks


def pytest_collection_finish(session: pytest.Session) -> None:
    mx_ranks.RANKS.select(session.items)
