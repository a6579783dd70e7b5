"""A backend of torch.distributed: `torch.distributed.init_process_group("hvd")`.

Scripts need no import of this package: torch 2.5 and later finds the backend by an entry point. For
older torch, `import horovod.torch` registers it. See docs/torch_distributed.md.
"""

from horovod.torch import _library
from horovod.torch.distributed._arrival import await_others
from horovod.torch.distributed._creation import create
from horovod.torch.distributed._errors import DistributedError
from horovod.torch.distributed._process_group import ProcessGroupHorovod

# C++ code of torch, such as that of DDP, calls these functions also while a compiled model runs.
_library.leave_uncompiled(__name__)

__all__ = ["DistributedError", "ProcessGroupHorovod", "await_others", "create"]
