"""The log of worker processes: lines, or one JSON object a line, on stderr."""

import json
import logging
import os
import sys
import time
from typing import Any, Final, NamedTuple

from dueline.core.text import indented, one_line
from dueline.worker.execution import job_here

VARIABLE: Final = "DUELINE_WORKER_LOG"
"""Tells child processes how their worker logs."""

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogSettings(NamedTuple):
    """How a process logs.

    Attributes:
      level: Lowest level of dueline's own records.
      others: Lowest level of the records of handlers and libraries.
      is_json: Whether each record is a JSON object.
    """

    level: int = logging.INFO
    others: int = logging.INFO
    is_json: bool = False

    def show_own(self) -> None:
        """Log dueline's own records to stderr."""
        logger = logging.getLogger("dueline")
        logger.handlers = [self._handler(_LineFormatter())]
        logger.setLevel(self.level)
        logger.propagate = False

    def show_others(self) -> None:
        """Log other records, with their job, unless the root logger is configured."""
        root = logging.getLogger()
        if not root.handlers:
            handler = self._handler(_JobFormatter())
            if not self.is_json:
                handler.addFilter(_is_not_shown)
            root.addHandler(handler)
            root.setLevel(self.others)

    def _handler(self, lines: logging.Formatter) -> logging.Handler:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonFormatter() if self.is_json else lines)
        return handler

    def give_to_children(self) -> None:
        """Let the child processes of this worker log in the same way."""
        os.environ[VARIABLE] = ",".join(map(str, map(int, self)))


def show_as_parent_does() -> None:
    """Log in a child process as its worker does; call it when the application is loaded."""
    if text := os.environ.get(VARIABLE):
        level, others, is_json = map(int, text.split(","))
        settings = LogSettings(level, others, bool(is_json))
        settings.show_own()
        settings.show_others()


def _is_not_shown(record: logging.LogRecord) -> bool:
    """Return whether no logger below the root has shown a record, as Django's does."""
    logger = logging.getLogger(record.name)
    while logger.parent is not None:
        for handler in logger.handlers:
            is_console = isinstance(handler, logging.StreamHandler) and handler.stream in (
                sys.stderr,
                sys.stdout,
            )
            if is_console and record.levelno >= handler.level and handler.filter(record):
                return False
        logger = logger.parent
    return True


class _LineFormatter(logging.Formatter):
    """A line with the time in UTC; tracebacks are indented, so that no error fakes a record."""

    def __init__(self) -> None:
        self.converter = time.gmtime
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802  (the name is logging's)
        return indented(super().formatException(ei))


class _JobFormatter(_LineFormatter):
    """The same, with the job whose handler made the record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (see above)
        job = job_here()
        if job is not None:
            where = f"job={job.id.hex()} task={one_line(job.task)} attempt={job.errors + 1} "
            record.message = where + record.message
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    """A JSON object with the job whose handler made the record, and what `extra` adds."""

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{second}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (job := job_here()) is not None:
            fields |= {"job": job.id.hex(), "task": job.task, "attempt": job.errors + 1}
        fields |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
