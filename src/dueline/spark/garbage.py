"""Making millions of rows without a look for garbage in between."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
