"""The progress of running jobs."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import Claim

NOTE_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a job reported.

    done, total: in units of the handler's choice. note: what it is doing. at_us: when it was
    recorded, in microseconds UTC.
    """

    done: float
    total: float
    note: str
    at_us: int

    @property
    def at(self) -> datetime:
        """When it was recorded; in UTC."""
        return datetime.fromtimestamp(self.at_us / SECOND_US, UTC)


class ProgressReport(NamedTuple):
    """The progress that a handler reports."""

    done: float
    total: float
    note: str


class Control(Protocol):
    """What a handler's Context needs from the worker that runs the handler."""

    def is_lost(self, claim: Claim) -> bool:
        """Return whether the claim was lost."""
        ...

    def is_cancelled(self, claim: Claim) -> bool:
        """Return whether the cancellation of the job was requested."""
        ...

    def report(self, claim: Claim, report: ProgressReport) -> None:
        """Pass on the progress of the handler."""
        ...


class NoControl:
    """The control of a plain call: it cannot be cancelled, and its progress is dropped."""

    def is_lost(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def is_cancelled(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def report(self, claim: Claim, report: ProgressReport) -> None:
        """Drop it."""


def report_of(done: object, total: object, note: object) -> ProgressReport:
    """Return a progress report, or raise BadInput.

    Raises: BadInput: the numbers are not finite, or the note is not a string.
    """
    if not (_is_amount(done) and _is_amount(total) and isinstance(note, str)):
        raise BadInput(
            f"Invalid progress({done!r:.40}, {total!r:.40}, {note!r:.40}).",
            hint="Pass two numbers, 0 or more, and a string as the note.",
        )
    text = note[:NOTE_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
    return ProgressReport(done, total, text)  # type: ignore[arg-type]  # just checked


def _is_amount(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return math.isfinite(number) and 0 <= number < 2**63
