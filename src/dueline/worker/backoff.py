"""Time between polls of the lane lists, and backoff while the store is unavailable."""

from collections.abc import Callable, Sequence
from typing import Final

from dueline.core.clock import Clock
from dueline.core.errors import Conflict, StoreReplaced, StoreUnavailable
from dueline.core.logging import log
from dueline.core.wakeup import FALLBACK_US

BUSY_AGE_US_MIN = 20_000
"""Minimum interval at which a busy worker reads the lane lists again, and so notices more urgent
jobs, also while it is notified of new jobs without a pause.
"""

LISTING_AGE_US_MAX = 250_000
"""Maximum of that interval where it is not notified, unless the lists are long."""

BUSY_SHARE = 40
"""Up to that maximum, the reads of a busy worker take at most 1/BUSY_SHARE of the time."""

GAP_US_MIN = 50_000
LISTING_SHARE = 5
"""Reading long lists (100,000 lanes) takes at most 1/LISTING_SHARE of the time."""

TOOK_US_MAX = 2_000_000
"""Maximum duration of a poll that counts: a longer one was delayed by something else, such as a
suspended process.
"""

NOTIFIED_SHARE = 2
"""The same as LISTING_SHARE, for a worker that is notified again and again."""

JITTER = 1 / 8
"""Maximum part of an interval that is cut off at random."""


class PollTimer:
    """When a worker polls next. All times are monotonic.

    The interval doubles with each poll that finds nothing, up to a maximum. Each is shortened at
    random so that workers do not poll all at once. Pure: time and randomness are passed in.

    Attributes:
      gap_us_max: The maximum interval; it may change.
    """

    def __init__(self, gap_us_max: int, chance: Callable[[], float]) -> None:
        self.gap_us_max = gap_us_max
        self._chance = chance
        self._gap_us = GAP_US_MIN
        self._looked_us = 0
        self._took_us = 0
        self._next_us = 0

    @property
    def gap_us(self) -> int:
        """The maximum time from the next poll to the one after it."""
        return max(self._gap_us, LISTING_SHARE * self._took_us)

    def is_due(self, now_us: int) -> bool:
        """Return whether it is time to poll."""
        return now_us >= self._next_us or self.is_stale(now_us)

    def is_stale(self, now_us: int) -> bool:
        """Return whether the last poll is too old for a claim that relies on it."""
        return now_us - self._looked_us >= max(FALLBACK_US, LISTING_SHARE * self._took_us)

    def notified(self) -> None:
        """Poll at once, or as soon as polls leave time for other work."""
        self._next_us = min(self._next_us, self._looked_us + NOTIFIED_SHARE * self._took_us)

    def notified_while_busy(self) -> None:
        """Poll soon although there is work: a new job may be more urgent."""
        age_us = max(BUSY_AGE_US_MIN, LISTING_SHARE * self._took_us)
        self._next_us = min(self._next_us, self._looked_us + age_us)

    def polled(self, began_us: int, ended_us: int) -> None:
        """Note a poll: the next follows after the interval, which then doubles."""
        self._looked_us = began_us
        self._took_us = min(ended_us - began_us, TOOK_US_MAX)
        gap_us = round(min(self._gap_us, self.gap_us_max) * (1 - JITTER * self._chance()))
        self._next_us = began_us + max(gap_us, LISTING_SHARE * self._took_us)
        self._gap_us = min(2 * self._gap_us, self.gap_us_max)

    def found(self) -> None:
        """Note that jobs were found, so that more are expected soon."""
        self._gap_us = GAP_US_MIN
        age_us = min(BUSY_SHARE * self._took_us, LISTING_AGE_US_MAX)
        age_us = max(BUSY_AGE_US_MIN, age_us, LISTING_SHARE * self._took_us)
        self._next_us = self._looked_us + age_us

    def wait_us(self, now_us: int) -> int:
        """Return the time until the next poll."""
        return max(0, self._next_us - now_us)


BACK_OFF_S: Final = (0.1, 2.0)

DO_ALL_US: Final = 2_000_000
"""Time after which `do_all` tries nothing more if a step fails."""


class StoreBackoff:
    """Runs steps; waits longer after each that fails because the store is unavailable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._depth = 0

    def do(self, step: Callable[[], object]) -> bool:
        """Run a step; return whether it succeeded.

        A nested step that succeeds does not reset the backoff: it may not have used the store.
        """
        self._depth += 1
        try:
            step()
        except StoreReplaced:  # no later call can succeed
            raise
        except (StoreUnavailable, Conflict) as error:
            least_s, most_s = BACK_OFF_S
            log.warning("the store is unavailable: %s", error)
            self._clock.sleep(min(most_s, least_s * 2**self._failures))
            self._failures = min(self._failures + 1, 10)
            return False
        finally:
            self._depth -= 1
        if not self._depth:
            self._failures = 0
        return True

    def do_all(self, steps: Sequence[Callable[[], object]]) -> None:
        """Run steps that are not repeated; skip the rest if the store does not answer."""
        began_us = self._clock.monotonic_us()
        for step in steps:
            is_done = self.do(step)
            if not is_done and self._clock.monotonic_us() - began_us > DO_ALL_US:
                return
