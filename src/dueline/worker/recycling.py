"""When a child process has worked enough."""

from typing import NamedTuple


class RecycleAfter(NamedTuple):
    """When a child has worked enough; None for never.

    jobs: that it ran. memory_bytes: that it holds resident.
    """

    jobs: int | None = None
    memory_bytes: int | None = None


NO_RECYCLING = RecycleAfter()
