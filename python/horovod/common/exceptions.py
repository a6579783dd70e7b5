"""Exceptions that users catch. The native module raises the first two by name."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective operation failed because a rank was lost or the job has ended.

    Elastic training restores the last committed state and starts again.
    """


class HorovodMismatchError(HorovodInternalError, ValueError):
    """Ranks disagree about one operation. The job continues, and the name can be used again.

    The text has the operation, the ranks and both values. Elastic training does not retry, since
    ranks would disagree again.
    """


class HorovodShutdownError(RuntimeError):
    """This worker has no place in its elastic job any more: its host or slot was removed. The text
    has the reason. Let the process end.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added to or removed from an elastic job.

    `skip_sync`: True if hosts were only removed, so that the state need not be broadcast.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Tells which version of framework `name` is needed, which one is there, and what to do."""
    return (
        f"this build of Horovod works with {name} {version}, but {name} {installed_version} is "
        f"installed; install a matching {name}, or reinstall Horovod beside the installed one: "
        "pip install --no-cache-dir --force-reinstall horovod"
    )


class HorovodVersionMismatchError(ImportError):
    """The installed version of a framework is not one that this build works with."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
