"""Which versions of JAX are used, and what remains of JAX when Horovod refuses one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from devtool.paths import ROOT
from horovod.jax import _library

HEADERS = Path(jax.ffi.include_dir())
#: Our structure, the one of XLA, and the fields that this library uses: ours and theirs.
LAYOUTS = {
    ("Extension", "XLA_FFI_Extension_Base"): ("struct_size type next",) * 2,
    ("Version", "XLA_FFI_Api_Version"): (
        "struct_size extensions major minor",
        "struct_size extension_start major_version minor_version",
    ),
    ("Metadata", "XLA_FFI_Metadata"): (
        "struct_size version traits",
        "struct_size api_version traits",
    ),
    ("MetadataExtension", "XLA_FFI_Metadata_Extension"): (
        "base metadata",
        "extension_base metadata",
    ),
    ("Buffer", "XLA_FFI_Buffer"): ("dtype data rank dims",) * 2,
    ("Buffers", "XLA_FFI_Args"): ("size types items", "size types args"),
    ("Text", "XLA_FFI_ByteSpan"): ("data length", "ptr len"),
    ("Scalar", "XLA_FFI_Scalar"): ("dtype value",) * 2,
    ("Attributes", "XLA_FFI_Attrs"): ("size types names values", "size types names attrs"),
    ("ErrorArguments", "XLA_FFI_Error_Create_Args"): ("message code", "message errc"),
    ("NewFutureArguments", "XLA_FFI_Future_Create_Args"): ("future",) * 2,
    ("FutureArguments", "XLA_FFI_Future_SetAvailable_Args"): ("future",) * 2,
    ("FutureErrorArguments", "XLA_FFI_Future_SetError_Args"): ("future error",) * 2,
    ("Api", "XLA_FFI_Api"): (
        "version new_error new_future future_available future_failed",
        "api_version XLA_FFI_Error_Create XLA_FFI_Future_Create XLA_FFI_Future_SetAvailable "
        "XLA_FFI_Future_SetError",
    ),
    ("Frame", "XLA_FFI_CallFrame"): (
        "extensions api stage arguments results attributes future",
        "extension_start api stage args rets attrs future",
    ),
}
#: Ours, and the names of XLA.
NUMBERS = {
    "kMetadataExtension": "XLA_FFI_Extension_Metadata",
    "kBool": "XLA_FFI_DataType_PRED",
    "kInt8": "XLA_FFI_DataType_S8",
    "kInt16": "XLA_FFI_DataType_S16",
    "kInt32": "XLA_FFI_DataType_S32",
    "kInt64": "XLA_FFI_DataType_S64",
    "kUint8": "XLA_FFI_DataType_U8",
    "kUint16": "XLA_FFI_DataType_U16",
    "kFloat16": "XLA_FFI_DataType_F16",
    "kFloat32": "XLA_FFI_DataType_F32",
    "kFloat64": "XLA_FFI_DataType_F64",
    "kBfloat16": "XLA_FFI_DataType_BF16",
    "kToken": "XLA_FFI_DataType_TOKEN",
    "kScalar": "XLA_FFI_AttrType_SCALAR",
    "kString": "XLA_FFI_AttrType_STRING",
    "kInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "kFailedPrecondition": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "kInternal": "XLA_FFI_Error_Code_INTERNAL",
    "kUnavailable": "XLA_FFI_Error_Code_UNAVAILABLE",
}


def comparison() -> str:
    """A program that compiles if our declarations are those of XLA."""
    lines = [
        "#include <cstddef>",
        '#include "adapters/jax/c_api.h"',
        '#include "xla/ffi/api/c_api.h"',
    ]
    if "XLA_FFI_InternalExtension" in (HEADERS / "xla/ffi/api/c_api.h").read_text():
        lines.append("#define XLA_FFI_Extension_Base XLA_FFI_InternalExtension")  # JAX 0.12
    lines.append("namespace o = hvd::xla;")
    for (ours, theirs), (fields, their_fields) in LAYOUTS.items():
        for field, other in zip(fields.split(), their_fields.split(), strict=True):
            lines.append(
                f"static_assert(offsetof(o::{ours}, {field}) == offsetof({theirs}, {other}));"
            )
            lines.append(f"static_assert(sizeof(o::{ours}::{field}) == sizeof({theirs}::{other}));")
    for ours, theirs in NUMBERS.items():
        lines.append(f"static_assert(int{{o::{ours}}} == int{{{theirs}}});")
    return "\n".join([*lines, ""])


def compiled(text: str, folder: Path) -> str:
    """What the compiler says of a program."""
    source = folder / "comparison.cc"
    source.write_text(text)
    command = ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", f"-I{HEADERS}", str(source)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def test_our_declarations_are_those_of_the_installed_xla(tmp_path: Path) -> None:
    said = compiled(comparison(), tmp_path)
    # Later versions have more fields in a Metadata, whose size is not compared.
    assert "error" not in said, said
    assert "error" in compiled(comparison() + "static_assert(o::kMajor == 1);\n", tmp_path)


def test_all_structures_are_compared() -> None:
    text = (ROOT / "adapters/jax/c_api.h").read_text()
    assert {ours for ours, _ in LAYOUTS} == set(re.findall(r"^struct (\w+) \{", text, re.M))
    assert set(NUMBERS) == set(re.findall(r"\b(k\w+) = \d+", text)) - {"kMajor", "kMinor"}


def test_the_version_is_that_of_the_library() -> None:
    text = (ROOT / "adapters/jax/c_api.h").read_text()
    numbers = re.search(r"kMajor = (\d+), kMinor = (\d+)", text)
    assert numbers and tuple(map(int, numbers.groups())) == (_library._MAJOR, _library._MINOR)
    found = _library.interface_version(HEADERS)
    assert found is not None and not _library.problem(_library._OLDEST_JAXLIB, found)


@pytest.mark.parametrize(
    ("jaxlib", "interface", "why"),
    [
        ((0, 7, 1), (0, 1), "is older than 0.7.2"),
        ((0, 9, 0), (1, 0), "has version 1.0"),
        ((0, 8, 0), (0, 0), "has version 0.0"),
    ],
)
def test_other_versions_are_refused(
    jaxlib: tuple[int, ...], interface: tuple[int, int], why: str
) -> None:
    assert why in _library.problem(jaxlib, interface)


def test_versions_that_do_not_say_what_they_have_are_tried(tmp_path: Path) -> None:
    assert _library.interface_version(tmp_path) is None
    assert _library.problem((0, 8, 1), None) == ""


REFUSED = """
import sys
import jax.extend.core, jax.numpy, jaxlib.version
{change}
try:
    import horovod.jax
except ImportError as error:
    print(error)
print(float(jax.jit(lambda x: x + 1)(jax.numpy.ones([]))))
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("jaxlib.version.__version_info__ = (0, 4, 35)", "jaxlib 0.4.35 is older than 0.7.2"),
        ("jax.ffi.include_dir = lambda: sys.argv[1]", "has version 1.0, and Horovod uses 0.1"),
        ("del jax.extend.core.Primitive", "its ordered effects have changed"),
    ],
)
def test_jax_works_without_us_if_its_version_is_refused(
    change: str, why: str, tmp_path: Path
) -> None:
    header = tmp_path / "xla" / "ffi" / "api" / "c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 1\n#define XLA_FFI_API_MINOR 0\n")
    program = REFUSED.format(change=change)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "Horovod does not fit the installed jax" in ended.stdout
    assert why in ended.stdout
    assert ended.stdout.splitlines()[-1] == "2.0"
