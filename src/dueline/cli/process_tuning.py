"""Interpreter settings of the process that runs `dueline worker`."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000
TURN_S_MAX = 0.001


@contextmanager
def tuned() -> Iterator[None]:
    """Tune the garbage collector and thread switching for a worker while the block runs.

    A worker creates and drops a few tuples for each job, none in a cycle, so that frequent
    collections of young objects only cost time. A job passes three threads before its handler
    is called, so that shorter turns start it sooner next to a handler that computes.
    """
    thresholds, turn_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(max(thresholds[0], YOUNG_OBJECTS), *thresholds[1:])
    sys.setswitchinterval(min(turn_s, TURN_S_MAX))
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(turn_s)
