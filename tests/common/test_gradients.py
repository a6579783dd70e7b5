"""How gradients are reduced: the rules that hooks, tapes and graphs share."""

from __future__ import annotations

import pytest

pytest.importorskip("horovod._core")

from horovod.common._gradients import How, grouped, reduced_but_local
from horovod.common.basics import Average
from horovod.common.process_sets import global_process_set

ITEMS = [10, 11, 12, 13, 14]


def test_a_number_of_groups_takes_all_items_in_their_order() -> None:
    assert grouped(ITEMS, 2) == ([[10, 11, 12], [13, 14]], [])
    assert grouped(ITEMS, 9) == ([[item] for item in ITEMS], [])
    assert grouped([], 2) == ([], [])


def test_without_groups_every_item_is_left() -> None:
    for groups in (None, 0, []):
        assert grouped(ITEMS, groups) == ([], ITEMS)


def test_lists_give_the_groups_without_what_is_not_among_the_items() -> None:
    by_name = {"a": 12, "b": 10, "c": 13}
    assert grouped(ITEMS, [["a", "x", "b"], ["x"], ["c"]], by_name.get) == (
        [[12, 10], [13]],
        [11, 14],
    )
    assert grouped([0, 1], [["a"]], {"a": 0}.get) == ([[0]], [1])  # the first is not taken for none


def test_an_average_divides_before_the_sum_what_it_multiplies_by_afterwards() -> None:
    operation = How(None, Average, 4.0, False, global_process_set).operation()
    assert operation == {
        "op": Average,
        "prescale_factor": 0.25,
        "postscale_factor": 4.0,
        "process_set": global_process_set,
    }


def test_local_gradients_are_scaled_and_the_others_reduced_in_their_places() -> None:
    asked = []

    def reduce(gradients: list[float], variables: list[str]) -> list[float]:
        asked.append((gradients, variables))
        return [gradient + 100 for gradient in gradients]

    found = reduced_but_local(
        [1.0, 2.0, 3.0], ["x", "local", "y"], lambda v: v == "local", reduce, lambda g: g / 2
    )
    assert found == [101.0, 1.0, 103.0]
    assert asked == [([1.0, 3.0], ["x", "y"])]
