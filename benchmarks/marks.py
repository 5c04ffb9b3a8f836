"""What handlers write down: marks of the time, and how late they started."""

import os
import time
from pathlib import Path

_STARTS = os.environ.get("BENCH_STARTS")
_descriptor = os.open(_STARTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if _STARTS else -1


def write_mark(path: str) -> None:
    """Write the time, and the time of the processor that this process has used.

    The file appears at once, so that a reader finds all of it or nothing.
    """
    place = Path(path)
    beside = place.with_suffix(".new")
    beside.write_text(f"{time.time_ns()} {time.process_time_ns()}\n")
    beside.rename(place)


def write_start(due_ns: int) -> None:
    """Write how late a job starts, in nanoseconds, as a line of the file of BENCH_STARTS."""
    os.write(_descriptor, b"%d\n" % (time.time_ns() - due_ns))
