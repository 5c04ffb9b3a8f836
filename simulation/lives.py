"""Kinds of runs, distinguished by their seeds.

Negative seeds are runs of streams, seeds from RECURRING runs of schedules, from LIMITED runs with
limits, from FLOWING runs with workflows, from DEPLOYING runs with several
versions of workers, from SUSPENDING runs with durable functions, from ORDERED runs with order keys,
from TRIPPING runs with tasks that pause themselves.
All others are runs of a plain queue.
"""

from collections.abc import Callable, Mapping, Sequence

from simulation import deploying, flowing, life, limited, ordered, recurring, suspending, tripping
from simulation.life import Life
from simulation.streams import life as stream_life

ONE_IN = 16
"""Of this many runs two are of streams, one of each other kind."""

RECURRING = 1 << 60
"""Above all seeds that are derived from a commit."""

LIMITED = 1 << 61
"""Above those of schedules."""

FLOWING = 1 << 62
"""Above those with limits."""


DEPLOYING = 1 << 63
"""Above those with workflows."""

SUSPENDING = 1 << 64
"""Above those with several versions."""

ORDERED = 1 << 65
"""Above those with durable functions."""

TRIPPING = 1 << 66
"""Above those with order keys."""

PLACES: Mapping[str, int] = {
    "plain": 0,
    "versions": 1,
    "limits": 3,
    "durable": 5,
    "streams": 7,
    "orders": 9,
    "schedules": 11,
    "workflows": 13,
    "circuits": 14,
}
"""A place of each kind among as many runs."""

BEYOND: Mapping[int, int] = {
    PLACES["versions"]: DEPLOYING,
    PLACES["limits"]: LIMITED,
    PLACES["durable"]: SUSPENDING,
    PLACES["orders"]: ORDERED,
    PLACES["schedules"]: RECURRING,
    PLACES["workflows"]: FLOWING,
    PLACES["circuits"]: TRIPPING,
}
"""What is added to the seeds at a place."""


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run."""
    if seed >= TRIPPING:
        return tripping.live(seed, given, trace=trace)
    if seed >= ORDERED:
        return ordered.live(seed, given, trace=trace)
    if seed >= SUSPENDING:
        return suspending.live(seed, given, trace=trace)
    if seed >= DEPLOYING:
        return deploying.live(seed, given, trace=trace)
    if seed >= FLOWING:
        return flowing.live(seed, given, trace=trace)
    if seed >= LIMITED:
        return limited.live(seed, given, trace=trace)
    if seed >= RECURRING:
        return recurring.live(seed, given, trace=trace)
    lead = life.live if seed >= 0 else stream_life.live
    return lead(seed, given, trace=trace)


def seeds_from(base: int, count: int, kind: str | None = None) -> list[int]:
    """Return the seeds of a number of runs, of all kinds or of one of `PLACES`."""
    return [
        _of_a_kind(seed, place % ONE_IN if kind is None else PLACES[kind])
        for place, seed in enumerate(range(base, base + count))
    ]


def _of_a_kind(seed: int, place: int) -> int:
    if place in (PLACES["streams"], 15):
        return -seed
    if place in (PLACES["limits"], PLACES["schedules"], PLACES["orders"], PLACES["circuits"]):
        seed = seed & ~1 | seed >> 4 & 1  # the place fixes the last bit, which is the kind of store
    return seed + BEYOND.get(place, 0)
