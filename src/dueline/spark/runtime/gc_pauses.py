"""Few looks for garbage, where rows are many and tasks short."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def collector_paused() -> Iterator[None]:
    """Have no cycles looked for as long as the block lasts.

    Rows are tuples, which none of what they hold points back to, and a look at all that are there
    comes again and again while they are made: a fifth of the time of a write (November 2026).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def modules_passed_over() -> None:
    """Have no look for garbage go through what is there now, modules above all; the first time.

    Spark's Python workers look after each task, and the next one waits for that: 60 ms through
    all that pyspark, pandas and dueline consist of, hardly anything without (November 2026).
    """
    gc.collect()
    gc.freeze()
