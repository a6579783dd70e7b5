"""Fixtures of the GPU tests: what runs on ranks is in gpu_ranks.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from core_seconds import pytest_runtest_call as pytest_runtest_call
from core_seconds import pytest_terminal_summary as pytest_terminal_summary

sys.path.insert(0, str(Path(__file__).parent))

import gpu_ranks


def pytest_collection_finish(session: pytest.Session) -> None:
    gpu_ranks.select(session.items)
