"""Fixtures of the TensorFlow and Keras tests: what runs on ranks is in tf_ranks.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from core_seconds import pytest_runtest_call as pytest_runtest_call
from core_seconds import pytest_terminal_summary as pytest_terminal_summary

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parent))

import tf_ranks


def pytest_collection_finish(session: pytest.Session) -> None:
    tf_ranks.select(session.items)
