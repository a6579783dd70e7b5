"""`python -m horovod.runner`: the launcher, where `horovodrun` is not in PATH."""

from horovod.runner.launch import run_commandline

run_commandline()
