"""Errors of horovod.run with wrong parameters, and of a module or function that does not exist. No
rank is started here.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("horovod._core")

import horovod


def train(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("it was called")


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((train, 2), {}, r"args=2: .* number of processes: horovod\.run\(train, num_proc=2\)"),
        ((train, "lr"), {}, r"args='lr': .* horovod\.run\(train, args=\('lr',\)\)"),
        ((train, 0.1), {}, r"args=0\.1: .* horovod\.run\(train, args=\(0\.1,\)\)"),
        ((train, None), {}, "args=None: it must be the list or tuple"),
        ((train, (), 2), {}, r"kwargs=2: it must be a dict .* horovod\.run\(train, num_proc=2\)"),
        ((2, train), {}, "func=2: it must be a function"),
        ((None,), {"num_proc": 2}, "pass the function itself, not what it returns"),
        ((train,), {"num_proc": "2"}, "num_proc='2': it must be the number of processes"),
        ((train,), {"num_proc": 2.0}, "num_proc=2.0: it must be the number"),
        ((train,), {"num_proc": True}, "num_proc=True: it must be the number"),
        ((train,), {"num_proc": None}, "num_proc=None: it must be the number"),
        ((train,), {"min_num_proc": "2"}, "min_num_proc='2': it must be the number of processes"),
        ((train,), {"slots": [2, 4]}, r"slots=\[2, 4\]: it must be a number, as in slots=4"),
        ((train,), {"reset_limit": True}, "reset_limit=True: it must be a number"),
        ((train,), {"cooldown_range": 5}, r"cooldown_range=5: .* as in cooldown_range=\(10, 60\)"),
        ((train,), {"cooldown_range": "15"}, "cooldown_range='15': it must be two numbers"),
        ((train,), {"cooldown_range": (1, 2, 3)}, r"cooldown_range=\(1, 2, 3\): it must be two"),
        ((train,), {"hosts": ["a:1", "b:1"]}, "hosts=.*must be a str, as in hosts='node1:2,node2"),
        ((train,), {"hostfile": 3}, "hostfile=3: it must be a str"),
    ],
)
def test_a_parameter_at_the_wrong_place_is_a_type_error(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        horovod.run(*args, **kwargs)


@pytest.mark.parametrize("value", [(0, 2), (2, 1), (1, 3601)])
def test_a_cooldown_has_limits(value: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="both must be from 1 to 3600 seconds"):
        horovod.run(train, min_num_proc=1, cooldown_range=value)


@pytest.mark.parametrize("value", [0, -1])
def test_fewer_than_one_process_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError, match=f"num_proc={value}: it must be at least 1"):
        horovod.run(train, num_proc=value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("spark", "horovod.run"),
        ("spark.torch", "horovod.run"),
        ("spark.common.store", "horovod.run"),
        ("ray", "horovodrun"),
        ("ray.elastic", "horovodrun"),
        ("pytorch", "use horovod.torch"),
        ("tensorfow", r"did you mean horovod.tensorflow\?"),
        ("runner.gloo_run", "horovod.run"),
    ],
)
def test_a_module_that_is_not_there_says_what_to_use_instead(name: str, instead: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=instead):
        importlib.import_module(f"horovod.{name}")


def test_it_is_said_however_it_is_imported() -> None:
    for statement in (
        "import horovod.spark",
        "from horovod import spark",
        "import horovod.spark.keras as k",
    ):
        with pytest.raises(ImportError, match=r"horovod\.spark: it is not in this version"):
            exec(statement)


def test_what_nothing_is_known_of_is_missing_as_elsewhere() -> None:
    assert importlib.util.find_spec("horovod.quux") is None
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod\.quux'"):
        importlib.import_module("horovod.quux")


@pytest.mark.parametrize("name", ["init", "DistributedOptimizer", "rank"])
def test_a_function_of_a_framework_is_looked_for_in_its_module(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'.*import horovod.torch as hvd"):
        getattr(horovod, name)


def test_a_module_that_was_not_imported_says_so() -> None:
    code = "import horovod\ntry:\n  horovod.torch\nexcept AttributeError as e:\n  print(e)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "horovod.torch has not been imported: import horovod.torch\n"
    with pytest.raises(AttributeError, match=r"no module horovod\.spark"):
        _ = horovod.spark
    assert not hasattr(horovod, "__wrapped__")


def test_a_value_that_no_flag_can_take_is_refused_by_the_launcher() -> None:
    with pytest.raises(RuntimeError, match=r"--start-timeout=30\.5: allowed is a whole number"):
        horovod.run(train, start_timeout=30.5)  # type: ignore[arg-type]
