"""Workers that could not start, since their application cannot be imported.

Such a process is no worker yet: it has no heartbeat, and ends at once. It leaves a record, which
the next start of the same application deletes, or which expires when no process tries any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Delete, Put, Records

PARTITION: Final = "failed starts"

KEPT_US: Final = 600 * SECOND_US
"""How long after the last attempt a failure counts: supervisors wait up to five minutes."""

ERROR_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class FailedStart:
    """An application that a machine cannot import.

    Attributes:
      place: The application, as `MODULE:ATTR`.
      host: The machine.
      error: Why.
      queues: Those of `-q`; empty for those of the application.
      times: Number of attempts.
      since_us, at_us: The first and the last attempt.
    """

    place: str
    host: str
    error: str
    queues: tuple[str, ...] = ()
    times: int = 1
    since_us: int = 0
    at_us: int = 0

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.place} {self.host}"


def record(engine: Engine, failed: FailedStart) -> None:
    """Record that a worker could not start."""
    now_us = engine.time.latest_us()
    before, _ = value_at(engine.store, PARTITION, failed.key, FailedStart)
    failed = replace(
        failed,
        error=failed.error[:ERROR_CHARACTERS_MAX],
        times=1 if before is None else before.times + 1,
        since_us=now_us if before is None else before.since_us,
        at_us=now_us,
    )
    put = Put(failed.key, engine.ids.token(), encode(failed), expires_us=now_us + KEPT_US)
    engine.store.commit(PARTITION, (put,))


def clear(engine: Engine, place: str) -> None:
    """Delete the records of an application that has started."""
    keys = [failed.key for failed in failed_starts(engine.store) if failed.place == place]
    if keys:
        engine.store.commit(PARTITION, [Delete(key) for key in keys])


def failed_starts(records: Records) -> Sequence[FailedStart]:
    """Return the applications that some machine cannot import."""
    return [failed for _, failed in readable(records, PARTITION, FailedStart)]
