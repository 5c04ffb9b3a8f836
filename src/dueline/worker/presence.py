"""What a worker says of itself."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dueline.coordination import worker_roster
from dueline.coordination.worker_registry import BEATS_MISSED_MAX, Presence, announce, leave
from dueline.coordination.worker_roster import Member
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.process_identity import own
from dueline.core.strays import stray_answers_of
from dueline.worker.heartbeat import BEATS_A_LEASE

ROOM_EVERY_US = 2 * SECOND_US
"""Beats for this come no more often: each is a conditional write in a partition of all workers."""


CHANGE_EVERY_US = SECOND_US
"""Minimum time between heartbeats that report a change, on a store of one machine."""

CHANGE_EVERY_US_NETWORK = 5 * SECOND_US
"""The same on a store of many machines, where heartbeats are conditional writes."""

_NO_SLOTS: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Load(NamedTuple):
    """What a worker is doing: see `Presence`."""

    slots: int
    held: int
    running: int | None = None
    gathering: int = 0
    is_draining: bool = False
    own: Mapping[str, tuple[int, int]] = _NO_SLOTS


class Attendance:
    """One worker in the registry, from its first beat to its end."""

    def __init__(
        self,
        engine: Engine,
        worker: str,
        *,
        serving: tuple[str, ...],
        tasks: tuple[str, ...],
        batches: Mapping[str, tuple[int, int]] = _NO_SLOTS,
    ) -> None:
        """Take what is said with each beat; says nothing yet."""
        self._engine = engine
        self._worker = worker
        self._serving = serving
        self._tasks = tasks
        self._batches = batches
        self._started_us = engine.time.latest_us()
        self._enrolled_until_us = 0
        self._told: Load | None = None
        self._told_us = 0

    def tell(self, load: Load) -> int:
        """Write a heartbeat; return the shortest lease of the queues that are served."""
        engine = self._engine
        lease_us = min(engine.catalog.settings(queue).lease_us for queue in self._serving)
        now_us = engine.time.latest_us()
        presence = Presence(
            worker=self._worker,
            queues=self._serving,
            tasks=self._tasks,
            slots=load.slots,
            held=load.held,
            started_us=self._started_us,
            beat_us=now_us,
            clock_skew_us=engine.time.skew_us(),
            stray_answers=stray_answers_of(engine.store),
            running=load.running,
            gathering=load.gathering,
            is_draining=load.is_draining,
            own=dict(load.own),
            batches=dict(self._batches),
        )
        self._told, self._told_us = load, now_us
        every_us = lease_us // BEATS_A_LEASE
        announce(engine.store, presence, version=engine.ids.token(), beat_every_us=every_us)
        self._enrol(now_us)
        self._enrolled_until_us = now_us + BEATS_MISSED_MAX * every_us
        return lease_us

    def tell_of_change(self, load: Load) -> None:
        """Write a heartbeat before its time when what was reported is no longer true.

        The end of claiming is reported at once; other changes at most once in a while.
        """
        told = self._told
        if told is None or load == told:
            return
        silent_us = self._engine.time.latest_us() - self._told_us
        if load.is_draining != told.is_draining or silent_us >= self._gap_us(told, load):
            self.tell(load)

    def _gap_us(self, told: Load, load: Load) -> int:
        """Return how long after the last heartbeat a change is reported."""
        if self._engine.store.scope != "network":
            return CHANGE_EVERY_US
        is_room_new = (told.held < told.slots) != (load.held < load.slots)
        return ROOM_EVERY_US if is_room_new else CHANGE_EVERY_US_NETWORK

    def _enrol(self, now_us: int) -> None:
        """Be on the roster; again after a silence, in which this worker was taken for dead."""
        if now_us >= self._enrolled_until_us:
            member = Member(self._worker, self._serving, *own())
            worker_roster.enrol(self._engine.store, member, version=self._engine.ids.token())

    def end(self) -> None:
        """Leave: nothing is held any more."""
        leave(self._engine.store, self._worker)
        worker_roster.strike(self._engine.store, self._worker)
