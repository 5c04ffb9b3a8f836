"""Waits while the store cannot be had, or others keep changing what a step reads."""

from collections.abc import Callable
from typing import Final

from dueline.core.clock import Clock
from dueline.core.errors import Conflict, StoreReplaced, StoreUnavailable
from dueline.core.logging import log

BACK_OFF_S: Final = (0.1, 2.0)


class Patience:
    """Does steps; while the store cannot be had, waits a little longer each time instead."""

    def __init__(self, clock: Clock) -> None:
        """Take what sleeps."""
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
