"""Data-parallel training: N processes run one script, and their gradients are averaged.

Importing this package imports no framework. Use the module of yours: `import horovod.torch as hvd`.
"""

from typing import Any

from horovod.runner import run

__all__ = ["__version__", "run"]
__version__ = "1.0.0.dev0"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext horovod` in a notebook."""
    from horovod.runner import notebook

    notebook.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext horovod`."""
    from horovod.runner import notebook

    notebook.unload(shell)
