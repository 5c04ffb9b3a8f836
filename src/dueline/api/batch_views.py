"""What is known of the jobs of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from dueline.api.handle import R_co
from dueline.api.job_handle import Job
from dueline.batches.ends import DONE
from dueline.core.errors import JobFailed


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """How many jobs of a batch are in each state.

    Attributes:
      items: Number of items that are stored.
      done: Jobs that succeeded.
      dead: Jobs that failed for good; they can be retried.
      cancelled: Jobs that were cancelled.
      expired: Jobs that did not start before they expired.
      lost: Jobs whose worker died, in a queue that delivers at most once.
    """

    items: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    lost: int = 0

    @property
    def ended(self) -> int:
        """Jobs that have ended."""
        return self.done + self.failed

    @property
    def failed(self) -> int:
        """Jobs that have ended without a result."""
        return self.dead + self.cancelled + self.expired + self.lost

    @property
    def left(self) -> int:
        """Jobs that wait or run."""
        return self.items - self.ended

    def by_state(self) -> Mapping[str, int]:
        """Return the numbers of ended jobs by state."""
        names = ("done", "dead", "cancelled", "expired", "lost")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[R_co]):
    """An ended job of a batch.

    Attributes:
      index: Its position in the batch, from 0.
      job: A handle on the job.
      status: done, dead, cancelled, expired or lost.
      value: What the handler returned; None if it failed.
      error: Type and message of the last error; empty if it is done.
    """

    index: int
    job: Job[R_co]
    status: str
    value: R_co | None = None
    error: str = ""

    def result(self) -> R_co:
        """Return what the handler returned.

        Raises:
            JobFailed: The job is not done.
        """
        if self.status != DONE:
            why = f"The item {self.index} of the batch is {self.status}: {self.error}"
            raise JobFailed(f"{why.rstrip(': ')} (job {self.job.id}).")
        return self.value  # type: ignore[return-value]  # it is done
