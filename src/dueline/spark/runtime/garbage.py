"""Fewer garbage collections inside Spark's Python workers."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark import TaskContext


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while a Spark task reads or writes rows.

    Outside of a Spark task, in processes that are not dueline's, nothing is changed.
    """
    # Spark's worker daemon runs a full collection after each task, which takes 50 ms through the
    # modules of pyspark and pandas, and none when they are frozen. Rows form no cycles: to look
    # for them while rows are made costs a tenth of the CPU time of a write.
    if TaskContext.get() is None or not gc.isenabled():
        yield
        return
    _freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
