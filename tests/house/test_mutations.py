"""Every guard that a mutation removes is in its source: the mutants themselves run rarely."""

from __future__ import annotations

import pytest

from devtool.mutants import changed_text
from devtool.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_a_mutation_changes_one_place(mutation: Mutation) -> None:
    assert mutation.replace in changed_text(mutation)
