"""State that threads share: a test fails if it is used without its lock."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dueline.streams.consumer import Consumer
from dueline.streams.trial import HandlerIsolation
from dueline.worker.batch_gatherer import BatchGatherer
from dueline.worker.context_controls import Controls
from dueline.worker.effects import Effects
from dueline.worker.process_runner import ProcessRunner
from dueline.worker.progress_reports import ProgressReports
from dueline.worker.tally import Tally

GUARDED: dict[type, tuple[str, Collection[str]]] = {
    BatchGatherer: ("_guard", {"_begun", "_ended"}),
    Consumer: ("_lock", {"_busy", "_leaving"}),
    Controls: ("_guard", {"_stops"}),
    Effects: ("_lock", {"_waiting"}),
    HandlerIsolation: ("_lock", {"_running", "_alone", "_waiting"}),
    ProcessRunner: ("_guard", {"_children", "_ready", "_alone", "_reports"}),
    ProgressReports: ("_guard", {"_unwritten", "_versions"}),
    Tally: ("_lock", {"_totals"}),
}


@contextmanager
def checked_locks() -> Iterator[None]:
    """Check each use of the shared state of these classes."""
    used: list[str] = []

    def check(kind: type, lock: str, fields: Collection[str]) -> Any:  # noqa: ANN401
        def get(self: object, name: str) -> object:
            if name in fields:
                held = self.__dict__.get(lock)
                if held is not None and not held.locked():
                    used.append(f"{kind.__name__}.{name}")
            return object.__getattribute__(self, name)

        return get

    with pytest.MonkeyPatch.context() as patch:
        for kind, (lock, fields) in GUARDED.items():
            patch.setattr(kind, "__getattribute__", check(kind, lock, fields), raising=False)
        yield
    assert not used, f"used without a lock: {used}"
