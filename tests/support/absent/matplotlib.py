"""Stands before the matplotlib that is installed, for processes that draw nothing: ../slim.py."""

raise ImportError("this process starts without matplotlib")
