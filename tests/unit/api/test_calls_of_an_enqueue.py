"""How much Python a plain `enqueue` runs: what is the same for all calls of a task is done once."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from dueline import Dueline

CALLS_MAX = 61
ATTEMPTS = 5  # settings and sockets are read again after some seconds


def calls_of(function: Callable[[], object]) -> int:
    """Return how many Python functions a call enters."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        del frame, argument
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_plain_enqueue_passes_few_functions(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="send")
    def send(address: str, number: int) -> None:
        del address, number

    send.enqueue("ann@example.org", 1)
    counts = [calls_of(lambda: send.enqueue("ann@example.org", 1)) for _ in range(ATTEMPTS)]
    assert min(counts) - 1 <= CALLS_MAX  # without the lambda
    app.close()
