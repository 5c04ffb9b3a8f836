"""Options of tasks whose function takes several jobs at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dueline.core.call_options import check_fields
from dueline.core.clock import SECOND_US, duration_us
from dueline.core.errors import BadInput

SIZE_MAX: Final = 1_000
WITHIN_US_MAX: Final = 3_600 * SECOND_US


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How jobs of a task are gathered into one call of its function.

    size: maximum number of jobs, up to 1000. within: how long the worker waits for more jobs after
    the first one, in seconds or as a timedelta, up to an hour. by: only jobs with the same value
    are gathered, such as "{account}"; empty for all jobs.
    """

    size: int = 100
    within: timedelta | float = 1.0
    by: str = ""

    def __post_init__(self) -> None:
        """Check the values."""
        if type(self.size) is not int or not 1 <= self.size <= SIZE_MAX:
            raise BadInput(f"size is {self.size!r:.20}.", hint=f"Use 1 to {SIZE_MAX}.")
        if not 0 <= self.within_us <= WITHIN_US_MAX:
            raise BadInput(f"within is {self.within!r:.40}.", hint="Use 0 s to an hour.")
        if not isinstance(self.by, str):
            raise BadInput(f"by={self.by!r:.80} is no text.", hint='Write by="{account}".')

    @property
    def within_us(self) -> int:
        """How long a batch waits for more jobs."""
        return duration_us(self.within)

    def check(self, names: Iterable[str], task: str) -> None:
        """Check that `by` names arguments of the task."""
        check_fields(self.by, "batch key", names, task)
