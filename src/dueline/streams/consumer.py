"""One member of a consumer group, in steps.

It holds shards by lease, reads each up to its watermark, and moves a checkpoint that carries the
epoch of the lease. Nothing here waits or starts a thread: `streams.consumer_threads` does, or a
simulation. One thread calls `balance`; one thread at a time calls `poll`, `commit` and `fail` for a
shard.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from dueline.coordination.leases import Leases, grants
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, DuelineError, LeaseLost
from dueline.core.job import Job
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Group, Put, Row, Store
from dueline.jobs.decisions import decide, of_record
from dueline.log import checkpoint, trimming
from dueline.log.checkpoint import Checkpoint, Place
from dueline.log.reader import ShardReader
from dueline.streams import dead_letters, groups, resharding, topics
from dueline.streams.batch import Batch, ConsumerOptions, HeldShard
from dueline.streams.dead_letters import Note, Plan
from dueline.streams.groups import Member
from dueline.streams.shard_order import RESHARD_CHECK_US, ShardOrder
from dueline.streams.trial import HandlerIsolation, begun

log = logging.getLogger("dueline.streams.consumer")

RETRY_US_MIN: Final = SECOND_US // 10
RETRY_US_MAX: Final = 30 * SECOND_US

SKIPPED_MAX: Final = 1000
"""Number of events of other topics past which a checkpoint is moved."""

SKIPPED_US: Final = 5 * SECOND_US
"""How long a checkpoint may stay before events of other topics."""


class Consumer:
    """One member of a group: the shards that it holds, and its progress in each.

    Args:
        name: Name of the member, unique to the process and the start.
        settings: Reads the current settings of the stream.
        from_us: Where the group begins if it is new.
        isolation: Shared by all members of a process; None for one of its own.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        name: str,
        *,
        stream: str,
        settings: Callable[[], StreamSettings],
        group: str,
        terms: ConsumerOptions,
        owner: object = None,
        from_us: int = 0,
        isolation: HandlerIsolation | None = None,
    ) -> None:
        self.name = name
        self.owner = owner
        self._engine = engine
        self._clock = clock
        self._stream = stream
        self._order = ShardOrder(engine.store, stream, group, settings=settings, clock=clock)
        self._group = group
        self._terms = terms
        self._is_wanted = topics.chosen(terms.pattern)
        self._from_us = from_us
        self._leases = Leases(
            engine.store,
            groups.leases_at(stream, group),
            name,
            ttl_us=terms.ttl_us,
            time=engine.time,
            clock=clock,
            ids=engine.ids,
        )
        self._isolation = isolation or HandlerIsolation(clock)
        self._lock = threading.Lock()
        self._holds: dict[int, HeldShard] = {}
        self._busy: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._has_idle_surplus = False
        self._sought_us = 0
        self._wishes: set[str] = set()
        self._registered: groups.Group | None = None

    # Which shards are held

    @property
    def held(self) -> list[int]:
        """The shards that are certainly held, and are not about to be released."""
        with self._lock:
            return sorted({int(key) for key in self._leases.held} - self._leaving)

    def is_sure(self, shard: int, epoch: int) -> bool:
        """Return whether a shard is certainly still held under an epoch."""
        return self._leases.epoch(str(shard)) == epoch

    def balance(self) -> None:
        """Send a heartbeat, release surplus shards, and take free ones up to the share.

        To be called BEATS_A_TTL times while a lease lasts. A member that is alone holds all; a
        dead member's shards are free once its leases have expired.
        """
        store, ids = self._engine.store, self._engine.ids
        if self._registered is None:
            self._registered = groups.register(
                store, self._stream, self._group, from_us=self._from_us, version=ids.token(),
                pattern=self._terms.pattern,
            )  # fmt: skip
        self._has_idle_surplus = False
        self._leases.renew()
        self._say()
        self._leases.look()
        self._order.look()
        names = [member.name for member in groups.members(store, self._stream, self._group)]
        wanted = groups.share(names, self.name, len(self._order.shards))
        self._give_away(wanted)
        for shard in groups.preferred(self.name, self._order.shards):
            if len(self._leases.held) >= wanted:
                break
            if str(shard) not in self._leases.held and self._leases.is_free(str(shard)):
                self._leases.take(str(shard))
        if any(hold.note.parked for hold in list(self._holds.values())):
            self._wishes = dead_letters.asked(store, self._stream, self._group)

    def is_unsettled(self) -> bool:
        """Return whether `balance` is due before the next heartbeat; checks periodically.

        The stream was resharded, a shard to release is idle now, or a shard is free because its
        member left or died.
        """
        return self._has_idle_surplus or self._order.is_changed() or self._is_some_free()

    def _is_some_free(self) -> bool:
        now_us = self._clock.monotonic_us()
        if now_us - self._sought_us < RESHARD_CHECK_US:
            return False
        self._sought_us = now_us
        known = grants(self._engine.store, groups.leases_at(self._stream, self._group))
        until_us = {int(key): grant.until_us for key, grant in known.items()}
        present_us = self._engine.time.earliest_us()
        return any(until_us.get(shard, 0) <= present_us for shard in self._order.shards)

    def _say(self) -> None:
        now_us = self._engine.time.latest_us()
        with self._lock:
            longest_us = min(self._busy.values(), default=0)
        busy_us = now_us - (self._clock.monotonic_us() - longest_us) if longest_us else 0
        said = Member(self.name, tuple(self.held), now_us, busy_us)
        groups.beat(
            self._engine.store,
            self._stream,
            self._group,
            said,
            version=self._engine.ids.token(),
            ttl_us=self._terms.ttl_us,
        )

    def _give_away(self, wanted: int) -> None:
        """Release shards beyond the share; those with a batch in progress later."""
        with self._lock:
            held = [int(key) for key in self._leases.held]
            mine = [shard for shard in held if shard in self._order.shards]
            surplus = groups.preferred(self.name, mine)[wanted:]
            surplus += [shard for shard in held if shard not in self._order.shards]
            self._leaving = set(surplus)
            free = [shard for shard in surplus if shard not in self._busy]
        self._release(free)

    def _release(self, shards: Collection[int]) -> None:
        for shard in shards:
            hold = self._holds.get(shard)
            if hold is not None:
                with suppress(DuelineError):  # then the attempt counts as a death
                    self._end_attempt(shard, hold)
            self._holds.pop(shard, None)
        names = [str(shard) for shard in shards]
        expired = [name for name in names if self._leases.has_expired(name)]
        self._leases.release(names, expired=expired)  # the next holder keeps suspecting (rule F7)
        with self._lock:
            self._leaving.difference_update(shards)

    def leave(self) -> None:
        """Release all shards, so that others need not wait."""
        self._release([int(key) for key in list(self._leases.held)])
        groups.leave(self._engine.store, self._stream, self._group, self.name)

    # What is read

    def begin(self, shard: int) -> bool:
        """Reserve a shard for the calling thread; False: another polls it, or it is released."""
        with self._lock:
            if shard in self._busy or shard in self._leaving:
                return False
            self._busy[shard] = self._clock.monotonic_us()
            return True

    def end(self, shard: int) -> None:
        """Let others poll a shard."""
        with self._lock:
            self._busy.pop(shard, None)
            self._isolation.leave(self._runner(shard))
            self._has_idle_surplus |= shard in self._leaving

    def poll(self, shard: int) -> Batch | None:
        """Read the next events of a held shard; None: there are none yet, or it is paused.

        The same events are returned again until they are committed.
        """
        if self._order.is_paused(shard):
            return None
        hold = self._open(shard)
        if hold is None or self._clock.monotonic_us() < hold.again_us:
            return None
        for key in sorted(self._wishes & hold.note.parked.keys()):
            batch = None if self._order.waits(shard, key) else self._parked(hold, shard, key)
            if batch is not None:
                return batch
        if not hold.handed and not self._read_on(hold, shard):
            self._move_past_skipped(shard, hold)
            return None
        if self._is_wanted is not None and not self._skip(hold, shard):
            return None
        aside = [row for row in hold.handed if hold.note.has(row)]
        if aside:
            dead_letters.park(self._engine.store, self._group, aside)
            rows = [row for row in hold.handed if not hold.note.has(row)]
            if not rows:
                self._move(shard, hold, self._moved(hold, hold.handed, hold.note))
                return None
            return self._batch(shard, hold, rows)
        return self._batch(shard, hold, hold.handed) if hold.handed else None

    def _skip(self, hold: HeldShard, shard: int) -> bool:
        """Drop the rows of other topics; return whether some are left."""
        wanted = [row for row in hold.handed if self._is_wanted is None or self._is_wanted(row)]
        if not wanted:
            hold.skipped_us = hold.skipped_us if hold.skipped else self._clock.monotonic_us()
            hold.skipped += hold.handed
            self._move_past_skipped(shard, hold)
        hold.handed = wanted
        return bool(wanted)

    def _move_past_skipped(self, shard: int, hold: HeldShard) -> None:
        """Move the checkpoint past rows of other topics, once they are many or wait for long."""
        waits_us = self._clock.monotonic_us() - hold.skipped_us
        if hold.skipped and (len(hold.skipped) >= SKIPPED_MAX or waits_us >= SKIPPED_US):
            self._move(shard, hold, self._moved(hold, hold.skipped, hold.note))
            hold.skipped = []

    def _read_on(self, hold: HeldShard, shard: int) -> bool:
        """Read the next events of a shard; at the end of a sealed one, record that (rule F5)."""
        if self._order.is_old(shard):
            hold.reader.seal()
        hold.handed = hold.reader.read(self._terms.batch)
        if not hold.handed and hold.reader.has_ended and not self._order.is_read_out(shard):
            token = self._engine.ids.token()
            text = dead_letters.write_note(hold.note.behind(resharding.END))
            wanted = checkpoint.with_place(
                hold.present, resharding.END, rows=0, version=token, note=text
            )
            self._move(shard, hold, wanted)
            self._order.end(shard)
        return bool(hold.handed)

    def _batch(self, shard: int, hold: HeldShard, rows: Sequence[Row]) -> Batch | None:
        is_careful = hold.careful_until is not None and _place(rows[0]) <= hold.careful_until
        return self._attempt(shard, hold, rows[:1] if is_careful else rows)

    def _attempt(
        self, shard: int, hold: HeldShard, rows: Sequence[Row], key: str | None = None
    ) -> Batch | None:
        """Return a batch; record a trial first if it may kill this process (rule F7).

        An event that killed too many processes is parked instead. If a suspect has to run alone
        while other handlers run, nothing is returned yet.
        """
        trial = hold.note.trial
        first, last = _place(rows[0]), _place(rows[-1])
        attempt = (first, key or "")
        has_died = self._leases.has_expired(str(shard)) and not self._terms.is_trusted
        is_suspect = trial is not None or has_died
        if is_suspect and hold.noted != attempt:
            deaths = 0 if trial is None else trial.deaths_at(*attempt)
            hold.tries = max(hold.tries, deaths)
            if self._terms.park_after is not None and deaths >= self._terms.park_after:
                self._set_aside(Batch(self, rows, hold, key=key), deaths)
                return None
        if not self._isolation.enter(self._runner(shard), alone=is_suspect and first == last):
            return None
        if is_suspect and hold.noted != attempt:
            noted = begun(trial, first, last, epoch=hold.epoch, key=key or "")
            self._move(shard, hold, self._noted(hold, replace(hold.note, trial=noted)))
            hold.noted = attempt
        return Batch(self, rows, hold, key=key)

    def _set_aside(self, batch: Batch, deaths: int) -> None:
        """Park an event that killed too many processes; if that is not possible, it waits."""
        if self._park(batch):
            log.error("%s was parked: it killed %d processes", batch.events[0], deaths)
        else:
            batch.hold.again_us = self._clock.monotonic_us() + RETRY_US_MAX

    def _end_attempt(self, shard: int, hold: HeldShard) -> None:
        """Record the end of an attempt, so that it does not count as a death.

        An attempt under another epoch ended with its process, and still counts.
        """
        hold.noted = None
        trial = hold.note.trial
        if trial is not None and trial.epoch == hold.epoch:
            self._move(shard, hold, self._noted(hold, replace(hold.note, trial=trial.over())))

    def _runner(self, shard: int) -> tuple[int, int]:
        return id(self), shard

    def _open(self, shard: int) -> HeldShard | None:
        """Open the checkpoint of a shard under the lease's epoch, which fences earlier holders."""
        epoch = self._leases.epoch(str(shard))
        hold = self._holds.get(shard)
        if epoch is None or (hold is not None and hold.epoch == epoch):
            return hold if epoch is not None else None
        if not self._order.may_begin(shard):
            return None
        engine = self._engine
        kept_at = groups.checkpoints_at(self._stream, self._group)
        present = checkpoint.open_under(
            engine.store, kept_at, str(shard), epoch=epoch, version=engine.ids.token()
        )
        if present is None:
            return None
        assert self._registered is not None, "balance comes first"
        begin, note = (self._registered.from_us, b""), self._order.note(shard, present)
        present = trimming.move_past_trimmed(
            engine.store, self._stream, shard, present,
            begin=begin, note=dead_letters.write_note(note), version=engine.ids.token(),
        )  # fmt: skip
        if present is None:
            return None
        reader = ShardReader(
            engine.store,
            self._stream,
            shard,
            after=present.place or begin,
            time=engine.time,
            clock=self._clock,
        )
        hold = HeldShard(epoch, present, note, reader)
        if note.trial is not None:
            if note.trial.epoch == epoch:  # an attempt of this member, which is alive
                hold.note = replace(note, trial=note.trial.over())
            hold.careful_until = None if note.trial.key else note.trial.until_place
        self._holds[shard] = hold
        return hold

    # The outcome of a batch

    def wanted(self, batch: Batch) -> Checkpoint:
        """Return the checkpoint to write once a batch is handled."""
        hold = batch.hold
        if batch.key is not None:
            note = hold.note.with_key(batch.key, _place(batch.rows[-1]))
            return self._noted(hold, replace(note, trial=None))
        return self._moved(hold, batch.rows, hold.note)

    def commit(self, batch: Batch) -> None:
        """Move the checkpoint past a batch that was handled.

        Raises: LeaseLost: the lease is not certain, or another member has the shard; the batch will
          be handled again. Unknown: it may or may not have moved; the next poll reads it.
        """
        if batch.tx is not None:
            if not self._after_transaction(batch):
                raise Conflict("The transaction with the batch's position was not committed.")
            return
        batch.check()
        self._move(batch.shard, batch.hold, wanted := self.wanted(batch))
        self._passed(batch, wanted)

    def commit_with(self, batch: Batch, jobs: Sequence[Job], store: Store) -> None:
        """Insert a job for each event of a batch, and move the checkpoint past it (rule F11).

        Args:
          jobs: New rows, but for those that the plan of an earlier attempt has.
          store: The engine's store, or what records new jobs in the history.

        Raises: as `commit`.
        """
        batch.check()
        hold = batch.hold
        closed = self._moved(hold, batch.rows, replace(hold.note, plan=None))
        at_us, row_id = _place(batch.rows[-1])
        planned = tuple(job._replace(body=b"") for job in jobs)
        plan = Plan((at_us, row_id.hex()), planned)
        opened = checkpoint.commit_of(
            hold.present, self._noted(hold, replace(hold.note, plan=plan))
        )
        (put,) = checkpoint.commit_of(hold.present, closed).writes
        assert isinstance(put, Put)
        try:
            is_made = all(decide(store, [of_record(opened, Group(jobs=jobs), put)]))
        except DuelineError:
            self.forget(batch.shard)
            raise
        if not is_made:
            self.forget(batch.shard)
            raise LeaseLost(f"Another member holds shard {batch.shard} of {self._stream}.")
        self._passed(batch, closed)

    def fail(self, batch: Batch) -> bool:
        """Record that the handler of a batch failed: its events are retried later, one by one.

        Returns: whether its event was parked.

        Raises: as `commit`.
        """
        hold, park_after = batch.hold, self._terms.park_after
        self._isolation.leave(self._runner(batch.shard))
        if batch.tx is not None:
            self._after_transaction(batch)
            return False
        hold.tries += 1
        pause_us = min(RETRY_US_MAX, RETRY_US_MIN * 2 ** min(hold.tries, 20))
        hold.again_us = self._clock.monotonic_us() + pause_us
        if hold.noted is not None:
            self._end_attempt(batch.shard, hold)
        if len(batch.rows) > 1:
            hold.careful_until, hold.tries = _place(batch.rows[-1]), 0
            hold.again_us = 0
            return False
        if park_after is None or hold.tries < park_after:
            return False
        batch.check()
        return self._park(batch)

    def _park(self, batch: Batch) -> bool:
        """Park an event; return False if no more keys can be parked."""
        hold = batch.hold
        if batch.key is not None:  # an event of a parked key stays where it is
            dead_letters.withdraw(self._engine.store, self._stream, self._group, batch.key)
            self._wishes.discard(batch.key)
            if hold.note.trial is not None:
                wanted = self._noted(hold, replace(hold.note, trial=None))
                self._move(batch.shard, hold, wanted)
            hold.tries = hold.again_us = 0
            return True
        if len(hold.note.parked) >= dead_letters.KEYS_MAX:
            return False
        dead_letters.park(self._engine.store, self._group, batch.rows)
        at_us, row_id = _place(batch.rows[0])
        note = hold.note.with_key(dead_letters.key_of(batch.rows[0]), (at_us, _before(row_id)))
        wanted = self._moved(hold, batch.rows, note)
        self._move(batch.shard, hold, wanted)
        self._passed(batch, wanted)
        return True

    def _parked(self, hold: HeldShard, shard: int, key: str) -> Batch | None:
        """Read the parked events of a key; if none are left, the key is no longer parked."""
        store = self._engine.store
        rows = dead_letters.rows_of(
            store, self._stream, self._group, shard, key=key, after=hold.note.place(key), limit=1
        )
        if rows:
            return self._attempt(shard, hold, rows, key)
        self._move(shard, hold, self._noted(hold, hold.note.without(key)))
        if not self._order.goes_on(shard, key):
            dead_letters.withdraw(store, self._stream, self._group, key)
            self._wishes.discard(key)
        return None

    def _moved(self, hold: HeldShard, rows: Sequence[Row], note: Note) -> Checkpoint:
        token = self._engine.ids.token()
        place = _place(rows[-1])
        text = dead_letters.write_note(note.behind(place))
        return checkpoint.with_place(hold.present, place, rows=len(rows), version=token, note=text)

    def _noted(self, hold: HeldShard, note: Note) -> Checkpoint:
        token = self._engine.ids.token()
        return hold.present._replace(version=token, note=dead_letters.write_note(note))

    def _move(self, shard: int, hold: HeldShard, wanted: Checkpoint) -> None:
        try:
            is_moved = checkpoint.write(self._engine.store, hold.present, wanted)
        except DuelineError:
            self._holds.pop(shard, None)
            raise
        if not is_moved:
            self._holds.pop(shard, None)
            raise LeaseLost(f"Another member holds shard {shard} of {self._stream}.")
        hold.present, hold.note = wanted, dead_letters.read_note(wanted.note)
        if wanted.place is not None:
            hold.handed = [row for row in hold.handed if _place(row) > wanted.place]

    def _passed(self, batch: Batch, wanted: Checkpoint) -> None:
        hold = batch.hold
        hold.present, hold.note = wanted, dead_letters.read_note(wanted.note)
        hold.tries = hold.again_us = 0
        hold.noted = None
        self._leases.clear_expired(str(batch.shard))
        self._isolation.leave(self._runner(batch.shard))
        if batch.key is None:
            place = _place(batch.rows[-1])
            hold.skipped = []
            hold.handed = [row for row in hold.handed if _place(row) > place]
            if hold.careful_until is not None and place >= hold.careful_until:
                hold.careful_until = None

    def _after_transaction(self, batch: Batch) -> bool:
        """Continue after a batch whose position was committed; otherwise read the checkpoint."""
        assert batch.tx is not None
        if batch.tx.is_committed and batch.wanted is not None:
            self._passed(batch, batch.wanted)
            return True
        self.forget(batch.shard)
        return False

    def forget(self, shard: int) -> None:
        """Drop the state of a shard, so that the next poll reads its checkpoint."""
        self._holds.pop(shard, None)
        self._isolation.leave(self._runner(shard))


def _place(row: Row) -> Place:
    return row.at_us, row.id


def _before(row_id: bytes) -> bytes:
    """Return an id just before another one."""
    return row_id[:-1] + bytes([row_id[-1] - 1]) + b"\xff" if row_id[-1] else row_id[:-1]
