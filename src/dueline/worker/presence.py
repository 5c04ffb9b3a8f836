"""What a worker says of itself."""

from dueline.clock import SECOND_US
from dueline.queue import Queues
from dueline.recipes import roster
from dueline.recipes.registry import BEATS_MISSED_MAX, Presence, announce, leave
from dueline.recipes.roster import Member
from dueline.whereabouts import own
from dueline.worker.beat import BEATS_A_LEASE

ROOM_EVERY_US = 2 * SECOND_US
"""Beats for this come no more often: each is a conditional write in a partition of all workers."""


class Attendance:
    """One worker in the registry, from its first beat to its end."""

    def __init__(
        self, queues: Queues, worker: str, *, serving: tuple[str, ...], tasks: tuple[str, ...]
    ) -> None:
        """Take what is said with each beat; says nothing yet."""
        self._queues = queues
        self._worker = worker
        self._serving = serving
        self._tasks = tasks
        self._started_us = queues.time.latest_us()
        self._enrolled_until_us = 0
        self._had_room = True
        self._told_us = 0

    def tell(self, *, slots: int, held: int) -> int:
        """Write a beat; answer the shortest lease of the queues that are served."""
        queues = self._queues
        lease_us = min(queues.catalog.settings(queue).lease_us for queue in self._serving)
        now_us = queues.time.latest_us()
        presence = Presence(
            worker=self._worker,
            queues=self._serving,
            tasks=self._tasks,
            slots=slots,
            held=held,
            started_us=self._started_us,
            beat_us=now_us,
            clock_skew_us=queues.time.skew_us(),
        )
        self._had_room, self._told_us = held < slots, now_us
        every_us = lease_us // BEATS_A_LEASE
        announce(queues.store, presence, version=queues.ids.token(), beat_every_us=every_us)
        self._enrol(now_us)
        self._enrolled_until_us = now_us + BEATS_MISSED_MAX * every_us
        return lease_us

    def tell_of_room(self, *, slots: int, held: int) -> None:
        """Write a beat before its time where shards are shared, and room came or went."""
        if (held < slots) == self._had_room or self._queues.store.scope != "network":
            return
        if self._queues.time.latest_us() - self._told_us >= ROOM_EVERY_US:
            self.tell(slots=slots, held=held)

    def _enrol(self, now_us: int) -> None:
        """Be on the roster; again after a silence, in which this worker was taken for dead."""
        if now_us >= self._enrolled_until_us:
            member = Member(self._worker, self._serving, *own())
            roster.enrol(self._queues.store, member, version=self._queues.ids.token())

    def end(self) -> None:
        """Leave: nothing is held any more."""
        leave(self._queues.store, self._worker)
        roster.strike(self._queues.store, self._worker)
