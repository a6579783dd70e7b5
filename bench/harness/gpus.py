"""The section about GPUs in the benchmark report, from the results of `./dev gpu`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from harness.tables import aligned

NOT_MEASURED = """## GPU

Not measured: no GPU was at hand. `./dev gpu` measures on one ([gpus.md](gpus.md)).
"""


class Goal(NamedTuple):
    """`row` must be at most (times) or at least (rates) `factor` times another row, or `factor`."""

    row: str
    factor: float
    anchor: str = ""


_DRIVER = "copy by the driver, GB/s"
_CALL = "allreduce_async_ and synchronize, 4 B, us"
GOALS = (
    Goal(_CALL, 1.0, "torch.distributed.all_reduce, 4 B, us"),
    Goal("bundle of 160 gradients, us per gradient", 1.0),
    Goal("copy kernel, pieces of 4 KiB, GB/s", 0.3, _DRIVER),
    Goal("copy kernel, pieces of 64 KiB, GB/s", 0.7, _DRIVER),
    Goal("copy kernel, pieces of 1 MiB, GB/s", 0.85, _DRIVER),
    *(
        Goal(f"{model}: step with DistributedOptimizer, ms", factor, f"{model}: {other}, ms")
        for model in ("GPT", "resnet50")
        for factor, other in ((1.02, "plain step"), (1.0, "step with DistributedDataParallel"))
    ),
)


def verdict(goal: Goal, rows: Mapping[str, float]) -> str:
    """Returns what is compared and whether the goal is met; empty if something was not measured."""
    if goal.row not in rows or (goal.anchor and goal.anchor not in rows):
        return ""
    is_rate = goal.row.endswith("GB/s")
    limit = goal.factor * (rows[goal.anchor] if goal.anchor else 1.0)
    is_met = rows[goal.row] >= limit if is_rate else rows[goal.row] <= limit
    bound = f"{'at least' if is_rate else 'at most'} {limit:.2f}"
    if goal.anchor:
        bound += f" ({goal.factor:g} x {goal.anchor.rpartition(',')[0]})"
    return f"{bound}: {'met' if is_met else 'missed'}"


def section(folder: Path) -> str:
    """`folder`: has one JSON file per device."""
    parts = [shown(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return "\n".join(["## GPU\n", *parts]) if parts else NOT_MEASURED


def shown(result: dict[str, object]) -> str:
    rows = result["rows"]
    assert isinstance(rows, dict)
    lines = [["what", "measured", "goal"]]
    for name, value in rows.items():
        verdicts = [verdict(goal, rows) for goal in GOALS if goal.row == name]
        lines.append([name, f"{value:.2f}", "; ".join(filter(None, verdicts))])
    where = f"{result['device']}, torch {result['torch']}, {result['date']}."
    return f"{where}\n\n{aligned(lines)}\n"
