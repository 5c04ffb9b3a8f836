"""Keeps what a handler logs, for tasks that ask for it (`logs=`)."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dueline.core.attempt import Done, Ending, Failed
from dueline.core.job import Claim, Job
from dueline.core.text import indented, printable

LINES_CHARACTERS_MAX: Final = 16 * 1024
"""Maximum number of characters of an attempt that are kept: the last ones."""

LINE_CHARACTERS_MAX: Final = 2 * 1024
"""Maximum number of characters of one record."""


class Lines:
    """The last records of one attempt."""

    def __init__(self) -> None:
        self._records: deque[str] = deque()
        self._characters = 0

    def add(self, record: str) -> None:
        """Add a record; drop the first ones if there are too many."""
        self._records.append(record)
        self._characters += len(record) + 1
        while self._characters > LINES_CHARACTERS_MAX:
            self._characters -= len(self._records.popleft()) + 1

    def with_ending(self, ending: Ending, logs: str) -> Ending:
        """Return an ending with the records, if they are kept for endings of this kind."""
        is_kept = isinstance(ending, Failed) or (isinstance(ending, Done) and logs == "all")
        if not self._records or not is_kept:
            return ending
        assert isinstance(ending, Done | Failed)
        return ending._replace(lines="\n".join(self._records))


class JobLines(logging.Handler):
    """Takes the records of running handlers from the root logger.

    It is attached only while a handler of a task runs that keeps its log, so that other tasks pay
    nothing for it.

    Args:
        job_here: Returns the job whose handler calls it.
    """

    def __init__(self, job_here: Callable[[], Job | None]) -> None:
        super().__init__()
        self._job_here = job_here
        self._guard = threading.Lock()
        self._lines: dict[Claim, Lines] = {}
        self.setFormatter(_Formatter())

    @contextmanager
    def of(self, claim: Claim) -> Iterator[Lines]:
        """Keep the records of an attempt while the block runs."""
        root = logging.getLogger()
        with self._guard:
            lines = self._lines[claim] = Lines()
            root.addHandler(self)
        try:
            yield lines
        finally:
            with self._guard:
                self._lines.pop(claim, None)
                if not self._lines:
                    root.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record if it belongs to an attempt."""
        job = self._job_here()
        lines = None if job is None else self._lines.get(job.claim())
        if lines is not None:
            try:
                lines.add(self.format(record)[:LINE_CHARACTERS_MAX])
            except Exception:  # noqa: BLE001  (an argument of the record raised)
                self.handleError(record)


class _Formatter(logging.Formatter):
    """Time, level, logger and message; further lines are indented, and signs are escaped."""

    def __init__(self) -> None:
        self.converter = time.gmtime
        form = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
        super().__init__(form, "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        # Without the text of the exception that another formatter has left in the record.
        copy = logging.makeLogRecord(vars(record) | {"exc_info": None, "exc_text": None})
        first, _, rest = super().format(copy).partition("\n")
        parts = [printable(first), indented(rest)]
        if record.exc_info:
            parts.append(indented(self.formatException(record.exc_info)))
        return "\n".join(filter(None, parts))
