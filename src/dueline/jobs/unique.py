"""Unique jobs: at most one live job for a key.

A record names the job that holds a key (`unique_records.py`). If `together` is a transaction, the
record and the row are written as one. Otherwise the record comes first, contains the whole row,
and decides; then the row is added. A process that finds a record without its row adds that row.
If the row was there and has ended, nothing happens, since a key is inserted once. Otherwise this
completes the insert of a caller that stopped, whether it is still alive or not. So the rows of
many calls may be added together, after all of their records.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from dueline.core.attempt import Outcome
from dueline.core.call_options import Rule, read_options
from dueline.core.clock import DAY_US, StoreTime
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId, State
from dueline.core.job_status import status_of
from dueline.core.pagination import parts_of
from dueline.core.queue_catalog import Catalog
from dueline.core.store import NO_VERSION, Commit, Group, Move, Put, Store
from dueline.jobs import results, unique_records
from dueline.jobs.completion import Finished, complete, end_of, finish, finish_of, stored
from dueline.jobs.history import happened
from dueline.jobs.moves import Change, changed, with_position

RESEND_US_MAX = DAY_US
"""No insert is repeated later: stores remember deleted keys for a limited time."""

_ROUNDS_MAX = 20
_LOOKS = 2
_REFUSING = frozenset({"reject", "replace"})
"""Modes in which a job may be refused; those after it in the same call are not stored then."""

_TAKEN_TOGETHER_MAX = 500
_TAKEN_BYTES_MAX = 2**19
"""Maximum size of the bodies of jobs whose keys are taken together: the records contain them."""

_TAKEN_MAX = 100
"""Maximum number of jobs of a call whose keys are taken before their rows are added, on a store
without transactions; elsewhere of those that are placed one by one if a key is held."""


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
        rule = rule_of(self.original)
        return self.row is not None or (rule is not None and rule.within_us > 0)


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

    def take(self) -> Commit:
        """Return the write that gives the key to the job, if the record is as it was read."""
        return unique_records.take(self.job, self.rule, expect=self.expect)


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
            original = unique_records.read(self._store, job.lane.queue, rule.key)
            if original is not None and original.id == job.id:
                if not self._store.transactional:
                    self._added([job])
                return job
            holder = None if original is None else self._holder(original)
            if holder is not None and holder.holds():
                placed = self._apply_mode(job, rule, holder, again=again)
                if placed is not None:
                    return placed
            elif self._put(job, rule, NO_VERSION if original is None else original.id):
                return job
        raise Conflict(f"The unique key {rule.key!r} keeps changing hands.", hint="Try again.")

    def place_all(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Place jobs one after the other, with as few writes as possible.

        Raises:
            As `place`, after it has yielded the jobs that are stored; those in doubt are the next.
        """
        may_be_refused = any(_key_of(job).mode in _REFUSING for job in jobs)
        if len(jobs) == 1:
            yield self.place(jobs[0])
        elif not self._store.transactional:
            place = self._place_in_order if may_be_refused else self._place_by_partition
            for some in parts_of(jobs, _TAKEN_MAX if may_be_refused else _TAKEN_TOGETHER_MAX):
                yield from place(some)
        elif self._place_new(jobs):
            yield from jobs
        elif may_be_refused:
            for some in parts_of(jobs, _TAKEN_MAX):
                yield from some if self._place_new(some) else map(self.place, some)
        else:
            yield from self._place_free(jobs)

    def _place_in_order(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Take the keys one after the other without reading them, and add the rows together.

        After a key that was not free, the next one is read first.
        """
        taken: list[Job] = []
        is_free = True
        for job in jobs:
            try:
                is_free = is_free and self._take(job, _key_of(job), NO_VERSION)
            except StoreUnavailable as error:
                yield from self._added(taken, before=error)
                raise
            if is_free:
                taken.append(job)
                continue
            yield from self._added(taken)
            taken = []
            placed = self.place(job)
            is_free = placed is job
            yield placed
        yield from self._added(taken)

    def _place_new(self, jobs: Sequence[Job]) -> bool:
        """Add jobs whose keys have no records, without reading these; False if one has."""
        rules = [(job, _key_of(job)) for job in jobs]
        if len({(job.lane.queue, rule.key) for job, rule in rules}) < len(jobs):
            return False
        takes = [unique_records.take(job, rule, expect=NO_VERSION) for job, rule in rules]
        return self._add_with_keys(takes, jobs)

    def _place_free(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Add the jobs whose keys are free in one transaction, then place the others in order."""
        found = list(self._look_up(jobs))
        free = [one for one in found if one.holder is None]
        new = [one.job for one in free]
        try:
            is_added = bool(free) and self._add_with_keys([one.take() for one in free], new)
        except EnqueueUnknown as error:
            raise EnqueueUnknown.about(jobs) from error
        yield from self._place_rest(jobs, found, {job.id for job in new} if is_added else set())

    def _place_by_partition(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Take the free keys of each partition by one write, and add the rows of all together.

        The keys of a partition are read only if one of them is not free.
        """
        if sum(len(job.body) for job in jobs) > _TAKEN_BYTES_MAX:
            yield from self._place_in_order(jobs)
            return
        first = {(job.lane.queue, _key_of(job).key): job for job in reversed(jobs)}
        new = [_Wanted(job, _key_of(job)) for job in first.values()]
        taken: set[JobId] = set()
        try:
            for some in self._take_together(new):
                taken |= some
            found = list(self._look_up([job for job in jobs if job.id not in taken]))
            for some in self._take_together([one for one in found if one.holder is None]):
                taken |= some
            self._added([job for job in jobs if job.id in taken])
        except StoreUnavailable as error:
            if taken or isinstance(error, Unknown):
                raise EnqueueUnknown.about(jobs) from error
            raise
        yield from self._place_rest(jobs, found, taken)

    def _take_together(self, wanted: Sequence[_Wanted]) -> Iterator[set[JobId]]:
        """Take the keys of each partition, if all of these are as expected; yield whose."""
        for commit in results.merged([one.take() for one in wanted]):
            if self._store.commit(commit.partition, commit.writes):
                yield {JobId(put.version) for put in commit.writes if isinstance(put, Put)}

    def _place_rest(
        self, jobs: Sequence[Job], found: Sequence[_Wanted], added: AbstractSet[JobId]
    ) -> Iterator[Job]:
        """Place the jobs that were not added together, and yield all in order.

        Args:
            jobs: The jobs.
            found: Who held the keys of those that were not free.
            added: The jobs that were added.
        """
        answers = {one.job.id: one.answer for one in found}
        for number, job in enumerate(jobs):
            try:
                placed = job if job.id in added else answers.get(job.id) or self.place(job)
            except (StoreUnavailable, Conflict) as error:
                if not added:
                    raise
                # Some of those after it may be stored; it may have been sent with another time.
                sent = error.jobs if isinstance(error, EnqueueUnknown) else [job]
                raise EnqueueUnknown.about([*sent, *jobs[number + 1 :]]) from error
            yield placed

    def _add_with_keys(self, commits: Sequence[Commit], jobs: Sequence[Job]) -> bool:
        """Add jobs with their keys, if all of these are as they were read."""
        every = results.merged([*commits, *(results.absent(job.id) for job in jobs)])
        try:
            return self._store.together([Group(commits=every, jobs=jobs)])[0]
        except Unknown as error:
            raise EnqueueUnknown.about(jobs) from error

    def takes(self, jobs: Sequence[Job]) -> list[Group | None]:
        """Return for each job the writes that insert it with its key, for one transaction.

        None if another live job holds the key, or one of these before it. A holder that waits past
        its expiry is ended by the same writes.

        Raises:
            Duplicate: A key is held, and its mode is "reject".
        """
        found: list[Group | None] = []
        given: dict[tuple[str, str], Job] = {}
        for one in self._look_up(jobs):
            place = (one.job.lane.queue, one.rule.key)
            row = one.holder and one.holder.row
            group = None
            if one.holder is None:
                group = Group(commits=(one.take(),), jobs=(one.job,))
            elif row is not None and self._is_expired(row):
                group = end_of(self._succeeded(row, one.job, self._expired()))
            elif one.rule.mode == "reject":
                raise _duplicate(one.rule, given.get(place, one.holder.original))
            if group is not None:
                given[place] = one.job
            found.append(group)
        return found

    def _look_up(self, jobs: Sequence[Job]) -> Iterator[_Wanted]:
        """Yield who holds the keys of jobs: also those before them, which want the same key."""
        rules = list(map(_key_of, jobs))
        originals = [
            unique_records.read(self._store, job.lane.queue, rule.key)
            for job, rule in zip(jobs, rules, strict=True)
        ]
        ids = list({one.id for one in originals if one is not None})
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
                found = self._holder(original) if row is None else self._state(original, row)
                holder = found if found.holds() else None
                if rule.mode == "existing" and holder and not self._is_expired(holder.row):
                    answer = holder.row or original
            yield _Wanted(job, rule, expect, holder, answer)

    def retake(self, row: Job, move: Move) -> bool:
        """Retry a dead job with the key that it held.

        On stores without transactions, a call that takes the key at the same time may be stored,
        too.

        Returns:
            Whether the verdict held.

        Raises:
            Duplicate: Another job holds the key now; nothing was written.
        """
        rule = rule_of(row)
        if rule is None or rule.within_us:
            return self._store.settle([move])[0]
        original = unique_records.read(self._store, row.lane.queue, rule.key)
        if original is not None and original.id != row.id:
            holder = self._holder(original)
            if holder.holds():
                raise _duplicate(rule, holder.original, "Cancel that job first, or keep it.")
        expect = NO_VERSION if original is None else original.id
        # The dead-letter row: its key was inserted before, so adding it again changes nothing.
        commit = unique_records.take(row, rule, expect=expect)
        if self._store.transactional:
            return self._store.together([Group(verdicts=(move,), commits=(commit,))])[0]
        is_taken = self._store.commit(commit.partition, commit.writes)
        return is_taken and self._store.settle([move])[0]

    def holder(self, queue: str, key: str) -> Job | None:
        """Return the row of the waiting or running job that holds a key; nothing is written."""
        original = unique_records.read(self._store, queue, key)
        for _ in range(_LOOKS if original is not None else 0):
            row = self._store.find([original.id])[0]  # type: ignore[union-attr]  # see above
            if row is not None:
                is_over = row.outcome or row.state == State.DEAD or self._is_expired(row)
                return None if is_over else row
        return None

    # Who holds a key

    def _holder(self, original: Job) -> _Holder:
        """Return what has become of the job that a record names."""
        found = self._look(original)
        if found is not None:
            return found
        age_us = self._time.latest_us() - original.enqueued_us
        if not self._store.transactional and age_us < RESEND_US_MAX:
            try:
                is_sure = self._store.add([original])[0]
            except Unknown:
                is_sure = False
            if not is_sure:
                raise StoreUnavailable(
                    f"The store did not say whether the job {original.id.hex()} was stored, which "
                    "has the unique key. This call stored nothing."
                )
            found = self._look(original)
        return found or _Holder(original, None)

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
        return _Holder(original, None if is_over else row)

    # What becomes of a call

    def _apply_mode(self, job: Job, rule: Rule, holder: _Holder, *, again: bool) -> Job | None:
        """Apply the mode while another job holds the key; None if that is changing.

        An expired job that waits is ended: no worker runs it, but none may have noted that.
        """
        row = holder.row
        if row is not None and self._is_expired(row):
            return job if self._replace(row, job, self._expired()) else None
        if rule.mode == "reject":
            raise _duplicate(rule, holder.original)
        if rule.mode == "existing":
            return row or holder.original
        waits = row if row is not None and not row.is_claimed() else None
        if rule.mode == "earliest":
            if waits is None or waits.at_us <= job.at_us:
                return row or holder.original
            width_us = self._catalog.settings(job.lane.queue).width_us
            move = changed(
                waits, Change(at_us=job.at_us), token=self._ids.token(), width_us=width_us
            )
            return waits if self._store.settle([move])[0] else None
        if rule.mode == "last":
            if waits is None:
                return job if self._put(job, rule, holder.original.id) else None
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
        if row is None or _key_of(row).within_us:
            return False
        return status_of(row, self._time.latest_us()) == "expired"

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
            return finish(self._store, [self._succeeded(old, job, outcome)], ())[0]
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

    def _put(self, job: Job, rule: Rule, expect: bytes) -> bool:
        """Give the key to a new job; return False if another caller was faster."""
        if not self._store.transactional:
            return self._take(job, rule, expect) and bool(self._added([job]))
        commits = (unique_records.take(job, rule, expect=expect), results.absent(job.id))
        try:
            return self._store.together([Group(commits=commits, jobs=(job,))])[0]
        except Unknown as error:
            raise EnqueueUnknown.about([job]) from error

    def _take(self, job: Job, rule: Rule, expect: bytes) -> bool:
        """Write the record alone; return False if another caller was faster."""
        commit = unique_records.take(job, rule, expect=expect)
        try:
            return self._store.commit(commit.partition, commit.writes)
        except Unknown as error:
            raise EnqueueUnknown.about([job]) from error

    def _added(
        self, jobs: Sequence[Job], *, before: StoreUnavailable | None = None
    ) -> Sequence[Job]:
        """Add the rows of records that are written, and return the jobs: they may run now.

        Args:
            jobs: The jobs.
            before: The error of the job after them, which may be in doubt too.
        """
        cause: StoreUnavailable | None = before
        try:
            if not jobs or all(self._store.add(jobs)):
                return jobs
        except StoreUnavailable as error:
            cause = error
        after = before.jobs if isinstance(before, EnqueueUnknown) else ()
        raise EnqueueUnknown.about([*jobs, *after]) from cause


def _duplicate(
    rule: Rule, holder: Job, hint: str = 'Use mode="existing" to get that job.'
) -> Duplicate:
    error = Duplicate(f"The job {holder.id.hex()} has the unique key {rule.key!r}.", hint=hint)
    error.job_id = holder.id.hex()
    return error
