"""Run the steps of a consumer in threads.

One thread sends heartbeats and balances; others poll the held shards, one batch at a time.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from dueline.coordination.leases import BEATS_A_TTL
from dueline.core.clock import SECOND_US
from dueline.core.errors import DuelineError, LeaseLost
from dueline.core.logging import log
from dueline.core.user_code import Raised, contain, log_raised, text_of
from dueline.core.wakeup import Signal, Wakeups
from dueline.streams.batch import Batch
from dueline.streams.consumer import Consumer

T = TypeVar("T")

PAUSE_S: Final = 0.25
"""How long an idle thread waits if appends wake it."""

PAUSE_UNHEARD_S: Final = 0.05
"""How long it waits if nothing can wake it."""

TIDY_EVERY_S: Final = 60.0


class ConsumerThreads:
    """The threads of one member of a group.

    Args:
        threads: Maximum number of shards that are handled at once.
        channel: The wake-up channel that is notified of appends.
        tidy: Called periodically, to delete old events.
    """

    def __init__(
        self,
        consumer: Consumer,
        handle: Callable[[Batch], object],
        *,
        ttl_us: int,
        threads: int,
        wakeups: Wakeups,
        channel: str,
        tidy: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._handle = handle
        self._beat_s = ttl_us / SECOND_US / BEATS_A_TTL
        self._tidy = tidy
        self._stopping = threading.Event()
        self._wakeup = Signal()
        self._hurry = threading.Event()
        self._listener = wakeups.listen([channel], self._wakeup)
        self._beat = threading.Thread(target=self._beat_on, name="dueline-balance", daemon=True)
        self._threads = [
            threading.Thread(target=self._work, name=f"dueline-consumer-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        self._beat.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the threads to stop after their current batches."""
        self._stopping.set()
        self._wakeup.set()
        self._hurry.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the threads, and release the shards; False: a handler still runs."""
        give_up_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if give_up_s is None else max(0.0, give_up_s - time.monotonic()))
        is_over = not any(thread.is_alive() for thread in self._threads)
        self._listener.close()
        if is_over:  # else heartbeats go on: the handler's shards stay its own
            self._beat.join()
            _try(self._consumer.leave)
        return is_over

    def _beat_on(self) -> None:
        tidied_s = time.monotonic()
        while True:
            started_s = time.monotonic()
            _try(self._consumer.balance)
            self._wakeup.set()
            if started_s - tidied_s > TIDY_EVERY_S:
                tidied_s = started_s
                _try(self._tidy)
            if self._wait_for_end(self._beat_s - (time.monotonic() - started_s)):
                return

    def _wait_for_end(self, pause_s: float) -> bool:
        """Wait for the next heartbeat; return True once all handlers have ended."""
        if not self._stopping.is_set():
            self._hurry.wait(max(0.0, pause_s))
            if not self._stopping.is_set():
                self._hurry.clear()
            return False
        for thread in self._threads:
            thread.join(max(0.01, pause_s / len(self._threads)))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wakeup.clear()
            self._listener.take()
            has_worked = False
            for shard in self._consumer.held:
                if not self._stopping.is_set() and self._consumer.begin(shard):
                    try:
                        has_worked |= self._one(shard)
                    finally:
                        self._consumer.end(shard)
            if _try(self._consumer.is_unsettled):
                self._hurry.set()
            if not has_worked:
                self._listener.wait(PAUSE_S if self._listener.is_open else PAUSE_UNHEARD_S)

    def _one(self, shard: int) -> bool:
        """Handle one batch of a shard; return whether there was one."""
        batch = _try(lambda: self._consumer.poll(shard))
        if batch is None:
            return False
        raised = contain(self._handle, batch)
        if not isinstance(raised, Raised):
            _try(lambda: self._consumer.commit(batch))
        elif issubclass(type(raised.error), LeaseLost):
            log.warning("%r: %s", batch, text_of(raised.error))
            self._consumer.forget(shard)
        else:
            log_raised(log, raised, "%r failed", batch)
            if _try(lambda: self._consumer.fail(batch)):
                log.error("%s was parked", batch.events[0])
        return True


def _try(step: Callable[[], T]) -> T | None:
    """Run a step; log its failure, so that the next steps run."""
    try:
        return step()
    except DuelineError as error:
        log.warning("the consumer continues after an error: %s", error)
    except Exception:  # noqa: BLE001  (a thread that ended would hold its shards for ever)
        log.exception("the consumer continues after an error")
    return None
