"""The progress of running jobs."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.core.job import Claim
from dueline.core.text import storable
from dueline.core.user_code import text_of
from dueline.tasks.chunks import Emitted

NOTE_CHARACTERS_MAX = 500
META_BYTES_MAX = 4096

NO_TOTAL = -1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a job reported.

    done, total: in units of the handler's choice. note: what it is doing. at_us: when it was
    recorded, in microseconds UTC. meta: what the handler noted with `set_meta`, as JSON.
    """

    done: float
    total: float
    note: str
    at_us: int
    meta: str = ""

    @property
    def is_reported(self) -> bool:
        """Whether the handler reported progress, and not only notes."""
        return self.total != NO_TOTAL

    @property
    def at(self) -> datetime:
        """When it was recorded; in UTC."""
        return datetime.fromtimestamp(self.at_us / SECOND_US, UTC)


class ProgressReport(NamedTuple):
    """The progress that a handler reports. total: NO_TOTAL if it has only noted something.

    spent: what the job really takes of its limits, as `spend` said last.
    """

    done: float
    total: float
    note: str
    meta: str = ""
    spent: tuple[tuple[str, int], ...] = ()

    @property
    def says_progress(self) -> bool:
        """Whether it says something that callers of the job can read."""
        return self.total != NO_TOTAL or bool(self.note or self.meta)


class Control(Protocol):
    """What a handler's Context needs from the worker that runs the handler.

    is_draining: The worker stops, and waits for its handlers.
    """

    @property
    def is_draining(self) -> bool: ...  # noqa: D102

    def is_lost(self, claim: Claim) -> bool:
        """Return whether the claim was lost."""
        ...

    def is_cancelled(self, claim: Claim) -> bool:
        """Return whether the cancellation of the job was requested."""
        ...

    def is_overdue(self, claim: Claim) -> bool:
        """Return whether the handler runs longer than its time limit."""
        ...

    def was_taken(self, claim: Claim) -> bool:
        """Return whether the claim was lost, not only given up since the worker stops."""
        ...

    def lasts_until_us(self, claim: Claim) -> int:
        """Return the end of an extended claim; 0 if it was not extended."""
        ...

    def report(self, claim: Claim, report: ProgressReport) -> None:
        """Pass on the progress of the handler."""
        ...

    def emit(self, emitted: Emitted) -> None:
        """Pass on a partial result of the handler."""
        ...


class NoControl:
    """The control of a plain call: it cannot be cancelled, and its progress is dropped."""

    is_draining = False

    def is_lost(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def is_cancelled(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def is_overdue(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def was_taken(self, claim: Claim) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def lasts_until_us(self, claim: Claim) -> int:  # noqa: ARG002
        """It has no claim."""
        return 0

    def report(self, claim: Claim, report: ProgressReport) -> None:
        """Drop it."""

    def emit(self, emitted: Emitted) -> None:
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
    text = storable(note[:NOTE_CHARACTERS_MAX])
    return ProgressReport(done, total, text)  # type: ignore[arg-type]  # just checked


def _is_amount(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return math.isfinite(number) and 0 <= number < 2**63


def meta_of(values: dict[str, object]) -> str:
    """Return the values of `set_meta` as JSON.

    Raises: BadInput: they are not plain, or too large.
    """
    try:
        data = encode(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"`set_meta` takes plain values: {text_of(error)}.", hint="Use numbers and strings."
        ) from error
    if len(data) > META_BYTES_MAX:
        raise BadInput(
            f"The values of `set_meta` have {len(data)} bytes; {META_BYTES_MAX} are allowed.",
            hint="Store them elsewhere and note their location.",
        )
    return data.decode()


def read_meta(text: str) -> dict[str, Any]:
    """Return the values of `set_meta` from JSON; empty text has none."""
    return decode(text.encode(), dict) if text else {}
