"""One living job for a key.

A record says which job holds a key (recipes/unique.py). Where `together` is a transaction, the
record and the row are written as one. Elsewhere the record comes first, with the whole row in
it, and decides; then the row is added. Who finds a record without its row adds that row: nothing
happens if it was there and has ended, since a key is born once, and otherwise the call that
stopped in between has its job. So nobody needs to know whether that caller still lives.
"""

from dataclasses import replace
from typing import NamedTuple

from dueline.core.attempt import Outcome
from dueline.core.call_options import Rule, read_options
from dueline.core.clock import DAY_US, StoreTime
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job, State
from dueline.core.queue_catalog import Catalog
from dueline.core.store import NO_VERSION, Group, Move, Store
from dueline.jobs import results, unique_records
from dueline.jobs.completion import Finished, complete, finish, finish_of, stored
from dueline.jobs.moves import Change, changed, with_position

RESEND_US_MAX = DAY_US
"""No birth is sent again later: stores remember for a limited time which keys were dropped."""

_ROUNDS_MAX = 20
_LOOKS = 2


def rule_of(job: Job) -> Rule | None:
    """Read the unique key that a job came with."""
    return read_options(job.opts).unique


class _Holder(NamedTuple):
    """Who holds a key: the row as it was born, and as it is now; None: it is not alive."""

    born: Job
    row: Job | None

    def holds(self) -> bool:
        """Tell whether the key is still held: while the job lives, or for a period."""
        rule = rule_of(self.born)
        return self.row is not None or (rule is not None and rule.within_us > 0)


class UniqueJobs:
    """Gives keys to jobs; threads may share it."""

    def __init__(self, store: Store, *, time: StoreTime, ids: Ids, catalog: Catalog) -> None:
        self._store = store
        self._time = time
        self._ids = ids
        self._catalog = catalog

    def place(self, job: Job, *, again: bool = False) -> Job:
        """Store a job with a unique key, or find the one that stands for it.

        The same job may be placed again, as a row may be added again; again: it may have been
        placed before, and have ended (see `sending`).

        Returns: the job, or in the modes `existing` and `earliest` the one that holds the key.

        Raises:
          Duplicate: another job holds the key; nothing was written.
          EnqueueUnknown: it may or may not be stored; place it again.
        """
        rule = rule_of(job)
        assert rule is not None
        for _ in range(_ROUNDS_MAX):
            if again and results.read(self._store, job.id) is not None:
                return job
            born = unique_records.read(self._store, job.lane.queue, rule.key)
            if born is not None and born.id == job.id:
                if not self._store.transactional:
                    self._add(job)
                return job
            holder = None if born is None else self._holder(born)
            if holder is not None and holder.holds():
                standing = self._stand(job, rule, holder, again=again)
                if standing is not None:
                    return standing
            elif self._put(job, rule, NO_VERSION if born is None else born.id):
                return job
        raise Conflict(f"The unique key {rule.key!r} keeps changing hands.", hint="Try again.")

    def retake(self, row: Job, move: Move) -> bool:
        """Bring a dead job back to life with the key that it held while it lived.

        Where there is no transaction, a call that takes the key at the same instant may come
        to stand beside it.

        Returns: whether the verdict held.

        Raises: Duplicate: another job holds the key by now; nothing was written.
        """
        rule = rule_of(row)
        if rule is None or rule.within_us:
            return self._store.settle([move])[0]
        born = unique_records.read(self._store, row.lane.queue, rule.key)
        if born is not None and born.id != row.id:
            holder = self._holder(born)
            if holder.holds():
                raise _duplicate(rule, holder.born)
        expect = NO_VERSION if born is None else born.id
        # The row as it lies among the dead: a key that was born, so adding it again is harmless.
        commit = unique_records.take(row, rule, expect=expect)
        if self._store.transactional:
            return self._store.together([Group(verdicts=(move,), commits=(commit,))])[0]
        is_taken = self._store.commit(commit.partition, commit.writes)
        return is_taken and self._store.settle([move])[0]

    # Who holds a key

    def _holder(self, born: Job) -> _Holder:
        """See what has become of the job that a record names."""
        found = self._look(born)
        if found is not None:
            return found
        age_us = self._time.latest_us() - born.enqueued_us
        if not self._store.transactional and age_us < RESEND_US_MAX:
            try:
                is_sure = self._store.add([born])[0]
            except Unknown:
                is_sure = False
            if not is_sure:
                raise StoreUnavailable(
                    f"The store did not say whether the job {born.id.hex()} was stored, which "
                    "has the unique key; nothing of this call was.",
                )
            found = self._look(born)
        return found or _Holder(born, None)

    def _look(self, born: Job) -> _Holder | None:
        for _ in range(_LOOKS):
            row = self._store.find([born.id])[0]
            if row is not None:
                if row.outcome:
                    complete(self._store, [stored(row)])
                is_over = row.outcome or row.state == State.DEAD
                return _Holder(born, None if is_over else row)
            if results.read(self._store, born.id) is not None:
                return _Holder(born, None)
        return None

    # What becomes of a call

    def _stand(self, job: Job, rule: Rule, holder: _Holder, *, again: bool) -> Job | None:
        """Do what the mode says while another job holds the key; None: it is changing."""
        row = holder.row
        if rule.mode == "reject":
            raise _duplicate(rule, holder.born)
        if rule.mode == "existing":
            return row or holder.born
        waits = row if row is not None and not row.is_claimed() else None
        if rule.mode == "earliest":
            if waits is None or waits.at_us <= job.at_us:
                return row or holder.born
            width_us = self._catalog.settings(job.lane.queue).width_us
            move = changed(
                waits, Change(at_us=job.at_us), token=self._ids.token(), width_us=width_us
            )
            return waits if self._store.settle([move])[0] else None
        if rule.mode == "last":
            if waits is None:
                return job if self._put(job, rule, holder.born.id) else None
            if not again:  # what may have been sent keeps its key (rule E1)
                job = self._no_later(job, waits)
        elif waits is None:
            raise _duplicate(rule, holder.born)
        return job if self._replace(waits, job) else None

    def _no_later(self, job: Job, waits: Job) -> Job:
        """Let a call be due when the one was in whose place it comes, if that is sooner."""
        at_us = max(waits.at_us, self._time.earliest_us())
        if at_us >= job.at_us:
            return job
        width_us = self._catalog.settings(job.lane.queue).width_us
        due_us = min(job.due_us, waits.due_us)
        return with_position(job, at_us, width_us=width_us)._replace(due_us=due_us)

    def _replace(self, old: Job, job: Job) -> bool:
        """End a waiting job, and let another be born by that: one decision."""
        outcome = Outcome(
            "cancelled", self._time.latest_us(), error=f"Replaced by the job {job.id.hex()}."
        )
        end = finish_of(old, outcome, None, self._catalog.settings(old.lane.queue))
        try:
            ends = [Finished(old, replace(end, successor=job))]
            return finish(self._store, ends, ())[0]
        except Unknown as error:
            raise EnqueueUnknown.about([job]) from error

    def _put(self, job: Job, rule: Rule, expect: bytes) -> bool:
        """Give the key to a job that comes to be; False: somebody else was quicker."""
        commit = unique_records.take(job, rule, expect=expect)
        try:
            if self._store.transactional:
                commits = (commit, results.absent(job.id))
                return self._store.together([Group(commits=commits, jobs=(job,))])[0]
            if not self._store.commit(commit.partition, commit.writes):
                return False
        except Unknown as error:
            raise EnqueueUnknown.about([job]) from error
        self._add(job)
        return True

    def _add(self, job: Job) -> None:
        """Add the row of a record that is written: from there on the job may come to be."""
        try:
            is_sure = self._store.add([job])[0]
        except StoreUnavailable as error:
            raise EnqueueUnknown.about([job]) from error
        if not is_sure:
            raise EnqueueUnknown.about([job])


def _duplicate(rule: Rule, holder: Job) -> Duplicate:
    error = Duplicate(
        f"The job {holder.id.hex()} has the unique key {rule.key!r}.",
        hint='Use mode="existing" to be answered that job.',
    )
    error.job_id = holder.id.hex()
    return error
