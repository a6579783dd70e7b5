"""Ranks that horovodrun has not started read HOROVOD_TLS themselves."""

from __future__ import annotations

import pytest
from started import each_with, expect_sums, start
from test_by_hand import ranks
from test_torchrun import torchrun
from wire import CARD, sniffed


@pytest.mark.parametrize("how", ["by hand", "torchrun"])
def test_with_encryption_nobody_on_the_way_can_read_them(how: str) -> None:
    for tls, readable in (("0", {CARD}), ("1", set())):
        variables = {"HOROVOD_TLS": tls, "HOROVOD_TRANSPORT": "tcp"}
        with sniffed(CARD) as seen:
            if how == "by hand":
                expect_sums(start(each_with(ranks(2)), 2, environment=variables))
            else:
                expect_sums(start(torchrun(2), 2, environment=variables, python=()))
        assert seen == readable, f"HOROVOD_TLS={tls}"
