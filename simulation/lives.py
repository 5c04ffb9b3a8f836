"""Lives of all kinds: a seed of 0 or more is a queue's, one below 0 a stream's."""

from collections.abc import Callable, Sequence

from simulation import life
from simulation.life import Life
from simulation.streams import life as stream_life

STREAMS_ONE_IN = 8
"""One of so many lives is a stream's."""


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Lead one life; the same seed, or the same tape with it, is the same life."""
    lead = life.live if seed >= 0 else stream_life.live
    return lead(seed, given, trace=trace)


def seeds_from(base: int, count: int) -> list[int]:
    """Name the seeds of so many lives of all kinds."""
    return [
        -seed if place % STREAMS_ONE_IN == STREAMS_ONE_IN - 1 else seed
        for place, seed in enumerate(range(base, base + count))
    ]
