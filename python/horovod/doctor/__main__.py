"""`python -m horovod.doctor`."""

import sys

from horovod.doctor.command import main

if __name__ == "__main__":
    sys.exit(main())
