"""Why the run of a durable function ends before the function does."""

from collections.abc import Mapping
from typing import Final, Literal

from dueline.core.attempt import DurablePlace, Ending, GivenBack, Parked, Stop
from dueline.core.clock import SECOND_US
from dueline.core.job import Job

STOP_US: Final = 30 * SECOND_US
"""How long a stopped function waits for a worker that fits; each time twice as long."""

STOP_US_MAX: Final = 600 * SECOND_US

_WHY_CHARACTERS_MAX: Final = 500

StopKind = Literal["code", "log", "deaths"]
"""Why a function is stopped: its code does not fit, its log is damaged, or workers died on it."""

ADVICE: Final[Mapping[str, str]] = {
    "code": "run workers with the code that began it, or reset it",
    "log": "`dueline doctor` names what is damaged",
    "deaths": "the logs of its workers say why",
}
"""What to do about a stopped function, by the kind of its stop."""

AGAIN_US: Final = 5 * SECOND_US
"""How long a function waits that the store did not answer."""


class Suspended(BaseException):
    """The run of a durable function is over; the function itself may go on later.

    Do not catch it. From then on each call of the context raises it again and records nothing.
    """

    def __init__(self, ending: Ending, why: str) -> None:
        super().__init__(why)
        self.ending = ending


class Unwound(Suspended):
    """The function has ended, and its calls up to the end were repeated from the log."""


def store_failed(error: Exception) -> Suspended:
    """Return the suspension after a call of the store that failed, or may have."""
    return Suspended(GivenBack(AGAIN_US), f"The store did not answer: {error}")


def claim_lost(after_us: int = 0) -> Suspended:
    """Return the suspension of a run whose claim another worker may hold."""
    return Suspended(GivenBack(after_us), "The claim was lost, or the worker stops.")


def stopped(
    job: Job, place: DurablePlace, why: str, now_us: int, *, kind: StopKind = "code"
) -> Suspended:
    """Return the suspension of a function that this worker cannot continue."""
    at_us = now_us + min(STOP_US << min(place.stops, 10), STOP_US_MAX)
    since_us = place.stop.since_us if place.stops and place.stop is not None else now_us
    stop = Stop(kind, why[:_WHY_CHARACTERS_MAX], at_us, since_us)
    place = place._replace(parked_us=0, stops=place.stops + 1, stop=stop)
    error = f"Stopped: {why}; {ADVICE[kind]}."
    ending = Parked(at_us, place, job.errors, job.crashes, "stopped", error)
    return Suspended(ending, why)
