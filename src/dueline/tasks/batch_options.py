"""What a task is declared with whose function takes many jobs at once."""

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
class Chunk:
    """How jobs of a task are gathered into one call of its function.

    size: at most so many, up to 1000. within: so long after the first of them has come to the
    worker the function is called with those that are there; seconds or a timedelta, up to an
    hour. by: jobs of one chunk have the same, such as "{account}"; all of them, where it is empty.
    """

    size: int = 100
    within: timedelta | float = 1.0
    by: str = ""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if type(self.size) is not int or not 1 <= self.size <= SIZE_MAX:
            raise BadInput(f"size is {self.size!r:.20}.", hint=f"Use 1 to {SIZE_MAX}.")
        if not 0 <= self.within_us <= WITHIN_US_MAX:
            raise BadInput(f"within is {self.within!r:.40}.", hint="Use 0 s to an hour.")
        if not isinstance(self.by, str):
            raise BadInput(f"by={self.by!r:.80} is no text.", hint='Write by="{account}".')

    @property
    def within_us(self) -> int:
        """How long a chunk waits for more jobs."""
        return duration_us(self.within)

    def check(self, names: Iterable[str], task: str) -> None:
        """Make sure that `by` names what the task's calls have."""
        check_fields(self.by, "chunk key", names, task)
