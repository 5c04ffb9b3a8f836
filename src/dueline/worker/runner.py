"""The protocol of runners."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dueline.core.attempt import Ended
from dueline.core.job import Claim, Job
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment
from dueline.worker.chunk_inbox import ChunkInbox


class LostSlot(NamedTuple):
    """A slot whose handler has outlived its time limit. since_us: when that passed."""

    job: Job
    since_us: int


class Runner(Protocol):
    """Runs handlers, in threads of this process or in child processes.

    Attributes:
      isolates: A job submitted as `alone` cannot harm others if its process dies.
      threads: Number of jobs that run at the same time.
      run_us: Mean run time of a job; 0 while unknown.
      capacity: Number of jobs that could run now if nothing else ran.

    `stop_by_force` ends running jobs as cancelled, with their child processes. A thread cannot be
    stopped: its job ends, and how its handler ends is reported later, too.
    `stop_running` asks running handlers to end, and how each of them ends is collected.
    `extend` gets all claims that last longer than their rows say, by the store's time.
    `waiting_since_us` returns when the oldest job arrived that waits behind others, by the
    monotonic clock. `take_waiting` takes these jobs back; a later call includes those that children
    return.
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
    def stop_by_force(self, claims: Sequence[Claim]) -> None: ...  # noqa: D102
    def reports(self) -> Mapping[Claim, ProgressReport]: ...  # noqa: D102
    @property
    def chunks(self) -> ChunkInbox: ...  # noqa: D102
    def waiting(self) -> int: ...  # noqa: D102
    def interrupt_overdue(self) -> None: ...  # noqa: D102
    def lost(self) -> Sequence[LostSlot]: ...  # noqa: D102
    def stop_running(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
