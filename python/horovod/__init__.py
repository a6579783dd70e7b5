"""Data-parallel training: several processes run the same script and average their gradients.

Importing this package does not import a framework. Import the module for your framework: `import
horovod.torch as hvd`, `horovod.tensorflow`, `horovod.tensorflow.keras` or `horovod.keras`.
"""

import sys
from typing import TYPE_CHECKING, Any

from horovod import _absent
from horovod.runner import run

__all__ = ["__version__", "run"]
__version__ = "1.0.0.dev0"

sys.meta_path.append(_absent.Finder())

if not TYPE_CHECKING:  # for which every attribute would be there then

    def __getattr__(name):
        raise _absent.attribute_error(name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext horovod` in a notebook."""
    from horovod.runner import notebook

    notebook.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext horovod`."""
    from horovod.runner import notebook

    notebook.unload(shell)
