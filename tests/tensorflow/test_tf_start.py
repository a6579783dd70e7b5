"""How ranks of these tests start: without what TensorFlow imports only because it is there."""

from __future__ import annotations

import sys

import pytest
from requirements_met import unmet
from tf_ranks import on_ranks

tf = pytest.importorskip("tensorflow")


def test_the_package_asks_for_nothing_that_does_not_fit_beside_this_tensorflow() -> None:
    assert unmet() == []


@on_ranks(1)
def test_a_rank_starts_without_jax_and_matplotlib() -> None:
    assert tf.constant(1.0).numpy() == 1.0
    assert not {"jax", "matplotlib"} & set(sys.modules)
