"""The builds that suites and commands need, by name."""

from __future__ import annotations

from collections.abc import Callable

from devtool import emulated, setup, tensorflow_device, torch_device, wheel


def for_gpu_tests() -> str:
    """The package, the programs and the devices of frameworks that run on the stand-ins."""
    programs = [f"test_{folder}" for folder in setup.ON_STAND_INS]
    targets = [*programs, "fake_cuda", "fake_nccl", "fake_hip", "fake_rccl"]
    built = [setup.install_package(), setup.build_preset("release", *targets)]
    return ", ".join([*built, torch_device.build(), tensorflow_device.build()])


BUILDS: dict[str, Callable[[], str]] = {
    **setup.BUILDS,
    "gpu": for_gpu_tests,
    "wheel": wheel.build_for_tests,
    emulated.TESTS: emulated.build,
}
