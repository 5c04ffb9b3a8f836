"""Shows the progress of a batch: a bar on a terminal or in a notebook, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dueline.api.batch_views import BatchCounts
from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import span_text
from dueline.terminal.progress_bars import can_draw, text_bar

LINE_EVERY_US: Final = 10 * SECOND_US
"""How often a line is written where no bar can be shown."""

_SMOOTH_US: Final = 5 * SECOND_US
"""Rates are of about this time."""


class Pace:
    """The rate at which jobs end, and the time that is left.

    Args: clock: The machine's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: list[tuple[int, int]] = []

    def note(self, ended: int) -> float:
        """Note how many jobs have ended; return how many end in a second."""
        now_us = self._clock.monotonic_us()
        self._seen.append((now_us, ended))
        while self._seen[1:] and self._seen[1][0] <= now_us - _SMOOTH_US:
            self._seen.pop(0)
        began_us, before = self._seen[0]
        took_us = now_us - began_us
        return (ended - before) * SECOND_US / took_us if took_us else 0.0


def text_of(counts: BatchCounts, rate: float) -> str:
    """Return the progress of a batch in words."""
    parts = [f"{counts.ended:,}/{counts.items:,} ended"]
    parts += [f"{count:,} {state}" for state, count in counts.by_state().items() if count]
    if counts.left:
        parts.append(f"{rate:,.0f}/s")
        if rate:
            parts.append(f"{span_text(int(counts.left / rate) * SECOND_US)} left")
    return ", ".join(parts)


@contextmanager
def shown(
    name: str, clock: Clock, *, is_shown: bool = True
) -> Iterator[Callable[[BatchCounts], None]]:
    """Show progress while the block runs; yield a function to call with the present counts."""
    if not is_shown:
        yield lambda _: None
    elif can_draw():
        pace = Pace(clock)
        with text_bar(name) as show:
            yield lambda counts: show(
                counts.ended, counts.items, text_of(counts, pace.note(counts.ended))
            )
    else:
        yield _lines(name, clock)


def _lines(name: str, clock: Clock) -> Callable[[BatchCounts], None]:
    pace = Pace(clock)
    next_us = clock.monotonic_us() + LINE_EVERY_US

    def show(counts: BatchCounts) -> None:
        nonlocal next_us
        rate = pace.note(counts.ended)
        if clock.monotonic_us() >= next_us or not counts.left:
            next_us = clock.monotonic_us() + LINE_EVERY_US
            sys.stderr.write(f"{name}: {text_of(counts, rate)}\n")
            sys.stderr.flush()

    return show
