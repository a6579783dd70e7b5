"""Runs one allreduce from torch, by this project or by torch.distributed with Gloo."""

import sys

import torch

tensor = torch.ones(2)
if sys.argv[1] == "ours":
    import horovod.torch as hvd

    hvd.init()
    hvd.allreduce_(tensor, op=hvd.Sum, name="first")
    hvd.shutdown()
else:
    import torch.distributed as gloo

    gloo.init_process_group("gloo")
    gloo.all_reduce(tensor)
    gloo.destroy_process_group()
assert tensor[0] > 1
