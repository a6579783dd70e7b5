"""Data-parallel training: N processes run one script, and their gradients are averaged.

Importing this package imports no framework. Use the module of yours: `import horovod.torch as hvd`.
"""

__version__ = "1.0.0.dev0"
