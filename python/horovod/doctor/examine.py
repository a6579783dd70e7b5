"""Runs on one rank per host: prints the facts of that host as one line of JSON."""

from __future__ import annotations

import argparse
import os

from horovod.doctor.collect import collect
from horovod.doctor.facts import as_json

MARK = "horovod-doctor:"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", required=True, help="of each host, in rank order")
    parser.add_argument("--frameworks", help="load only these of the installed frameworks")
    arguments = parser.parse_args()
    slots = [int(word) for word in arguments.slots.split(",")]
    names = arguments.frameworks
    only = None if names is None else [name for name in names.split(",") if name]
    rank = int(os.environ["HOROVOD_RANK"])
    print(MARK, as_json(collect(slots[rank], sum(slots), only)), flush=True)


if __name__ == "__main__":
    main()
