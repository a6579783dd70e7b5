"""Ranks that horovodrun has not started read HOROVOD_TLS themselves."""

from __future__ import annotations

import sys

import pytest
from started import each_with, expect_sums, start
from test_by_hand import ranks
from test_torchrun import torchrun
from wire import CARD, sniffed_loopback


@pytest.mark.parametrize("how", ["by hand", "torchrun"])
def test_with_encryption_nobody_on_the_way_can_read_them(how: str) -> None:
    for tls, readable in (("0", {CARD}), ("1", set())):
        variables = {"HOROVOD_TLS": tls, "HOROVOD_TRANSPORT": "tcp"}
        python = (sys.executable,) if how == "by hand" else ()
        with sniffed_loopback(CARD) as own:
            launcher = each_with(ranks(2)) if how == "by hand" else torchrun(2)
            job = start([*own.enter, *launcher], 2, environment=variables, python=python)
        expect_sums(job)
        assert own.seen == readable, f"HOROVOD_TLS={tls}"
