"""A writer among sixteen: `python -m tests.kills.writer SECONDS`.

It calls what the public API has, as fast as it can, and prints what it did as JSON: the ids of
jobs that it was told are stored, those of them that it cancelled, the slowest call, and every
error that came out of a call.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from dueline import DuelineError, Job
from tests.kills.workload import work

BULK = 20
LATER_S = 3600.0


class Writer:
    """Counts, times and remembers its calls."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self.stored: list[str] = []
        self.cancelled: list[str] = []
        self.errors: list[str] = []
        self.calls = 0
        self.slowest_s = 0.0
        self._asleep: list[Job[int]] = []

    def write(self, seconds: float) -> None:
        """Mix calls until the time is over."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            chance = random.random()
            if chance < 0.5:
                self._store(lambda: [work.enqueue(-1)])
            elif chance < 0.65:
                self._store(lambda: work.enqueue_many([(-1,)] * BULK))
            elif chance < 0.8:
                self._asleep += self._store(lambda: [work.using(after=LATER_S).enqueue(-1)])
            elif chance < 0.9 and self._asleep:
                self._cancel(self._asleep.pop())
            elif self._asleep:
                self._timed(lambda: self._asleep[-1].status)

    def _store(self, call: Callable[[], Sequence[Job[int]]]) -> Sequence[Job[int]]:
        jobs: Sequence[Job[int]] = self._timed(call) or []
        self.stored += [job.id for job in jobs]
        return jobs

    def _cancel(self, job: Job[int]) -> None:
        errors = len(self.errors)
        self._timed(job.cancel)
        if len(self.errors) == errors:
            self.cancelled.append(job.id)

    def _timed(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        began = time.monotonic()
        self.calls += 1
        try:
            return call()
        except DuelineError as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  (whatever comes out is what is looked for)
            self.errors.append(f"raw {type(error).__name__}: {error}")
        finally:
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        return None


if __name__ == "__main__":
    writer = Writer()
    writer.write(float(sys.argv[1]))
    print(json.dumps({name: value for name, value in vars(writer).items() if name[0] != "_"}))  # noqa: T201
