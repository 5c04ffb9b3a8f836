"""Stores the chunks that handlers emit, many in one write."""

import threading
from collections import deque
from collections.abc import Collection
from typing import Final

from dueline.core.engine import Engine
from dueline.core.errors import DuelineError
from dueline.core.job import Claim
from dueline.core.logging import log
from dueline.core.store import Commit, Group
from dueline.core.wakeup import Wakeup
from dueline.jobs import chunk_records
from dueline.tasks.chunks import Emitted
from dueline.worker.chunk_inbox import ChunkInbox

TOGETHER_S: Final = 0.1
"""How long chunks wait for others of their job, in seconds."""

IDLE_S: Final = 10.0
"""Time without chunks after which the thread ends, in seconds."""

_RETRY_S: Final = 1.0

_RECORD_BYTES_MAX: Final = 128 * 1024


class _Line:
    """What one claim has emitted and is not stored. sealed: the write that is under way."""

    def __init__(self) -> None:
        self.waiting: deque[Emitted] = deque()
        self.sealed: Commit | None = None
        self.has_begun = False

    def is_empty(self) -> bool:
        return not self.waiting and self.sealed is None


class ChunkWriter:
    """Stores the chunks of one worker's handlers. Its thread runs while some are emitted.

    The chunks of a claim are stored in their order. A write that the store has not confirmed is
    repeated as it was, so no chunk is there twice (rule T2); all are stored before the outcome of
    their attempt (rule T1).
    """

    def __init__(self, engine: Engine, inbox: ChunkInbox) -> None:
        self._engine = engine
        self._inbox = inbox
        self._lines: dict[Claim, _Line] = {}
        self._guard = threading.Lock()
        self._starting = threading.Lock()
        self._arrived = threading.Event()
        self._closing = threading.Event()
        self._is_running = False
        inbox.notify = self._notify

    def has_unwritten(self) -> bool:
        """Return whether some chunks may not be stored yet."""
        return bool(self._inbox) or bool(self._lines)

    def write(self, *, ended: Collection[Claim] = ()) -> None:
        """Store all chunks that were emitted so far.

        Args: ended: claims whose handlers have ended, which emit no more.

        Raises: StoreUnavailable: The rest is kept for the next call.
        """
        if not self.has_unwritten():
            return
        with self._guard:
            self._take()
            while unwritten := {c: line for c, line in self._lines.items() if not line.is_empty()}:
                self._write(unwritten)
            for claim in ended:
                self._lines.pop(claim, None)

    def forget(self, claims: Collection[Claim]) -> None:
        """Drop what claims emitted that ended or were lost."""
        if self.has_unwritten():
            with self._guard:
                self._take()
                for claim in claims:
                    self._lines.pop(claim, None)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._arrived.set()

    def _take(self) -> None:
        for emitted in self._inbox.take():
            self._lines.setdefault(emitted.claim, _Line()).waiting.append(emitted)

    def _write(self, unwritten: dict[Claim, _Line]) -> None:
        """Store one record of each claim."""
        engine = self._engine
        now_us, version = engine.time.latest_us(), engine.ids.token()
        for claim, line in unwritten.items():
            if not line.has_begun and claim.fence > 1:
                old = chunk_records.of_earlier_claims(engine.store, claim.job_id, claim.fence)
                if old is not None:
                    engine.store.commit(old.partition, old.writes)
            line.has_begun = True
            if line.sealed is None:
                line.sealed = _sealed(line.waiting, now_us, version)
        commits = [line.sealed for line in unwritten.values() if line.sealed is not None]
        engine.store.together([Group(commits=(commit,)) for commit in commits])
        for line in unwritten.values():
            line.sealed = None
        engine.wakeups.wake([Wakeup(chunk_records.channel(claim.job_id)) for claim in unwritten])

    def _notify(self) -> None:
        self._arrived.set()
        with self._starting:
            if not self._is_running and not self._closing.is_set():
                self._is_running = True
                threading.Thread(target=self._run, name="dueline-chunks", daemon=True).start()

    def _run(self) -> None:
        while self._wait():
            try:
                self.write()
            except DuelineError as error:  # the next turn retries
                log.info("partial results are delayed: %s", error)
                self._closing.wait(_RETRY_S)
                self._arrived.set()

    def _wait(self) -> bool:
        """Wait for chunks, and for those that come soon after; return whether there are some."""
        if not self._arrived.wait(IDLE_S):
            with self._starting:
                if not self._arrived.is_set():
                    self._is_running = False
                    return False
        self._arrived.clear()
        return not self._closing.wait(TOGETHER_S)


def _sealed(waiting: deque[Emitted], now_us: int, version: bytes) -> Commit:
    """Take chunks of one record from the line."""
    chunks = [waiting.popleft()]
    size = len(chunks[0].data)
    while waiting and size + len(waiting[0].data) <= _RECORD_BYTES_MAX:
        size += len(waiting[0].data)
        chunks.append(waiting.popleft())
    return chunk_records.written(chunks, now_us=now_us, version=version)
