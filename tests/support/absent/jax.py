"""Stands before the jax that is installed, for processes that do not use it: see ../slim.py."""

raise ImportError("this process starts without jax")
