"""How often the maintenance leader runs its tasks: a setting of the store."""

from typing import Annotated, Final

from dueline.coordination import notes
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.constraints import check_value, constraint
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.store import Records

INTERVAL_US_MAX: Final = 3600 * SECOND_US

_KIND, _NAME = "settings", "interval"
_Interval = Annotated[
    int,
    constraint(
        "a duration of at most one hour",
        "Use 0 for the interval of each task.",
        ge=0,
        le=INTERVAL_US_MAX,
    ),
]


def interval_us(records: Records) -> int:
    """Return the minimum time between two rounds of a maintenance task; 0: its own interval."""
    return notes.value(records, _KIND, _NAME, int) or 0


def interval_text(us: int) -> str:
    """Return an interval in words."""
    return f"each task every {span_text(us)} at most" if us else "each task at its own interval"


def set_interval(engine: Engine, us: int) -> None:
    """Set the minimum time between two rounds of each task; the leader reads it within seconds.

    Raises: BadInput: it is out of range; nothing was written.
    """
    check_value(us, _Interval, "interval_us")
    put = notes.put(_KIND, _NAME, encode(us), engine.ids.token())
    engine.store.commit(notes.PARTITION, (put,))
