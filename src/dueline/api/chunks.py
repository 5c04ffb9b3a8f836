"""Readers of the chunks that handlers emit."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dueline.core.clock import SECOND_US, Clock, duration_us, to_datetime
from dueline.core.codec import decode_result
from dueline.core.errors import NotFound
from dueline.core.job import JobId
from dueline.core.store_capabilities import answer_of
from dueline.core.wakeup import Signal, WakeupListener
from dueline.jobs import chunk_records
from dueline.jobs.chunk_records import StoredChunk, read_place
from dueline.jobs.queue import Queues

POLL_S: Final = 0.1
"""Time between two reads after chunks have arrived, in seconds."""

POLL_IDLE_S: Final = 0.25
"""The same where nothing has arrived for a second, or writers notify readers."""

_POLLS_BUSY: Final = 10
"""Number of empty polls after which a reader is idle."""

_CHECK_US: Final = SECOND_US // 4
"""Minimum time between two checks whether the job has ended."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A partial result of a job.

    Attributes:
      id: Its place: a reader that passes it as `after` goes on behind this chunk.
      attempt: The attempt that emitted it, 1 for the first. Begin anew when it changes.
      value: What the handler emitted, read from JSON.
      at: When it was stored, in UTC.
    """

    id: str
    attempt: int
    value: Any
    at: datetime


class ChunkReader:
    """Reads the chunks of one job, poll by poll.

    Args:
      after: The id of the last chunk that was read; None for all.

    Raises:
      BadInput: `after` is no such id.

    Attributes:
      has_ended: No more chunks follow, unless the job is retried by hand.
    """

    def __init__(self, queues: Queues, clock: Clock, job_id: JobId, after: str | None) -> None:
        self._after = None if after is None else read_place(after)
        self._queues, self._clock, self._id = queues, clock, job_id
        self._is_known = self._is_over = self.has_ended = False
        self._check_us = 0
        self._empty_polls = 0

    @property
    def pause_s(self) -> float:
        """Time until the next poll, in seconds."""
        return POLL_S if self._empty_polls < _POLLS_BUSY else POLL_IDLE_S

    def poll(self) -> list[Chunk]:
        """Return the chunks that have arrived.

        Raises: NotFound: the job does not exist, and nothing of it is kept.
        """
        records = self._read()
        if not records and self._is_due() and self._has_ended():
            records = self._read()  # all are stored before the outcome (rule T1)
            self.has_ended = not records
        if records:
            self._is_known, self._after = True, records[-1].place
        self._empty_polls = 0 if records else self._empty_polls + 1
        return list(map(_shown, records))

    def _read(self) -> list[StoredChunk]:
        store = self._queues.engine.store
        return list(answer_of(store, lambda: chunk_records.read(store, self._id, self._after)))

    def _is_due(self) -> bool:
        now_us = self._clock.monotonic_us()
        if now_us < self._check_us:
            return False
        self._check_us = now_us + _CHECK_US
        return True

    def _has_ended(self) -> bool:
        try:
            job = answer_of(self._queues.engine.store, lambda: self._queues.find(self._id))
        except NotFound:
            if not self._is_known and self._after is None:
                raise
            return True  # it has ended, and no result is kept
        self._is_known = True
        return job.outcome is not None or job.status in ("dead", "expired")


class Chunks(Iterator[Chunk], AsyncIterator[Chunk]):
    """The chunks of a job, until it ends; for `for` and `async for`. `job.chunks()` makes it."""

    def __init__(
        self,
        queues: Queues,
        clock: Clock,
        job_id: JobId,
        after: str | None,
        timeout: timedelta | float | None,
    ) -> None:
        self._timeout_us = None if timeout is None else duration_us(timeout)
        self._reader = ChunkReader(queues, clock, job_id, after)
        self._wakeups, self._clock, self._id = queues.engine.wakeups, clock, job_id
        self._ready: deque[Chunk] = deque()
        self._listener: WakeupListener | None = None
        self._signal: Signal | None = None

    def __iter__(self) -> "Chunks":
        return self

    def __aiter__(self) -> "Chunks":
        return self

    def __next__(self) -> Chunk:
        give_up_us = self._give_up_us()
        while not self._ready:
            if self._is_over():
                raise StopIteration
            self._ready += self._reader.poll()
            if not self._ready and not self._reader.has_ended:
                self._expect_time(give_up_us)
                self._wait()
        return self._ready.popleft()

    async def __anext__(self) -> Chunk:
        import asyncio  # noqa: PLC0415  (slow to load)

        give_up_us = self._give_up_us()
        while not self._ready:
            if self._is_over():
                raise StopAsyncIteration
            self._ready += await asyncio.to_thread(self._reader.poll)
            if not self._ready and not self._reader.has_ended:
                self._expect_time(give_up_us)
                await asyncio.sleep(self._reader.pause_s)
        return self._ready.popleft()

    def close(self) -> None:
        """Stop listening; called by the end of the job, too."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __del__(self) -> None:
        if hasattr(self, "_listener"):  # not if the arguments were refused
            self.close()

    def _is_over(self) -> bool:
        if self._reader.has_ended:
            self.close()
        return self._reader.has_ended

    def _wait(self) -> None:
        """Wait for a notification, or for the time of the next poll."""
        if self._listener is None or self._signal is None:
            self._signal = Signal()
            channel = chunk_records.channel(self._id)
            self._listener = self._wakeups.listen([channel], self._signal)
            return  # the next poll reads what came before
        self._listener.wait(POLL_IDLE_S if self._listener.is_open else self._reader.pause_s)
        self._signal.clear()
        self._listener.take()

    def _give_up_us(self) -> int | None:
        return None if self._timeout_us is None else self._clock.monotonic_us() + self._timeout_us

    def _expect_time(self, give_up_us: int | None) -> None:
        if give_up_us is not None and self._clock.monotonic_us() >= give_up_us:
            raise TimeoutError(f"The job {self._id.hex()} has emitted nothing more in time.")


def _shown(chunk: StoredChunk) -> Chunk:
    value = decode_result(chunk.data, Any)
    return Chunk(str(chunk.place), chunk.attempt, value, to_datetime(chunk.at_us))
