"""What is linked into a wheel: a bill of materials (SBOM) and the licences, in its metadata.

The table of what there is comes from the libraries' prefix, the compiler and nanobind, with the
versions that were used. Nothing is stored in the tree."""

from __future__ import annotations

import email
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from devtool.libraries import LIBRARIES
from devtool.toolchain import zig, zig_version

FOLDER = "sboms"  #: in the metadata, by PEP 770
NAME = "horovod.cdx.json"
LICENCES = "licenses"  #: in the metadata, by PEP 639
LICENCE = "Apache-2.0"  #: of this project
#: Parts of zig that it links into binaries: licence, and the file with it in zig's folder.
LLVM = "Apache-2.0 WITH LLVM-exception"
RUNTIMES = {
    "libc++": (LLVM, "lib/libcxx/LICENSE.TXT"),
    "libc++abi": (LLVM, "lib/libcxxabi/LICENSE.TXT"),
    "libunwind": (LLVM, "lib/libunwind/LICENSE.TXT"),
    "compiler-rt of zig": ("MIT", "LICENSE"),
    # Of glibc, only what is linked statically into every program: the start of main() and stat().
    "start files of glibc": (
        "LGPL-2.1-or-later WITH GCC-exception-2.0",
        "lib/libc/glibc/LICENSES",
    ),
}
#: The namespace of the serial numbers.
SPACE = uuid.UUID("6c1c4c3e-5c3b-4f0c-9b1e-6f1f6f2c0c55")


@dataclass(frozen=True)
class Part:
    """One piece of other projects' code in the wheel."""

    name: str
    version: str
    licence: str  #: an expression of SPDX
    purl: str  #: where it is from
    text: str  #: of the licence


def parts(prefix: Path, site_packages: Path) -> list[Part]:
    """Returns all parts. `prefix`: of the libraries; `site_packages`: with nanobind."""
    return [*of_debian(prefix), *of_zig(), *of_nanobind(site_packages)]


def of_debian(prefix: Path) -> Iterator[Part]:
    used = json.loads((prefix / "versions.json").read_text())
    for library in LIBRARIES:
        source, version = used[library.name]["source"], used[library.name]["version"]
        purl = f"pkg:deb/debian/{source}@{quote(version, safe='')}?arch=source"
        text = (prefix / "licences" / library.name).read_text()
        yield Part(library.name, version, library.licence, purl, text)


def of_zig() -> Iterator[Part]:
    for name, (licence, file) in RUNTIMES.items():
        purl = f"pkg:pypi/ziglang@{zig_version()}"
        yield Part(name, zig_version(), licence, purl, (zig().parent / file).read_text())


def of_nanobind(site_packages: Path) -> Iterator[Part]:
    (metadata,) = site_packages.glob("nanobind-*.dist-info")
    version = metadata.name.removeprefix("nanobind-").removesuffix(".dist-info")
    purl = f"pkg:pypi/nanobind@{version}"
    text = (metadata / "licenses" / "LICENSE").read_text()
    yield Part("nanobind", version, "BSD-3-Clause", purl, text)
    # nanobind brings it along. Its licence is the comment at the beginning.
    header = site_packages / "nanobind" / "ext" / "robin_map" / "include" / "tsl" / "robin_map.h"
    text, _, _ = header.read_text().partition("*/")
    yield Part("robin-map", f"of nanobind {version}", "MIT", purl, text)


def sbom(version: str, found: Sequence[Part], epoch: int) -> str:
    """Returns the bill for a version of this project in the format of CycloneDX. The same parts at
    the same `epoch`, in seconds since 1970, are the same text."""
    root = {
        "type": "library",
        "bom-ref": "horovod",
        "name": "horovod",
        "version": version,
        "purl": f"pkg:pypi/horovod@{version}",
        "licenses": [{"expression": LICENCE}],
    }
    components = [component(part) for part in found]
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": root,
        },
        "components": components,
        "dependencies": [
            {"ref": "horovod", "dependsOn": [one["bom-ref"] for one in components]},
            *[{"ref": one["bom-ref"]} for one in components],
        ],
    }
    serial = uuid.uuid5(SPACE, json.dumps(bill, sort_keys=True))
    return json.dumps({**bill, "serialNumber": f"urn:uuid:{serial}"}, indent=2) + "\n"


def component(part: Part) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": part.name,
        "name": part.name,
        "version": part.version,
        "purl": part.purl,
        "licenses": [{"expression": part.licence}],
    }


def add(metadata: Path, found: Sequence[Part], epoch: int) -> None:
    """Adds the bill and the licences to `metadata`, the folder of an unpacked wheel."""
    text = (metadata / "METADATA").read_text()
    fields = email.message_from_string(text)
    (metadata / FOLDER).mkdir()
    (metadata / FOLDER / NAME).write_text(sbom(fields["Version"], found, epoch))
    others = metadata / LICENCES / "third-party"
    others.mkdir(parents=True)
    for part in found:
        (others / file_name(part)).write_text(part.text)
    (metadata / "METADATA").write_text(with_licences(text, found))


def file_name(part: Part) -> str:
    return re.sub(r"[^a-z0-9+]+", "-", part.name.lower()) + ".txt"


def with_licences(metadata: str, found: Sequence[Part]) -> str:
    """Returns the text of METADATA with the licences of all parts beside that of the project."""
    expression = " AND ".join(dict.fromkeys([LICENCE, *sorted({p.licence for p in found})]))
    files = [f"License-File: third-party/{file_name(part)}" for part in found]
    fields, end, description = metadata.partition("\n\n")
    fields = fields.replace(
        f"License-Expression: {LICENCE}\nLicense-File: LICENSE",
        "\n".join([f"License-Expression: {expression}", "License-File: LICENSE", *files]),
    )
    return fields + end + description
