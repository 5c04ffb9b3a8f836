"""Unique jobs: at most one live job for a key.

A record names the job that holds a key (`unique_records.py`). It contains the whole row, and
decides (`decisions.py`). A process that finds a record without its row adds that row. If the row
was there and has ended, nothing happens, since a key is inserted once. Otherwise this completes
the insert of a caller that stopped, whether it is still alive or not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dueline.core.attempt import Outcome
from dueline.core.call_options import Rule, is_step, read_options
from dueline.core.clock import StoreTime
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId, State, is_paused
from dueline.core.job_status import status_of
from dueline.core.pagination import parts_of
from dueline.core.queue_catalog import Catalog
from dueline.core.store import NO_VERSION, Group, Move, Store
from dueline.jobs import decisions, results, unique_records
from dueline.jobs.completion import Finished, complete, decision_of, finish, finish_of, stored
from dueline.jobs.decisions import Completion, Decision, group_of
from dueline.jobs.history import happened
from dueline.jobs.moves import Change, changed, with_position
from dueline.jobs.parked_functions import may_have_begun
from dueline.workflows import records
from dueline.workflows.readiness import NotNeeded, Runnable, judge
from dueline.workflows.records import step_of

_ROUNDS_MAX = 20
_LOOKS = 2
_REFUSING = frozenset({"reject", "replace"})
"""Modes in which a job may be refused; those after it in the same call are not stored then."""

_PART = 100
"""Maximum number of jobs that are placed one by one after a key that is held."""


def rule_of(job: Job) -> Rule | None:
    """Return the unique key that a job was enqueued with."""
    return read_options(job.opts).unique


def _key_of(job: Job) -> Rule:
    rule = rule_of(job)
    assert rule is not None
    return rule


class _Holder(NamedTuple):
    """The job that holds a key: its first row, and its row now; None if it has ended."""

    original: Job
    row: Job | None

    def holds(self) -> bool:
        """Return whether the key is still held: while the job is live, or for a period."""
        return self.row is not None or _key_of(self.original).within_us > 0


class _Wanted(NamedTuple):
    """A job and the holder of the key that it wants.

    Attributes:
        job: The job.
        rule: Its rule.
        expect: The version of the key's record.
        holder: Who holds the key, or wants it before this job; None if it is free.
        answer: The job that the mode `existing` returns; None in other modes, or if it is not
            known yet.
    """

    job: Job
    rule: Rule
    expect: bytes = NO_VERSION
    holder: _Holder | None = None
    answer: Job | None = None

    def place(self) -> tuple[str, str]:
        """Return the queue and the key."""
        return self.job.lane.queue, self.rule.key

    def decision(self) -> Decision:
        """Return how the job gets its key and its row, if the record is as it was read."""
        take = unique_records.take(self.job, self.rule, expect=self.expect)
        jobs = unique_records.inserted(self.job)
        return Decision(take, Group(jobs=jobs), unless=(results.absent(self.job.id),))


class UniqueJobs:
    """Assigns keys to jobs; threads may share it."""

    def __init__(self, store: Store, *, time: StoreTime, ids: Ids, catalog: Catalog) -> None:
        self._store = store
        self._time = time
        self._ids = ids
        self._catalog = catalog

    def place(self, job: Job, *, again: bool = False) -> Job:
        """Store a job with a unique key, or return the one that holds the key.

        The same job may be placed again, as a row may be added again.

        Args:
            job: The job.
            again: It may have been placed before, and have ended.

        Returns:
            The job; in the modes `existing` and `earliest` the one that holds the key.

        Raises:
            Duplicate: Another job holds the key; nothing was written.
            EnqueueUnknown: It may or may not be stored; place it again.
        """
        rule = _key_of(job)
        for _ in range(_ROUNDS_MAX):
            if again and results.read(self._store, job.id) is not None:
                return job
            original = unique_records.read(self._store, unique_records.scope_of(job), rule.key)
            if original is not None and original.id == job.id:
                try:  # its caller may repeat it at any time (rule E1)
                    decisions.complete(self._store, _Wanted(job, rule).decision(), age_us=0)
                except StoreUnavailable as error:
                    raise EnqueueUnknown.about([job]) from error
                return job
            holder = None if original is None else self._holder(original)
            if holder is not None and holder.holds():
                placed = self._apply_mode(job, rule, holder, again=again)
                if placed is not None:
                    return placed
            else:
                expect = NO_VERSION if original is None else original.id
                if self._add([_Wanted(job, rule, expect)])[0]:
                    return job
        raise Conflict(f"The unique key {rule.key!r} keeps changing hands.", hint="Try again.")

    def given_instead(self, job: Job) -> Job | None:
        """Return the job that the mode `existing` gives instead; None if the key seems free.

        Raises:
            Duplicate: Another job holds the key, and the mode is `reject`.
        """
        rule = _key_of(job)
        original = unique_records.read(self._store, unique_records.scope_of(job), rule.key)
        if original is None or original.id == job.id:
            return None
        holder = self._holder(original)
        row = holder.row
        if not holder.holds() or (row and (self._is_expired(row) or self._is_over(row))):
            return None
        if rule.mode == "reject":
            raise _duplicate(rule, holder.original)
        return row or original

    def place_all(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Place jobs one after the other, with as few writes as possible.

        Raises:
            As `place`, after it has yielded the jobs that are stored; those in doubt are the next.
        """
        if len(jobs) == 1:
            yield self.place(jobs[0])
            return
        wanted = [_Wanted(job, _key_of(job)) for job in jobs]
        if any(want.rule.mode in _REFUSING for want in wanted):
            yield from self._place_in_order(wanted)
        else:
            yield from self._place_free(wanted)

    def _place_in_order(self, wanted: Sequence[_Wanted]) -> Iterator[Job]:
        """Add jobs up to the first whose key is held; then place the others, part by part."""
        count = self._add_first(wanted)
        yield from (want.job for want in wanted[:count])
        for part in parts_of(wanted[count:], _PART):
            count = self._add_first(part)
            for place, want in enumerate(part):
                yield want.job if place < count else self.place(want.job)

    def _place_free(self, wanted: Sequence[_Wanted]) -> Iterator[Job]:
        """Add the jobs whose keys are free, then place the others in order.

        The keys are read only if one of them is not free.
        """
        first = {want.place(): want for want in reversed(wanted)}
        jobs = [want.job for want in wanted]
        added: set[JobId] = set()
        number = 0
        try:
            added |= self._add_all(list(first.values()))
            rest = list(self._look_up([job for job in jobs if job.id not in added]))
            added |= self._add_all([want for want in rest if want.holder is None])
            answers = {want.job.id: want.answer for want in rest}
            for number, job in enumerate(jobs):  # noqa: B007  (where it failed)
                yield job if job.id in added else answers.get(job.id) or self.place(job)
        except (StoreUnavailable, Conflict) as error:
            if not added and type(error) is not Unknown:  # nothing else was sent
                raise
            # Some of those after it may be stored; it may have been sent with another time.
            sent = error.jobs if isinstance(error, EnqueueUnknown) else [jobs[number]]
            raise EnqueueUnknown.about([*sent, *jobs[number + 1 :]]) from error

    def _add_all(self, wanted: Sequence[_Wanted]) -> set[JobId]:
        """Add jobs whose keys are as they were read; return which of them."""
        held = decisions.decide(self._store, [want.decision() for want in wanted])
        return {want.job.id for want, is_added in zip(wanted, held, strict=True) if is_added}

    def _add_first(self, wanted: Sequence[_Wanted]) -> int:
        """Add jobs whose keys have no records, without reading these; return how many.

        They are the first of the jobs: those after a key that has a record are not added.
        """
        first: dict[tuple[str, str], _Wanted] = {}
        for want in wanted:
            if want.place() in first:
                break
            first[want.place()] = want
        return sum(self._add(list(first.values())))

    def _add(self, wanted: Sequence[_Wanted]) -> list[bool]:
        """Add jobs in order, up to the first whose key is not as it was read."""
        writes = [want.decision() for want in wanted]
        try:
            return decisions.decide(self._store, writes, in_order=True)
        except Unknown as error:
            raise EnqueueUnknown.about([want.job for want in wanted]) from error

    def takes(self, jobs: Sequence[Job]) -> list[Group | None]:
        """Return for each job the writes that insert it with its key, for one transaction.

        None if another live job holds the key, or one of these before it. A holder that waits past
        its expiry is ended by the same writes.

        Raises:
            Duplicate: A key is held, and its mode is "reject".
        """
        groups: list[Group | None] = []
        given: dict[tuple[str, str], Job] = {}
        for want in self._look_up(jobs):
            place = want.place()
            row = want.holder and want.holder.row
            group = None
            if want.holder is None:
                group = Group(commits=(want.decision().commit(),), jobs=(want.job,))
            elif row is not None and self._is_expired(row):
                end = self._succeeded(row, want.job, self._expired())
                group = group_of([decision_of(end)])
            elif want.rule.mode == "reject":
                raise _duplicate(want.rule, given.get(place, want.holder.original))
            if group is not None:
                given[place] = want.job
            groups.append(group)
        return groups

    def _look_up(self, jobs: Sequence[Job]) -> Iterator[_Wanted]:
        """Yield who holds the keys of jobs: also those before them, which want the same key."""
        rules = list(map(_key_of, jobs))
        originals = [
            unique_records.read(self._store, unique_records.scope_of(job), rule.key)
            for job, rule in zip(jobs, rules, strict=True)
        ]
        ids = list({original.id for original in originals if original is not None})
        rows = dict(zip(ids, self._store.find(ids) if ids else (), strict=True))
        before: dict[tuple[str, str], Job] = {}
        for job, rule, original in zip(jobs, rules, originals, strict=True):
            earlier = before.setdefault((job.lane.queue, rule.key), job)
            expect = NO_VERSION if original is None else original.id
            holder: _Holder | None = None
            answer: Job | None = None
            if earlier is not job:
                holder = _Holder(original or earlier, None)
            elif original is not None and original.id != job.id:
                row = rows[original.id]
                named = self._holder(original) if row is None else self._state(original, row)
                holder = named if named.holds() else None
                if rule.mode == "existing" and holder and not self._is_expired(holder.row):
                    answer = holder.row or original
            yield _Wanted(job, rule, expect, holder, answer)

    def retake(self, row: Job, move: Move, store: Store) -> bool:
        """Retry a dead job with the key that it held; `store` records that.

        On stores without transactions, a call that takes the key at the same time may be stored,
        too.

        Returns:
            Whether the verdict held.

        Raises:
            Duplicate: Another job holds the key now; nothing was written.
        """
        rule = rule_of(row)
        if rule is None or rule.within_us:
            return store.settle([move])[0]
        expect = self._expect_free(row, rule, unique_records.scope_of(row), store)
        # The dead-letter row: its key was inserted before, so adding it again changes nothing.
        take = unique_records.take(row, rule, expect=expect)
        return decisions.decide(store, [Decision(take, Group(verdicts=(move,)))])[0]

    def is_held_in(self, row: Job, queue: str) -> bool:
        """Return whether another job of a queue holds the key of a job."""
        original = unique_records.read(self._store, queue, _key_of(row).key)
        return original is not None and original.id != row.id and self._holder(original).holds()

    def carry(self, move: Move, carried: Group, store: Store) -> bool:
        """Move a waiting job to another queue, and with it the key that it holds (rule O4).

        The job takes the key there first, then it moves, then it gives the key up in its queue.
        Without transactions it keeps both until it ends if it cannot move after all.

        Args:
            move: The verdict that moves it.
            carried: The group of that verdict.
            store: The store that records that.

        Returns:
            Whether the verdict held.

        Raises:
            Duplicate: Another job holds the key in the other queue; nothing was written.
        """
        row, rule, to = move.job, _key_of(move.job), move.to
        assert to is not None
        here = unique_records.read(store, unique_records.scope_of(row), rule.key)
        if is_step(row) or here is None or here.id != row.id:  # it holds no key of this queue
            return store.together([carried])[0]
        expect = self._expect_free(row, rule, to.queue, store)
        take = unique_records.carry(row, to, rule, expect=expect)
        release = unique_records.release(row, rule)
        is_moved = decisions.decide(store, [Decision(take, carried)])[0]
        if is_moved:
            decisions.free(store, (), [release])
        return is_moved

    def _expect_free(self, row: Job, rule: Rule, scope: str, store: Store) -> bytes:
        """Return the version of a key's record; raise Duplicate if another job holds the key."""
        record = unique_records.read(store, scope, rule.key)
        if record is None:
            return NO_VERSION
        if record.id != row.id:
            holder = self._holder(record)
            if holder.holds():
                raise _duplicate(rule, holder.original, "Cancel that job first, or keep it.")
        return record.id

    def holder(self, queue: str, key: str) -> Job | None:
        """Return the row of the waiting or running job that holds a key; nothing is written."""
        original = unique_records.read(self._store, queue, key)
        for _ in range(_LOOKS if original is not None else 0):
            row = self._store.find([original.id])[0]  # type: ignore[union-attr]  # see above
            if row is not None:
                is_over = row.outcome or row.state == State.DEAD or self._is_expired(row)
                is_over = is_over or unique_records.scope_of(row) != queue
                return None if is_over else row
        return None

    # Who holds a key

    def _holder(self, original: Job) -> _Holder:
        """Return what has become of the job that a record names."""
        holder = self._look(original)
        if holder is None and self._complete(original) is Completion.HERE:
            holder = self._look(original)
        return holder or _Holder(original, None)

    def _complete(self, original: Job) -> Completion:
        """Add the row of a record again, if that is not too late."""
        decision = _Wanted(original, _key_of(original)).decision()
        age_us = self._time.latest_us() - original.enqueued_us
        try:
            return decisions.complete(self._store, decision, age_us=age_us)
        except Unknown as error:
            raise StoreUnavailable(
                f"The store did not say whether the job {original.id.hex()} was stored, which "
                "has the unique key. This call stored nothing."
            ) from error

    def _look(self, original: Job) -> _Holder | None:
        for _ in range(_LOOKS):
            row = self._store.find([original.id])[0]
            if row is not None:
                return self._state(original, row)
            if results.read(self._store, original.id) is not None:
                return _Holder(original, None)
        return None

    def _state(self, original: Job, row: Job) -> _Holder:
        """Return what the present row of a job says; complete its end if it is decided."""
        if row.outcome:
            complete(self._store, [stored(row)])
        is_over = row.outcome or row.state == State.DEAD
        is_over = is_over or unique_records.is_left_behind(original, row)
        return _Holder(original, None if is_over else row)

    # What becomes of a call

    def _apply_mode(self, job: Job, rule: Rule, holder: _Holder, *, again: bool) -> Job | None:
        """Apply the mode while another job holds the key; None if that is changing.

        An expired job that waits is ended: no worker runs it, but none may have noted that.
        """
        row = holder.row
        if row is not None and self._is_expired(row):
            return job if self._replace(row, job, self._expired()) else None
        if row is not None and self._is_over(row):
            done = Outcome("done", self._time.latest_us(), value="null")
            return job if self._replace(row, job, done) else None
        if rule.mode == "reject":
            raise _duplicate(rule, holder.original)
        if rule.mode == "existing":
            return row or holder.original
        waits = row if row is not None and not row.is_claimed() else None
        if waits is not None and may_have_begun(waits):  # it runs, even while it waits
            waits = None
        if rule.mode == "earliest":
            if waits is None or waits.at_us <= job.at_us or is_paused(waits):
                return row or holder.original
            width_us = self._catalog.settings(job.lane.queue).width_us
            move = changed(
                waits, Change(at_us=job.at_us), token=self._ids.token(), width_us=width_us
            )
            return waits if self._store.settle([move])[0] else None
        if rule.mode == "last":
            if waits is None:
                return job if self._add([_Wanted(job, rule, holder.original.id)])[0] else None
            if not again:  # what may have been sent keeps its key (rule E1)
                job = self._no_later(job, waits)
        elif waits is None:
            raise _duplicate(rule, holder.original)
        outcome = Outcome(
            "cancelled", self._time.latest_us(), error=f"Replaced by the job {job.id.hex()}."
        )
        return job if self._replace(waits, job, outcome) else None

    def _is_expired(self, row: Job | None) -> bool:
        """Return whether a job waits past its expiry, and does not hold its key for a period."""
        if row is None or _key_of(row).within_us or may_have_begun(row):
            return False
        return status_of(row, self._time.latest_us()) == "expired"

    def _is_over(self, row: Job) -> bool:
        """Return whether a row holds the key of a workflow that has ended."""
        step = step_of(row)
        if step is None or rule_of(row) is None:
            return False
        flow, number = step
        layout = records.read(self._store, flow)
        if layout is None:
            return True
        ends = records.ends(self._store, flow, layout.needs_by_block(number), with_values=False)
        return isinstance(judge(layout, number, ends), Runnable | NotNeeded)

    def _no_later(self, job: Job, waits: Job) -> Job:
        """Return the job, due no later than the waiting one that it replaces."""
        at_us = max(waits.at_us, self._time.earliest_us())
        if at_us >= job.at_us:
            return job
        width_us = self._catalog.settings(job.lane.queue).width_us
        due_us = min(job.due_us, waits.due_us)
        return with_position(job, at_us, width_us=width_us)._replace(due_us=due_us)

    def _replace(self, old: Job, job: Job, outcome: Outcome) -> bool:
        """End a waiting job, and insert its successor by the same decision."""
        try:
            return finish(self._store, [self._succeeded(old, job, outcome)])[0]
        except Unknown as error:
            raise EnqueueUnknown.about([job]) from error

    def _succeeded(self, old: Job, job: Job, outcome: Outcome) -> Finished:
        """Return how a waiting job ends whose key its successor gets."""
        attempt = None
        if outcome.state == "expired":  # in each history, as if a worker had ended it
            attempt = happened(old, outcome.state, outcome.ended_us)
        end = finish_of(old, outcome, attempt, self._catalog.settings(old.lane.queue))
        return Finished(old, replace(end, successor=job))

    def _expired(self) -> Outcome:
        return Outcome("expired", self._time.latest_us())


def _duplicate(
    rule: Rule, holder: Job, hint: str = 'Use mode="existing" to get that job.'
) -> Duplicate:
    step = step_of(holder)
    what, holder_id = ("job", holder.id) if step is None else ("workflow", step[0])
    text = f"The {what} {holder_id.hex()} has the unique key {rule.key!r}."
    error = Duplicate(text, hint=hint.replace("job", what))
    error.job_id = holder_id.hex()
    return error
