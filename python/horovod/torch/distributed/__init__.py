"""A backend of torch.distributed: `torch.distributed.init_process_group("hvd")`.

Scripts need no import of this package: torch 2.5 and later finds the backend by an entry point. For
older torch, `import horovod.torch` registers it. See docs/torch_distributed.md.
"""

from horovod.torch.distributed._creation import create
from horovod.torch.distributed._errors import DistributedError
from horovod.torch.distributed._process_group import ProcessGroupHorovod

__all__ = ["DistributedError", "ProcessGroupHorovod", "create"]
