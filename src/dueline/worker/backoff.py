"""Gaps between polls, and waits while the store cannot be had."""

from collections.abc import Callable
from typing import Final

from dueline.core.clock import Clock
from dueline.core.errors import Conflict, StoreReplaced, StoreUnavailable
from dueline.core.logging import log

LISTING_AGE_US_MAX = 250_000
"""While there is work, lane lists are read again this often: how late a more urgent job is seen
by a worker that was not told of it."""

URGED_AGE_US_MIN = 20_000
"""The same for one that was told: not sooner, so that few looks go with an endless enqueuing."""

GAP_US_MIN = 50_000
GAP_US_MAX_UNHEARD = 250_000
"""A worker that cannot be woken looks at least this often."""

LISTING_SHARE = 5
"""Lists that take long to read (100,000 lanes) take at most one part in so many of the time."""

TOOK_US_MAX = 2_000_000
"""A look that took longer was held up by something else: its process stood still, say."""

CALLED_SHARE = 2
"""The same for a worker that is woken again and again."""

JITTER = 1 / 8
"""At most so much of a gap is cut off."""


class PollTimer:
    """One worker's polls. All times are monotonic.

    Polls grow rarer while they find nothing: twice the gap each time, up to the most, each gap cut
    short by chance so that workers do not poll all at once. Pure: time and chance are passed in.
    """

    def __init__(self, gap_us_max: int, chance: Callable[[], float]) -> None:
        self.gap_us_max = gap_us_max
        self._chance = chance
        self._gap_us = GAP_US_MIN
        self._looked_us = 0
        self._took_us = 0
        self._next_us = 0

    def is_due(self, now_us: int) -> bool:
        """Tell whether it is time to look."""
        return now_us >= self._next_us

    def notified(self) -> None:
        """Let a look be due at once, or as soon as they do not take all the time."""
        self._next_us = min(self._next_us, self._looked_us + CALLED_SHARE * self._took_us)

    def notified_while_busy(self) -> None:
        """Let a look be due soon though there is work: what is new may be more urgent."""
        age_us = max(URGED_AGE_US_MIN, LISTING_SHARE * self._took_us)
        self._next_us = min(self._next_us, self._looked_us + age_us)

    def polled(self, began_us: int, ended_us: int) -> None:
        """Note a look: the next one is a gap away, and a longer one from then on."""
        self._looked_us = began_us
        self._took_us = min(ended_us - began_us, TOOK_US_MAX)
        gap_us = round(self._gap_us * (1 - JITTER * self._chance()))
        self._next_us = began_us + max(gap_us, LISTING_SHARE * self._took_us)
        self._gap_us = min(2 * self._gap_us, self.gap_us_max)

    def found(self) -> None:
        """Note that there was work: where some was, more may be soon."""
        self._gap_us = GAP_US_MIN
        age_us = max(LISTING_AGE_US_MAX, LISTING_SHARE * self._took_us)
        self._next_us = self._looked_us + age_us

    def wait_us(self, now_us: int) -> int:
        """Tell how long it is to the next look."""
        return max(0, self._next_us - now_us)


BACK_OFF_S: Final = (0.1, 2.0)


class StoreBackoff:
    """Does steps; while the store cannot be had, waits a little longer each time instead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._depth = 0

    def do(self, step: Callable[[], None]) -> bool:
        """Do a step; tell whether it was done. One inside another tells nothing of the store.

        It may have had nothing to do: the waits go on where the whole fails nevertheless.
        """
        self._depth += 1
        try:
            step()
        except StoreReplaced:  # no later call can succeed
            raise
        except (StoreUnavailable, Conflict) as error:
            least_s, most_s = BACK_OFF_S
            log.warning("the store cannot be had: %s", error)
            self._clock.sleep(min(most_s, least_s * 2**self._failures))
            self._failures = min(self._failures + 1, 10)
            return False
        finally:
            self._depth -= 1
        if not self._depth:
            self._failures = 0
        return True
