"""Starting jobs. `horovodrun` is a program; this package is its face in Python."""

from horovod.runner._failure import RankFailed
from horovod.runner._run import run

__all__ = ["RankFailed", "run"]
