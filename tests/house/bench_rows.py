"""Results as benches store them, made up."""

from __future__ import annotations

from typing import Any

from harness.results import Document, Row, Work

WORK = Work("shm", "allreduce", "float32", 2)
MACHINE = {"cpu": "a", "cores": 2, "memory_GiB": 1, "kernel": "6", "versions": {"x": "1"}}


def row(peer: str, us: float, size: int = 8, rounds: int = 9, **more: object) -> Row:
    of_rounds = {str(number): us for number in range(1, rounds + 1)}
    times = {"median_us": us, "min_us": us, "rounds": of_rounds}
    return {"peer": peer, **vars(WORK), "bytes": size, **times} | more


def gap(peer: str, why: str = "is not there", **more: object) -> Row:
    return {**vars(WORK), "peer": peer, "why": why} | more


def run_of(date: str, command: str = "", **more: object) -> dict[str, Any]:
    """What a document says of what is measured now."""
    return {"date": date, "machine": MACHINE | more, "command": command}


def document(bench: str, rows: list[Row], missing: list[Row] | None = None) -> Document:
    """One whose rows were all measured by one command."""
    made = Document(bench, [], [], [], run_of("2026-01-01 00:00"))
    made.replace([], rows, missing or [])
    return made
