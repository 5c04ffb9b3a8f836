"""What a worker asks of a runner."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from dueline.core.attempt import Ended
from dueline.core.job import Claim, Job
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment


class Runner(Protocol):
    """What runs handlers: threads of this process, or child processes.

    isolates: a job that dies takes nothing else along if it is submitted as `alone`.
    extend: hears of all claims that last longer than their rows say, by the store's time.
    capacity: how many of its threads could run a job now, if they were idle.
    waiting_since_us: when it got the oldest job that waits behind others, by the monotonic clock;
    None where there is none. take_waiting: takes these jobs back; a later call brings those that
    children have to return first.
    """

    isolates: bool
    threads: int

    @property
    def run_us(self) -> float: ...  # noqa: D102
    @property
    def capacity(self) -> int: ...  # noqa: D102
    def start(self) -> None: ...  # noqa: D102
    def submit(self, assignments: Sequence[Assignment]) -> None: ...  # noqa: D102
    def spread(self) -> None: ...  # noqa: D102
    def collect(self) -> list[Ended]: ...  # noqa: D102
    def running(self) -> list[Job]: ...  # noqa: D102
    def take_back(self) -> list[Job]: ...  # noqa: D102
    def waiting_since_us(self) -> int | None: ...  # noqa: D102
    def take_waiting(self) -> list[Job]: ...  # noqa: D102
    def extend(self, until_us: Mapping[Claim, int]) -> None: ...  # noqa: D102
    def forget(self, lost: Sequence[Claim]) -> None: ...  # noqa: D102
    def cancel(self, claims: Sequence[Claim]) -> None: ...  # noqa: D102
    def reports(self) -> Mapping[Claim, ProgressReport]: ...  # noqa: D102
    def waiting(self) -> int: ...  # noqa: D102
    def interrupt_overdue(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
