"""Moves all jobs of a store to another one, while producers and workers run.

The source is marked first: from then on processes refuse it and name the new address, and workers
only end what they hold. Then what jobs depend on is copied, the target is opened, and the rows
follow in portions (rules X1 to X6). Whatever process dies, the next one continues.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dueline.admin import move_records
from dueline.admin.move_audit import MoveAudit, MoveAuditor
from dueline.admin.move_history import JobSet, copy_history, moved_jobs
from dueline.admin.move_plan import lanes_of, rehearse
from dueline.admin.move_portions import PARTITION, Portions
from dueline.batches import records as batches
from dueline.core import features
from dueline.core.call_options import call_of
from dueline.core.clock import SECOND_US, Clock
from dueline.core.codec import encode
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, JobId, Token, is_away
from dueline.core.lane import Lane
from dueline.core.pagination import jobs_in, parts_of, walk
from dueline.core.queue_catalog import LATE_US
from dueline.core.readable_records import value_at
from dueline.core.store import Delete, Put
from dueline.core.store_capabilities import ShowsTransactions
from dueline.jobs import orders
from dueline.jobs.completion import complete, stored
from dueline.jobs.dependencies import awaiting
from dueline.jobs.queue import Queues
from dueline.monitor.dead_workers import release_dead_worker
from dueline.schedules import schedule as definition
from dueline.schedules.scheduler import finish_started
from dueline.workflows import records as flows

GRACE_US: Final = LATE_US + SECOND_US
"""How long after the mark a call may still store jobs that it will not withdraw (rule X1)."""

PAGE: Final = 500
_STATE: Final = "state"
_REST_S: Final = 0.5
_PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class _State:
    """How far a move is.

    Attributes:
      source: The old store.
      stage: filling, open, or done.
      closed_us: The target's time when the source was marked; 0 before.
    """

    source: str
    stage: str = "filling"
    closed_us: int = 0


@dataclass(slots=True)
class Moved:
    """What a move has done so far.

    Attributes:
      jobs: Rows moved by this process.
      waiting: Rows that were left by the last pass: their claims are under way, or those of other
        steps of their workflows.
      results: Records of results copied by this process.
      events: Events of moved jobs in the history that were copied by this process.
      waits_for: What the last pass waits for, in words; empty for nothing.
    """

    jobs: int = 0
    waiting: int = 0
    results: int = 0
    events: int = 0
    waits_for: str = ""


class Mover:
    """One move from a store to another; run it again to continue.

    Args:
      source: The queues of the old store.
      target: The queues of the new store.
      names: The addresses of both, without passwords; they identify the move.
      clock: This machine's clock.
      report: Called with a sentence at each stage, and with what was done at each pass.
      grace_us: As GRACE_US.
    """

    def __init__(
        self,
        source: Queues,
        target: Queues,
        names: tuple[str, str],
        *,
        clock: Clock,
        report: Callable[[str, Moved], None],
        grace_us: int = GRACE_US,
    ) -> None:
        self._queues = source
        self._source = source.engine
        self._target = target.engine
        self._from, self._to = names
        self._clock = clock
        self._report = report
        self._grace_us = grace_us
        self._portions = Portions(self._source, self._target)
        self._flows: set[JobId] = set()
        self._schedules: list[str] = []
        self._orders: dict[str, int] = {}  # order keys that wait for rows of the source
        self._callers: set[bytes] = set()  # functions whose called jobs may end in the source
        self._held: Job | None = None  # a job whose claim is under way
        self.moved = Moved()
        for engine in (self._source, self._target):
            engine.catalog.features.moves = True

    def is_begun(self) -> bool:
        """Return whether this move was begun before.

        Raises: Conflict: one of the stores takes part in another move.
        """
        if self._from == self._to:
            raise Conflict("Both addresses are of the same store.")
        self._source.catalog.features.check()
        self._target.catalog.features.check()
        moved_to = self._source.catalog.features.moved_to
        state = self._state()
        is_ours = (
            state is not None
            and state.source == self._from
            and (state.stage == "filling" or moved_to == self._to)
        )
        if moved_to and not is_ours:
            raise Conflict(f"The store has moved to {moved_to}.", hint="Move it from there.")
        if state is not None and state.stage != "done" and not is_ours:
            raise Conflict(f"The new store is being filled from {state.source}.")
        back_to = self._target.catalog.features.moved_to
        if back_to not in ("", self._from):
            raise Conflict(f"The new store has moved to {back_to} itself.")
        return is_ours

    def run(self, *, leave_streams: bool = False) -> Moved:
        """Move everything, and wait for claims under way.

        Raises:
          Conflict: Something is refused, and nothing was changed; or another process moves the
            stores, too.
          StoreUnavailable: A store did not answer for long. Run it again.
        """
        is_begun = self.is_begun()
        self._report("reading both stores", self.moved)
        rehearse(
            self._source, self._target, is_begun=is_begun, leave_streams=leave_streams
        ).expect_possible()
        if not is_begun:
            self._patiently(self._begin)
        self._patiently(self._close)
        state = self._state()
        assert state is not None
        if state.stage == "filling":
            self._report("waiting for calls that began before the mark", self.moved)
            rest_us = state.closed_us + self._grace_us - self._target.time.earliest_us()
            self._clock.sleep(max(0, rest_us) / SECOND_US)
            self._await_transactions()
            self._patiently(self._fill)
            self._store_state(replace(state, stage="open"))
        self._patiently(self._open)
        self._report(f"{self._to} is open; moving jobs", self.moved)
        self._patiently(self._list_unmoved)
        self._patiently(self._move_all)
        self._patiently(self._end)
        return self.moved

    def is_done(self) -> bool:
        """Return whether this move was run to its end.

        Raises: Conflict: as `is_begun`.
        """
        state = self._state() if self.is_begun() else None
        return state is not None and state.stage == "done"

    def audit(self) -> MoveAudit:
        """Compare both stores after the move: see `move_audit`.

        Raises: Conflict: the move is not done.
        """
        state = self._state() if self.is_done() else None
        if state is None:
            raise Conflict("The move is not done.", hint="Run it first.")
        return MoveAuditor(
            self._source, self._target, state.closed_us, lambda text: self._report(text, self.moved)
        ).run()

    # The stages

    def _begin(self) -> None:
        """Keep other processes out of the target until it is filled (rule X6)."""
        store, ids = self._target.store, self._target.ids
        name = features.FILLING + self._from
        store.commit(features.PARTITION, (Put(name, ids.token(), b"{}"),))
        store.commit(features.PARTITION, (Delete(features.MOVED + self._from),))  # moved back
        self._store_state(_State(self._from))
        self._target.catalog.features.check()

    def _close(self) -> None:
        """Mark the source: nothing is enqueued or claimed there any more (rule X1)."""
        self._source.catalog.adopt(features.MOVED + self._to)
        state = self._state()
        assert state is not None
        if not state.closed_us:
            self._store_state(replace(state, closed_us=self._target.time.latest_us()))

    def _fill(self) -> None:
        """Copy what jobs depend on, and move the jobs that others depend on."""
        source, target = self._source.store, self._target.store
        self._report("copying settings, limits and unique keys", self.moved)
        self._release_dead()
        move_records.copy_features(self._source, self._target)
        move_records.copy_settings(self._source, self._target)
        move_records.put_new(target, self._records(*move_records.COPIED))
        move_records.copy_leases(target, self._records(move_records.LEASES))
        keyed = move_records.copy_keys(source, target, self._records("unique"))
        orders.copy_keys(target, self._records(orders.KIND))
        self._list_unmoved()
        self._list_callers()
        self._move_parts()
        for part in parts_of(sorted(keyed), PAGE):
            self._move_rows(row for row in source.find(part) if row is not None)

    def _open(self) -> None:
        """Let other processes use the target."""
        name = features.FILLING + self._from
        self._target.store.commit(features.PARTITION, (Delete(name),))

    def _move_all(self) -> None:
        """Move rows in passes until none is left; copy results between and at the end."""
        keys: Sequence[tuple[str, Put]] | None = None
        copied = move_records.all_records(self._target.store)
        self._orders = {part: 0 for part, put in copied if _is_awaited(part, put)}
        while True:
            self._release_dead()
            self._held = None
            self._list_callers()
            self._move_parts()
            self.moved.waiting = sum(map(self._move_lane, self._lanes()))
            self.moved.waits_for = self._waits_for()
            if keys is None:
                self._copy_results()
                keys = move_records.keys_elsewhere(self._target.store)
            keys = move_records.release_keys(self._source.store, self._target.store, keys)
            self._release_orders(self._orders)
            self._report("moving jobs", self.moved)
            if not (self.moved.waiting or self._flows or self._schedules or self._orders):
                break
            self._clock.sleep(_REST_S)
        self._copy_results()

    def _release_dead(self) -> None:
        """Release what dead workers hold in the source: its own monitor may be gone."""
        after = None
        while (after := release_dead_worker(self._source, after).after) is not None:
            pass

    def _waits_for(self) -> str:
        """Return what holds the rest back, in words."""
        waits = []
        if (job := self._held) is not None:
            left_s = max(0, job.at_us - self._source.time.earliest_us()) // SECOND_US
            waits.append(
                f"job {job.id.hex()} of {job.task or 'a workflow'} on worker {job.worker}, whose "
                f"claim ends in {left_s} s unless it is extended"
            )
        if self._flows:
            waits.append(f"running steps of {len(self._flows)} workflows")
        if self._schedules:
            waits.append(f"the last job of {len(self._schedules)} schedules")
        return ", ".join(waits)

    def _end(self) -> None:
        state = self._state()
        assert state is not None
        moved = JobSet(job for job, _ in moved_jobs(self._target.store, state.closed_us))
        self._report("copying the history of moved jobs", self.moved)
        self.moved.events = copy_history(self._source, self._target, moved)
        self._store_state(replace(state, stage="done"))
        move_records.delete_moved(self._source.store)

    # Rows

    def _lanes(self) -> list[Lane]:
        """Return the lanes of the source, the most urgent and oldest first."""
        return sorted(set(lanes_of(self._source)), key=lambda lane: (-lane.priority, lane.bucket))

    def _move_lane(self, lane: Lane) -> int:
        """Move the rows of a lane; return how many are left."""
        left = 0
        for page in walk(self._source.store, lane, page_size=PAGE):
            left += self._move_rows(page)
            self._report("moving jobs", self.moved)
        return left

    def _move_rows(self, rows: Iterable[Job], flow: JobId | None = None) -> int:
        """Move rows that nothing holds back; return how many are left.

        Args:
          rows: Rows of the source.
          flow: The workflow that moves now.
        """
        now_us = self._source.time.earliest_us()
        portions: dict[Token, list[Job]] = {}
        free: list[Job] = []
        left = 0
        for row in rows:
            step = flows.step_of(row)
            if is_away(row):
                portions.setdefault(row.token, []).append(row)
            elif row.outcome:  # decided: the end is completed here (rule P5)
                complete(self._source.store, [stored(row)])
            elif (is_held := _is_held(row, now_us)) or (step and flow != step[0] in self._flows):
                left += 1
                self._held = row if is_held else self._held
            elif row.id in self._callers or self._waits_here(row):
                left += 1
            else:
                free.append(row)
        for token, taken in portions.items():
            self.moved.jobs += self._portions.resume(token, taken)
        moved = self._portions.move(free)
        self.moved.jobs += moved
        if self._orders and moved:
            self._release_orders(orders.partitions_of(free))
        return left + len(free) - moved

    def _waits_here(self, row: Job) -> bool:
        """Return whether a job waits for another one that is still in the source (rule J5)."""
        awaits = awaiting(row)
        if awaits is None:
            return False
        rows = self._source.store.find(list(map(JobId, awaits.jobs)))
        is_here = any(awaited is not None and not awaited.outcome for awaited in rows)
        return is_here or not self._flows.isdisjoint(awaits.flows)

    # What moves as a whole

    def _list_callers(self) -> None:
        """List the durable functions of which a called job may still end in the source.

        They stay with it, since its end is recorded beside their logs there. Nothing is claimed in
        the source any more, so these jobs are known.
        """
        source, self._callers = self._source, set()
        if features.FUNCTIONS in features.names_of(source.store):
            rows = (row for lane in lanes_of(source) for row in jobs_in(source.store, lane))
            began = (row for row in rows if (row.is_claimed() or row.outcome) and not is_away(row))
            self._callers = {call.parent for row in began if (call := call_of(row)) is not None}

    def _list_unmoved(self) -> None:
        """List the workflows and schedules that are still in the source."""
        self._flows = {flow for flow, _ in flows.listed(self._source.store)}
        self._schedules = [stored.name for stored in definition.all_stored(self._source.store)]

    def _move_parts(self) -> None:
        """Move workflows and schedules of which no job runs."""
        for flow in sorted(self._flows):
            if self._move_flow(flow):
                self._flows.discard(flow)
                self._report("moving workflows", self.moved)
        self._schedules = [name for name in self._schedules if not self._move_schedule(name)]

    def _move_flow(self, flow: JobId) -> bool:
        """Move a workflow, its records first; return False if a step runs (rule X6)."""
        source = self._source.store
        layout = flows.read(source, flow)
        if layout is None:
            return True
        ids = [flows.job_of(flow, step) for step in range(len(layout.nodes))]
        pages = (source.find(part) for part in parts_of(ids, PAGE))
        rows = [row for page in pages for row in page if row is not None]
        now_us = self._source.time.earliest_us()
        ended = [stored(row) for row in rows if row.outcome]
        here = (row for row in rows if not is_away(row))
        if ended or any(_is_held(row, now_us) or row.id in self._callers for row in here):
            complete(source, ended)
            return False
        puts = move_records.of_partitions(source, flows.partitions_of(flow, layout))
        move_records.put_new(self._target.store, puts)
        listed = flows.put_layout(flow, layout, version=flow)
        move_records.put_new(
            self._target.store,
            [
                (commit.partition, put)
                for commit in listed
                for put in commit.writes
                if isinstance(put, Put)
            ],
        )
        return self._move_rows(rows, flow) == 0

    def _move_schedule(self, name: str) -> bool:
        """Move the jobs that a schedule names, and then the schedule; False if one runs."""
        entry = finish_started(self._queues, name)
        if entry is None:
            return True
        schedule = entry.schedule
        now_us = self._source.time.latest_us()
        named = [*definition.withdrawn(schedule, now_us), schedule.last]
        ids = [JobId(raw_id) for raw_id in named if raw_id]
        self._move_rows(row for row in self._source.store.find(ids) if row is not None)
        if schedule.last and self._source.store.find([JobId(schedule.last)])[0] is not None:
            return False  # the end of the job decides about the next occurrence (rules Z4 and X6)
        put = Put(name, entry.version, encode(schedule))
        move_records.put_new(self._target.store, [(definition.PARTITION, put)])
        return True

    # Records

    def _records(self, *kinds: str) -> Iterator[tuple[str, Put]]:
        records = move_records.all_records(self._source.store)
        return (record for record in records if move_records.kind_of(record[0]) in kinds)

    def _copy_results(self) -> None:
        self._report("copying results", self.moved)
        # Jobs that ran in the source have ended since the first copy (rule I3).
        move_records.put_new(self._target.store, self._records(batches.PARTITION))
        self.moved.results = move_records.copy_results(self._target.store, self._records("results"))
        move_records.put_again(self._target.store, self._records(*move_records.OF_ATTEMPTS))

    def _release_orders(self, partitions: Iterable[str]) -> None:
        """Let the jobs of order keys run whose turn it is, as far as the rows have arrived."""
        for partition in self._orders.keys() & set(partitions):
            after = orders.arrive(self._source, self._target, partition, self._orders[partition])
            if after is None:
                del self._orders[partition]
            else:
                self._orders[partition] = after

    # State

    def _state(self) -> _State | None:
        return value_at(self._target.store, PARTITION, _STATE, _State)[0]

    def _store_state(self, state: _State) -> None:
        put = Put(_STATE, self._target.ids.token(), encode(state))
        self._target.store.commit(PARTITION, (put,))

    def _await_transactions(self) -> None:
        """Wait for transactions that may have read the source before the mark (rule X1)."""
        store = self._source.store
        if not isinstance(store, ShowsTransactions):
            return
        before = store.open_transactions()
        while before := before & store.open_transactions():
            self._report(f"waiting for {len(before)} open transactions", self.moved)
            self._clock.sleep(_REST_S)

    def _patiently(self, stage: Callable[[], None]) -> None:
        """Run a stage, which may be repeated; a store may be away for a while."""
        for left in reversed(range(_PATIENCE)):
            try:
                stage()
            except StoreUnavailable as error:
                if not left:
                    raise
                self._report(f"trying again: {error.message}", self.moved)
                self._clock.sleep(2 * _REST_S)
            else:
                return


def _is_awaited(partition: str, put: Put) -> bool:
    is_entry = move_records.kind_of(partition) == orders.KIND
    return is_entry and orders.is_elsewhere(put)


def _is_held(row: Job, now_us: int) -> bool:
    """Return whether a claim of a row is under way; an expired one moves with its row."""
    return row.is_claimed() and row.at_us > now_us
