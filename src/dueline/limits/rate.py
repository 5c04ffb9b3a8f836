"""Rate limits: how many jobs of a kind start in a period.

A rate is a count in a period, for each of its keys; each key has one record, its meter. With a
burst it is a token bucket: one token returns each `period / count`, up to `burst` tokens. Without,
it is a sliding window: no period of that length ever has more starts than the count.
A job takes one token, or as many as its cost.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, cast

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.constraints import check_constraints, check_value, constraint, integer
from dueline.core.durations import span_text
from dueline.core.ids import Ids
from dueline.core.limit_costs import UNITS_MAX
from dueline.core.limit_names import check_limit, semaphore_of
from dueline.core.pagination import records_in
from dueline.core.readable_records import Unreadable, readable, unreadable, value_at
from dueline.core.store import Delete, Put, Records
from dueline.limits.semaphore import Wait

GRAINS: Final = 100
"""Number of parts of a window; a start counts as of the end of its part."""

COUNT_MAX: Final = UNITS_MAX
PER_US_MIN: Final = SECOND_US // 100

KEEP_US: Final = 60 * SECOND_US
"""How long a meter stays that says nothing any more: longer than anybody takes from a reading to
the write on it. Two readings of no meter look alike, also if tokens were taken between them."""

_Count = Annotated[int, integer(1, COUNT_MAX)]

_RATES: Final = "rates"


@dataclass(frozen=True, slots=True)
class Rate:
    """Maximum `count` starts in `per_us`. burst: maximum at once after a pause, 0 for a window."""

    count: _Count
    per_us: Annotated[
        int,
        constraint(
            "a duration from 10 ms to one day", "Use 10 ms to one day.", ge=PER_US_MIN, le=DAY_US
        ),
    ]
    burst: int = 0

    @property
    def most(self) -> int:
        """The largest number that can be taken at once."""
        return self.burst or self.count


@dataclass(frozen=True, slots=True)
class Meter:
    """What was taken from one key.

    full_us: when the bucket is full again. taken: for a window, pairs of a timestamp and a count.
    closed_us: nothing may be taken before. waiting: what workers wait for whose jobs take more than
    is left; it is reserved for them (rule N9).
    """

    full_us: int = 0
    taken: tuple[tuple[int, int], ...] = ()
    closed_us: int = 0
    waiting: Mapping[str, Wait] = field(default_factory=dict)


def check_rate(name: str, count: object, per_us: int, burst: object = None) -> Rate:
    """Return a rate; raise BadInput if a value is out of range. burst: None for a window."""
    check_limit(name)
    if burst is not None:
        check_value(burst, _Count, "burst")
    rate = Rate(cast("int", count), per_us, cast("int", burst) or 0)
    check_constraints(rate)
    return rate


def rate_text(rate: Rate) -> str:
    """Format a rate for people."""
    burst = f", {rate.burst} at once" if rate.burst else ""
    return f"{rate.count} in {span_text(rate.per_us)}{burst}"


def left(meter: Meter, rate: Rate, now_us: int) -> int:
    """Return how many may be taken now."""
    if now_us < meter.closed_us:
        return 0
    if rate.burst:
        missing_us = max(0, meter.full_us - now_us) * rate.count
        return rate.burst - -(-missing_us // rate.per_us)
    return max(0, rate.count - sum(_within(meter, rate, now_us).values()))


def next_us(meter: Meter, rate: Rate, now_us: int, need: int = 1) -> int:
    """Return when `need` may be taken, or as many as ever can be."""
    now_us, need = max(now_us, meter.closed_us), min(need, rate.most)
    if rate.burst:
        return max(now_us, meter.full_us - (rate.burst - need) * rate.per_us // rate.count)
    within = _within(meter, rate, now_us)
    free = rate.count - sum(within.values())
    for at_us, count in sorted(within.items()):
        if free >= need:
            break
        free += count
        now_us = at_us + rate.per_us
    return now_us


def after_taking(
    meter: Meter, rate: Rate, count: int, now_us: int, *, earliest_us: int | None = None
) -> Meter:
    """Return the meter after taking `count`.

    Args: now_us: the latest that the time can be: the take counts as of then. earliest_us: the
      earliest that it can be, by which others may read; None for the same.
    """
    if rate.burst:
        took_us = -(-count * rate.per_us // rate.count)
        return replace(meter, full_us=max(now_us, meter.full_us) + took_us)
    within = _within(meter, rate, now_us if earliest_us is None else earliest_us)
    end_us = _grain_end(rate, now_us)
    within[end_us] = within.get(end_us, 0) + count
    return replace(meter, taken=tuple(within.items()))


def after_returning(meter: Meter, rate: Rate, count: int, taken_us: int, now_us: int) -> Meter:
    """Return the meter after returning `count` that were taken at `taken_us`.

    A bucket gets back less, by what has flowed in since: without the take it may have been full,
    and have lost that. So a return never allows a start that would not have been allowed without.
    """
    if rate.burst:
        back_us = count * rate.per_us // rate.count - max(0, now_us - taken_us)
        return replace(meter, full_us=meter.full_us - max(0, back_us))
    end_us = _grain_end(rate, taken_us)
    left = ((us, units - count if us == end_us else units) for us, units in meter.taken)
    return replace(meter, taken=tuple((us, units) for us, units in left if units > 0))


def are_apart(rate: Rate, taken_us: int, started_us: int) -> bool:
    """Return whether a start counts later than its take; in a bucket it never does."""
    return not rate.burst and _grain_end(rate, started_us) > _grain_end(rate, taken_us)


def after_start(meter: Meter, rate: Rate, taken_us: int, started_us: int, count: int = 1) -> Meter:
    """Return the meter with what was taken for a job counted as of its start."""
    if not are_apart(rate, taken_us, started_us):
        return meter
    taken = dict(meter.taken)
    before_us, end_us = _grain_end(rate, taken_us), _grain_end(rate, started_us)
    taken[before_us] = taken.get(before_us, count) - count
    taken[end_us] = taken.get(end_us, 0) + count
    counts = sorted(taken.items())
    return replace(meter, taken=tuple((us, left) for us, left in counts if left > 0))


def _grain_end(rate: Rate, now_us: int) -> int:
    grain_us = max(1, rate.per_us // GRAINS)
    return -(-now_us // grain_us) * grain_us


def _within(meter: Meter, rate: Rate, now_us: int) -> dict[int, int]:
    return {at_us: units for at_us, units in meter.taken if at_us > now_us - rate.per_us}


# Records


def _partition(name: str) -> str:
    return f"meters/{semaphore_of(name)}"


def read(records: Records, name: str) -> tuple[Meter, bytes]:
    """Read the meter of a limit, and its version."""
    meter, version = value_at(records, _partition(name), name, Meter)
    return meter or Meter(), version


def write(
    records: Records, name: str, meter: Meter, rate: Rate, *, expect: bytes, ids: Ids
) -> bool:
    """Write the meter of a limit, if it is unchanged since it was read; it expires when long idle.

    Raises: Unknown: it may or may not be written.
    """
    last_us = max(
        [
            meter.full_us,
            meter.closed_us,
            *(at_us + rate.per_us for at_us, _ in meter.taken),
            *(wait.until_us for wait in meter.waiting.values()),
        ]
    )
    put = Put(name, ids.token(), encode(meter), expect=expect, expires_us=last_us + KEEP_US)
    return records.commit(_partition(name), (put,))


def define(records: Records, name: str, rate: Rate, *, ids: Ids) -> None:
    """Create or update a rate."""
    records.commit(_RATES, (Put(name, ids.token(), encode(rate)),))


def forget(records: Records, name: str) -> None:
    """Delete a rate: jobs with this limit are limited as by a semaphore."""
    records.commit(_RATES, (Delete(name),))


def rate_of(known: Mapping[str, Rate], name: str) -> Rate | None:
    """Return the rate of a limit: of its key, or of its name; None for a semaphore."""
    if not known:
        return None
    return known.get(name) or known.get(semaphore_of(name))


def rates(records: Records) -> Mapping[str, Rate]:
    """Read all rates, by name; damaged ones are omitted."""
    return {record.key: rate for record, rate in readable(records, _RATES, Rate)}


def meters(records: Records, name: str) -> Iterator[tuple[str, Meter]]:
    """Yield the meters of a rate by their keys; those that were not used for long have expired."""
    return ((record.key, meter) for record, meter in readable(records, _partition(name), Meter))


def damaged(records: Records) -> list[str]:
    """Return the names of the rates whose records are damaged."""
    known = rates(records)
    return [record.key for record in records_in(records, _RATES) if record.key not in known]


def unreadable_of(records: Records, names: Iterable[str]) -> Iterator[Unreadable]:
    """Yield damaged records: of all rates, and of the meters of these names."""
    yield from unreadable(records, _RATES, Rate)
    for name in names:
        yield from unreadable(records, _partition(name), Meter)
