"""When a task pauses itself."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from dueline.core.clock import SECOND_US, asked_span_us
from dueline.core.constraints import check_constraints, integer
from dueline.core.errors import BadInput

ATTEMPTS_MAX = 1_000
CRASHES_MAX = 100


@dataclass(frozen=True, slots=True)
class Failures:
    """When a task is paused by itself, such as `Failures(5, of=10, probe_every=60)`.

    A circuit breaker: if `count` of the last attempts failed, in all workers together, the task is
    paused in its queue. Then one job probes it each `probe_every`; the first one that succeeds
    resumes the task.

    Attributes:
        count: Number of failures, 1 to 1,000.
        of: Number of the last attempts of which they are counted; by default `count`.
        probe_every: Time between two probes in seconds, or a timedelta; at least a second.
        crashes: Number of jobs that crash their process in the same way within a day, which pauses
            the task however many others succeed; 0 for never.

    Raises:
        BadInput: A value is out of range, or `of` is less than `count`.
    """

    count: Annotated[int, integer(1, ATTEMPTS_MAX)]
    of: Annotated[int, integer(1, ATTEMPTS_MAX)] = None  # type: ignore[assignment]  # see below
    probe_every: timedelta | float = 60.0
    crashes: Annotated[int, integer(0, CRASHES_MAX)] = 0

    def __post_init__(self) -> None:
        """Check the values, and set the default of `of`."""
        if self.of is None:
            object.__setattr__(self, "of", self.count)
        check_constraints(self)
        if self.of < self.count:
            raise BadInput(
                f"`of` must be at least `count`, {self.count} (got {self.of}).",
                hint="Use Failures(5, of=10).",
            )
        if self.probe_every_us < SECOND_US:
            raise BadInput(
                f"`probe_every` must be at least 1 s (got {self.probe_every!r}).", hint="Use 60."
            )

    @property
    def probe_every_us(self) -> int:
        """Time between two probes, in microseconds."""
        return asked_span_us(self.probe_every, "probe_every")


def check_pause(pause_after: object) -> None:
    """Raise BadInput if this is neither a rule nor None."""
    if not isinstance(pause_after, Failures | None):
        raise BadInput(
            f"`pause_after` must be a Failures (got {pause_after!r:.80}).",
            hint="Use pause_after=Failures(5, of=10).",
        )
