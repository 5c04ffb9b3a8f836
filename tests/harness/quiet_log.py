"""The log, silenced where many expected warnings would hide others."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_log() -> Iterator[None]:
    """Log nothing below critical until the end of the block."""
    log = logging.getLogger("dueline")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
