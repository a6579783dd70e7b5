"""Starting jobs: the Python interface to the program `horovodrun`."""

from horovod.runner._failure import RankFailed
from horovod.runner._run import run

__all__ = ["RankFailed", "run"]
