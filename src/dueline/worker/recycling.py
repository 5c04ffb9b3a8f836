"""When a child process is replaced."""

from typing import NamedTuple


class RecycleAfter(NamedTuple):
    """When a child process is replaced; None for never.

    Attributes:
      jobs: Number of jobs that it ran.
      memory_bytes: Resident memory that it holds.
    """

    jobs: int | None = None
    memory_bytes: int | None = None


NO_RECYCLING = RecycleAfter()
