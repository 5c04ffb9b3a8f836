"""Extends claims, and records that this worker is alive."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import (
    BEATS_A_LEASE,
    BEATS_MISSED_MAX,
    LOST_MAX,
    NO_TASKS,
    KnownTasks,
    Presence,
    Registration,
    announce,
    leave,
)
from dueline.coordination.worker_requests import JOBS_MAX, WorkerAnswer
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import DuelineError, StoreReplaced
from dueline.core.job import Job
from dueline.core.logging import enable_loggers, log
from dueline.core.process_identity import own, resident_bytes_with_children
from dueline.core.queue_catalog import SETTINGS_AGE_US_MAX
from dueline.core.store_capabilities import follow_lease, stray_answers_of
from dueline.core.wakeup import FALLBACK_US_MAX

BETWEEN_S = 0.5
"""Interval of work between heartbeats: progress reports and cancel requests."""


class HeartbeatThread:
    """A thread that sends heartbeats, so that no handler and no slow claim delays them.

    If handlers hold the interpreter lock for longer than two thirds of a lease, heartbeats are late
    too. Run such handlers in child processes (`processes=`).
    """

    def __init__(
        self,
        beat: Callable[[], int],
        between: Callable[[], object] = lambda: None,
        *,
        wakeup: threading.Event,
    ) -> None:
        """Create the thread, without starting it.

        Args:
          beat: Sends a heartbeat; returns the shortest lease held, in microseconds.
          between: Called between heartbeats.
          wakeup: Set when a failure has ended the thread, so that the worker notices.
        """
        self._beat = beat
        self._between = between
        self._wakeup = wakeup
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="dueline-beat", daemon=True)

    def start(self) -> None:
        """Start the heartbeats."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for a heartbeat that is in progress."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the failure that ended the thread, if any: a worker needs heartbeats."""
        if self._failure is not None:
            raise self._failure

    def _loop(self) -> None:
        every_s = wait_s = 0.0
        due_s = time.monotonic()
        while not self._stop.wait(wait_s):
            try:
                if time.monotonic() >= due_s:
                    every_s = self._beat() / BEATS_A_LEASE / 1e6
                    due_s = time.monotonic() + every_s
            except StoreReplaced as error:  # no later heartbeat can succeed
                self._fail(error)
                return
            except DuelineError as error:
                log.warning("a heartbeat failed: %s", error)
                due_s = time.monotonic() + (min(every_s, 1.0) or 0.1)
            except BaseException as error:  # noqa: BLE001  (the worker's own thread raises it)
                self._fail(error)
                return
            self._do_between()
            wait_s = max(0.0, min(due_s - time.monotonic(), BETWEEN_S))

    def _do_between(self) -> None:
        enable_loggers()  # a handler may have configured logging
        try:
            self._between()
        except DuelineError as error:  # retried soon; a failed heartbeat is logged as a warning
            log.info("progress or cancel requests are delayed: %s", error)
        except BaseException as error:  # noqa: BLE001  (see above)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop the heartbeats, and wake the worker so that it raises the failure."""
        self._failure = error
        self._stop.set()
        self._wakeup.set()


ROOM_EVERY_US = 2 * SECOND_US
"""Minimum time between heartbeats that report free slots: each is a conditional write in one
partition for all workers.
"""


CHANGE_EVERY_US = SECOND_US
"""Minimum time between heartbeats that report a change, on a store of one machine."""

CHANGE_EVERY_US_NETWORK = 5 * SECOND_US
"""The same on a store of many machines, where heartbeats are conditional writes."""

_NO_SLOTS: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Load(NamedTuple):
    """What a worker is doing; see `Presence`."""

    slots: int
    held: int
    running: int = 0
    gathering: int = 0
    is_draining: bool = False
    own: Mapping[str, tuple[int, int]] = _NO_SLOTS
    is_quiet: bool = False
    used: Mapping[str, int] = MappingProxyType({})
    lost: tuple[tuple[str, str, int], ...] = ()


def answer_of(
    worker: str, request: str, load: Load, running: Sequence[Job], times_us: tuple[int, int]
) -> WorkerAnswer:
    """Return what a worker answers an operator. times_us: when it started, and now."""
    started_us, now_us = times_us
    return WorkerAnswer(
        worker=worker,
        request=request,
        at_us=now_us,
        started_us=started_us,
        memory_bytes=resident_bytes_with_children(),
        running=len(running),
        jobs=tuple((job.id.hex(), job.task, job.claimed_us) for job in running[:JOBS_MAX]),
        is_quiet=load.is_quiet,
        is_draining=load.is_draining,
    )


class PresenceReporter:
    """Keeps one worker in the registry, from its first heartbeat to its end.

    lease_us: the shortest lease of the queues that it serves, at the last heartbeat.
    """

    def __init__(
        self,
        engine: Engine,
        worker: str,
        *,
        serving: tuple[str, ...],
        known: KnownTasks = NO_TASKS,
        batches: Mapping[str, tuple[int, int]] = _NO_SLOTS,
        address: str = "",
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._serving = serving
        self._known = known
        self._batches = batches
        self._address = address
        self.started_us = engine.time.latest_us()
        self._enrolled_until_us = 0
        self._reported: Load | None = None
        self._reported_us = 0
        self.lease_us = 0

    def report(self, load: Load) -> int:
        """Write a heartbeat; return the shortest lease of the queues that are served."""
        engine = self._engine
        # An idle worker reads no settings for its heartbeat: it needs none before it claims.
        age_us_max = SETTINGS_AGE_US_MAX if load.held else 2 * FALLBACK_US_MAX
        settings = engine.catalog.settings
        self.lease_us = lease_us = min(
            settings(queue, age_us_max=age_us_max).lease_us for queue in self._serving
        )
        follow_lease(engine.store, lease_us)
        now_us, known = engine.time.about_us(), self._known
        tasks = tuple(sorted(known.tasks))
        presence = Presence(
            worker=self._worker,
            queues=self._serving,
            tasks=tasks,
            codecs=tuple(sorted(known.codecs)),
            signatures=tuple(known.signatures[task] for task in tasks) if known.signatures else (),
            slots=load.slots,
            held=load.held,
            started_us=self.started_us,
            beat_us=now_us,
            clock_skew_us=engine.time.skew_us(),
            stray_answers=stray_answers_of(engine.store),
            running=load.running,
            gathering=load.gathering,
            is_draining=load.is_draining,
            own=dict(load.own),
            batches=dict(self._batches),
            is_quiet=load.is_quiet,
            takes_requests=True,
            lost=load.lost[:LOST_MAX],
            has=dict(known.has),
            used=dict(load.used),
        )
        self._reported, self._reported_us = load, now_us
        every_us = lease_us // BEATS_A_LEASE
        announce(engine.store, presence, version=engine.ids.token(), beat_every_us=every_us)
        self._register(now_us)
        self._enrolled_until_us = now_us + BEATS_MISSED_MAX * every_us
        return lease_us

    def report_change(self, load: Load) -> None:
        """Write a heartbeat before its time when what was reported is no longer true.

        That it claims, or no longer, is reported at once; other changes at most once in a while.
        """
        last = self._reported
        if last is None or load == last:
            return
        silent_us = self._engine.time.about_us() - self._reported_us
        is_other = (load.is_draining, load.is_quiet) != (last.is_draining, last.is_quiet)
        if is_other or silent_us >= self._gap_us(last, load):
            self.report(load)

    def _gap_us(self, last: Load, load: Load) -> int:
        """Return how long after the last heartbeat a change is reported."""
        if self._engine.store.scope != "network":
            return CHANGE_EVERY_US
        is_room_new = (last.held < last.slots) != (load.held < load.slots)
        return ROOM_EVERY_US if is_room_new else CHANGE_EVERY_US_NETWORK

    def _register(self, now_us: int) -> None:
        """Register, again after a silence in which this worker was taken for dead."""
        if now_us >= self._enrolled_until_us:
            member = Registration(self._worker, self._serving, *own(), self._address)
            worker_registry.register(self._engine.store, member, version=self._engine.ids.token())

    def end(self) -> None:
        """Remove the worker from the registry: it holds no jobs any more."""
        leave(self._engine.store, self._worker)
        worker_registry.unregister(self._engine.store, self._worker)
