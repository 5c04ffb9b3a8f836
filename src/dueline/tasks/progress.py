"""How far a running job has come."""

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
    """How far a job said that it had come, and when it was heard.

    done, total: in units of the handler's own. note: what it is at. at_us: microseconds UTC.
    """

    done: float
    total: float
    note: str
    at_us: int

    @property
    def at(self) -> datetime:
        """When it was heard; in UTC."""
        return datetime.fromtimestamp(self.at_us / SECOND_US, UTC)


class ProgressReport(NamedTuple):
    """What a handler says of its progress."""

    done: float
    total: float
    note: str


class Control(Protocol):
    """What a handler's Context stands on: whoever runs the handler."""

    def is_lost(self, claim: Claim) -> bool:
        """Tell whether the claim was lost."""
        ...

    def is_cancelled(self, claim: Claim) -> bool:
        """Tell whether somebody asked for the job to be cancelled."""
        ...

    def tell(self, claim: Claim, report: ProgressReport) -> None:
        """Pass on how far the handler has come."""
        ...


class NoControl:
    """The control of a plain call: nobody cancels it, and nobody hears of its progress."""

    def is_lost(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def is_cancelled(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def tell(self, claim: Claim, report: ProgressReport) -> None:
        """To nobody."""


def report_of(done: object, total: object, note: object) -> ProgressReport:
    """Let a report pass, or say what is wrong with it.

    Raises: BadInput: these are no finite numbers, or the note is no text.
    """
    if not (_is_amount(done) and _is_amount(total) and isinstance(note, str)):
        raise BadInput(
            f"progress({done!r:.40}, {total!r:.40}, {note!r:.40}) is none.",
            hint="Give two numbers, 0 or more, and a text as the note.",
        )
    text = note[:NOTE_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
    return ProgressReport(done, total, text)  # type: ignore[arg-type]  # just checked


def _is_amount(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return math.isfinite(number) and 0 <= number < 2**63
