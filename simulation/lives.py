"""Lives of all kinds, told apart by their seeds.

One below 0 is a stream's, one from RECURRING on a schedule's, one from LIMITED on one of a queue
whose jobs are limited, one from FLOWING on one with workflows, all others are a plain queue's.
"""

from collections.abc import Callable, Sequence

from simulation import flowing, life, limited, recurring
from simulation.life import Life
from simulation.streams import life as stream_life

ONE_IN = 16
"""Of so many lives two are a stream's, one is a schedule's, one has limits, one workflows."""

RECURRING = 1 << 60
"""Above all seeds that come of a commit."""

LIMITED = 1 << 61
"""Above those of schedules."""

FLOWING = 1 << 62
"""Above those with limits."""


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Lead one life; the same seed, or the same tape with it, is the same life."""
    if seed >= FLOWING:
        return flowing.live(seed, given, trace=trace)
    if seed >= LIMITED:
        return limited.live(seed, given, trace=trace)
    if seed >= RECURRING:
        return recurring.live(seed, given, trace=trace)
    lead = life.live if seed >= 0 else stream_life.live
    return lead(seed, given, trace=trace)


def seeds_from(base: int, count: int) -> list[int]:
    """Name the seeds of so many lives of all kinds."""
    return [
        _of_a_kind(seed, place % ONE_IN) for place, seed in enumerate(range(base, base + count))
    ]


def _of_a_kind(seed: int, place: int) -> int:
    if place in (7, 15):
        return -seed
    if place in (3, 11):  # an odd place, and the last bit says which kind of store it is
        seed = seed & ~1 | seed >> 4 & 1
    return seed + {3: LIMITED, 11: RECURRING, 13: FLOWING}.get(place, 0)
