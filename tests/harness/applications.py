"""Applications of tests, and what they wait for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dueline import Dueline
from tests.harness.programs import wait_for


@contextmanager
def application(url: str) -> Iterator[Dueline]:
    """Open an application, and close it."""
    app = Dueline(url)
    try:
        yield app
    finally:
        app.close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    wait_for(is_so, "what the test waits for")
