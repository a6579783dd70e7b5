"""What the arguments of public functions must be: the same rules and messages in every package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("horovod._core")

from horovod.common import _arguments as arguments
from horovod.common._backend import Backend, types_of
from horovod.common._extension import core
from horovod.common.basics import Adasum, Average, Max, Product, Sum

#: A framework whose tensors are the names of their types.
NAMES = Backend(("float32", "bool"), str)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no such op": (lambda: arguments.reduce_op(9, None), "op must be one of hvd.Average, Sum"),
    "True as op": (lambda: arguments.check_op(True), "op must be one of"),
    "both": (lambda: arguments.reduce_op(Sum, True), "only one of `op` and `average`"),
    "average": (lambda: arguments.reduce_op(None, "x"), "average must be True, False or None"),  # type: ignore[arg-type]
    "op of": (
        lambda: arguments.check_op_of("scatter", Max, (Average, Sum)),
        "scatter: op=Max is not supported, only Average or Sum",
    ),
    "root": (lambda: arguments.check_root("broadcast", "0"), "broadcast: root_rank must be"),
    "name": (lambda: arguments.check_name("allgather", 3), "allgather: name must be a str"),
    "factor": (lambda: arguments.factor("f", "prescale_factor", "2"), "f: prescale_factor must"),
    "compression": (
        lambda: arguments.check_compression("allreduce", 3),
        r"allreduce: compression must be a Compressor, such as hvd\.Compression\.none",
    ),
    "passes": (lambda: arguments.check_passes(0), "backward_passes_per_step must be a positive"),
    "no group": (lambda: arguments.group_of("g", 3), "g: tensors must be a list or tuple"),
    "empty group": (lambda: arguments.check_one_type("g", NAMES, []), "at least one tensor"),
    "mixed group": (
        lambda: arguments.check_one_type("g", NAMES, ["float32", "bool"]),
        "one type, got bool, float32",
    ),
    "predivide": (lambda: arguments.predivide("o", 2.0, Sum), "o: .* is for op=Average only"),
    "predivide by 0": (lambda: arguments.predivide("o", 0, Average), "must not be 0.0"),
    "bool": (lambda: arguments.check_reducible("r", NAMES, "bool", Sum), r"Max \(any\) and Min"),
    "uint16": (
        lambda: arguments.check_reducible("r", NAMES, "uint16", Max),
        "only in data mov",
    ),
    "adasum": (lambda: arguments.check_reducible("r", NAMES, "int32", Adasum), "floating types"),
    "scalar": (lambda: arguments.check_rows("r", 0), "r: a scalar has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        call()


def test_what_can_be_used_is_taken() -> None:
    assert [arguments.reduce_op(op, None) for op in (None, Sum, Product)] == [Average, Sum, Product]
    with pytest.warns(DeprecationWarning):
        assert arguments.reduce_op(None, False) == Sum
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arguments.check_op_of("scatter", Sum, (Average, Sum))
        arguments.check_reducible("r", NAMES, "bool", Max)
        arguments.check_reducible("r", NAMES, "bfloat16", Adasum)
        arguments.check_one_type("g", NAMES, ["float32", "float32"])
    assert arguments.predivide("o", 2, Average) == 2.0 and arguments.predivide("o", 1, Sum) == 1.0


def test_an_unknown_type_is_refused_with_those_that_are_known_and_advice() -> None:
    odd = SimpleNamespace(dtype="odd")
    backend = Backend(NAMES.types, NAMES.type_of, lambda tensor: "; cast it")
    text = str(arguments.refused_type("allreduce", backend, odd))
    assert (
        text == "allreduce: type odd is not supported; supported types are float32, bool; cast it"
    )


def test_types_are_those_of_the_runtime_that_a_framework_has() -> None:
    assert types_of(SimpleNamespace(bool=1, float32=1, complex64=1)) == ("float32", "bool")
    assert core.DTYPES["uint8"] == 0 and len(set(core.DTYPES.values())) == len(core.DTYPES) == 11
