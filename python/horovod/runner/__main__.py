"""`python -m horovod.runner`: starts the launcher if `horovodrun` is not in PATH."""

from horovod.runner.launch import run_commandline

run_commandline()
