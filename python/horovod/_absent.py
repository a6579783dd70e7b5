"""Modules of Horovod that this package does not have: the ImportError has the reason and a
replacement.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_ALSO_NOT = "it is not in this version; use "
_START = "horovodrun, or horovod.run(function, num_proc=N) from a Python program"
#: Below horovod.
_REASONS = {
    "spark": f"{_ALSO_NOT}{_START} on the hosts of the cluster",
    "ray": f"{_ALSO_NOT}{_START} on the hosts of the cluster",
    "tensorflow2": "use horovod.tensorflow, which is for TensorFlow 2 too",
    "tf": "use horovod.tensorflow",
    "tf_keras": "use horovod.tensorflow.keras",
    "pytorch": "use horovod.torch",
    "lightning": "use horovod.torch",
    "elastic": "use horovod.torch.elastic, horovod.tensorflow.elastic or horovod.keras.elastic",
    "runner.mpi_run": f"use {_START}, with --mpi or use_mpi=True",
    "runner.gloo_run": f"use {_START}",
    "runner.js_run": "use horovodrun --jsrun",
    "run": "use horovod.runner, or horovod.run(function, num_proc=N)",
}
_FRAMEWORKS = ("torch", "tensorflow", "keras", "jax")


def reason(name: str) -> str | None:
    """Why there is no `horovod.<name>`, and what to use instead; None: nothing is known of it."""
    if name in _REASONS:
        return f"there is no module horovod.{name}: {_REASONS[name]}"
    if "." in name or name.startswith("_"):
        return None
    import difflib  # only for those who have mistyped something

    near = difflib.get_close_matches(name, _modules(), n=1, cutoff=0.75)
    return f"there is no module horovod.{name}; did you mean horovod.{near[0]}?" if near else None


def attribute_error(name: str) -> AttributeError:
    """For `horovod.<name>`, which is neither a function nor a module that has been imported."""
    if name.startswith("__"):
        text = f"module 'horovod' has no attribute {name!r}"
    elif name in _modules():
        text = f"horovod.{name} has not been imported: import horovod.{name}"
    else:
        choices = ", ".join(f"import horovod.{module} as hvd" for module in _FRAMEWORKS)
        known = reason(name)
        text = known or (
            f"module 'horovod' has no attribute {name!r}; the functions are in the module of your "
            f"framework: {choices}"
        )
    return AttributeError(text)


class Finder:
    """Asked last: what is found elsewhere is no matter of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        why = reason(name) if package == "horovod" and name else None
        if why is not None:
            # Without its name: `from horovod import x` would drop an error that has it.
            raise ModuleNotFoundError(why)
        return None


def _modules() -> list[str]:
    """Those that are there and public."""
    import pkgutil

    found = pkgutil.iter_modules(sys.modules["horovod"].__path__)
    return [module.name for module in found if not module.name.startswith("_")]
