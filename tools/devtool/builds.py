"""The builds that suites and commands need, by name."""

from __future__ import annotations

from collections.abc import Callable

from devtool import emulated, setup, tensorflow_device, torch_device, wheel

#: Of the stand-ins for the driver and NCCL.
STAND_INS = ("fake_cuda", "fake_nccl", "fake_hip", "fake_rccl")


def for_gpu_tests() -> str:
    """The package, the programs that run on the stand-ins, and the device of torch."""
    programs = [f"test_{folder}" for folder in setup.ON_STAND_INS]
    built = [setup.install_package(), setup.build_preset("release", *programs, *STAND_INS)]
    return ", ".join([*built, torch_device.build()])


def for_gpu_tests_of_tensorflow() -> str:
    built = [setup.install_package(), setup.build_preset("release", *STAND_INS)]
    return ", ".join([*built, tensorflow_device.build()])


BUILDS: dict[str, Callable[[], str]] = {
    **setup.BUILDS,
    "gpu": for_gpu_tests,
    "gpu-tensorflow": for_gpu_tests_of_tensorflow,
    "wheel": wheel.build_for_tests,
    emulated.TESTS: emulated.build,
}
