"""Queues: enqueue, find and change jobs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import groupby, repeat
from typing import NamedTuple

from dueline.batches import ends
from dueline.batches.ends import AGAIN, End
from dueline.core import validation
from dueline.core.actor import Actor
from dueline.core.attempt import Outcome
from dueline.core.call_options import CARRIED, checked_key, read_options
from dueline.core.engine import Engine
from dueline.core.errors import (
    BadInput,
    Conflict,
    DuelineError,
    Duplicate,
    EnqueueUnknown,
    NotFound,
    QuotaExceeded,
    StoreUnavailable,
    Unknown,
)
from dueline.core.features import SECTIONS, WEBHOOKS
from dueline.core.job import Job, JobId, State, copies_of
from dueline.core.job_status import status_of
from dueline.core.lane import Lane, bucket_of, living_queue
from dueline.core.queue_settings import check_queue_name
from dueline.core.store import Group, Move, Store, Transactional
from dueline.core.wakeup import DeferredWakeups, Wakeups, place_of
from dueline.jobs import cancel_requests, dependencies, orders, results
from dueline.jobs import moves as changes
from dueline.jobs.claim_preview import peek
from dueline.jobs.completion import Finished, complete, finish, finish_of, stored
from dueline.jobs.costs import with_costs
from dueline.jobs.group_cancellation import advance
from dueline.jobs.history import row_of_note
from dueline.jobs.history_recorder import inside_engine, noting
from dueline.jobs.moves import Change, conflict_error
from dueline.jobs.parked_functions import ask_to_end, ask_to_go_on, may_have_begun
from dueline.jobs.sending import Send, send_again
from dueline.jobs.unique import UniqueJobs, rule_of
from dueline.limits.admission import Admission
from dueline.limits.definitions import LimitDefinitions
from dueline.tasks import sections
from dueline.workflows.records import Layouts

_PAGE = 500
_ROUNDS_MAX = 5
_LOOKS = 2
"""Number of reads for a row: one read may miss a row that is moving to another place."""


class EnqueueRequest(NamedTuple):
    """Calls to be stored, alike except for their arguments, and maybe their limits.

    Attributes:
      due_us: When they are due; None for now.
      opts: See `CallOptions`.
      window_us: Jitter: starts are spread over this duration from the due time on.
      limits: Limits of each call; empty if none has any. For numbers of units see `limit_costs`.
      wait_us: How long to wait for room in a quota.
      called_us: When the call was made that the due time and the expiry count from; 0 if neither
        does. A job that has expired since is stored, as if it had expired a moment later.
      job_ids: The ids of the jobs; empty for new ones.
    """

    queue: str
    task: str
    codec: int
    bodies: Sequence[bytes]
    due_us: int | None = None
    priority: int = 0
    tenant: str = ""
    opts: bytes = b""
    window_us: int = 0
    limits: Sequence[Sequence[str]] = ()
    wait_us: int = 0
    called_us: int = 0
    job_ids: Sequence[JobId] = ()


def _kind_of_write(row: tuple[Job, Store]) -> tuple[bool, Store]:
    job, store = row
    return rule_of(job) is not None, store


class Found(NamedTuple):
    """A job by its id: its row while it has one, its outcome once it has ended."""

    status: str
    row: Job | None
    outcome: Outcome | None


class Queues:
    """All queues of one store, below the application.

    Threads may share it.

    Args:
      engine: The engine.
      lends: Jobs may be taken from quotas ahead of calls; not inside a transaction.

    Attributes:
      unique: Assigns unique keys.
      is_inside: In an open transaction.
      actor: Who changes jobs by hand, for their history; see `by`.
    """

    actor: Actor | None = None

    def __init__(self, engine: Engine, *, lends: bool = True) -> None:
        self.engine = engine
        self._store = engine.store
        self._recording = engine.recording_store
        self._time = time = engine.time
        self._ids = ids = engine.ids
        self._catalog = catalog = engine.catalog
        self.is_inside = not lends
        self.unique = UniqueJobs(self._recording, time=time, ids=ids, catalog=catalog)
        self._limits = LimitDefinitions(engine.store)
        self.admission = Admission(
            self._store, time=time, clock=engine.clock, ids=ids, catalog=catalog, lends=lends
        )

    def inside(self, store: Store, wakeups: Wakeups) -> "Queues":
        """Return the same queues on the store as an open transaction sees it."""
        queues = Queues(inside_engine(self.engine, store, wakeups), lends=False)
        queues.actor = self.actor
        return queues

    def by(self, actor: Actor) -> "Queues":
        """Return the same queues; the history says that the actor made the changes."""
        queues = copy(self)
        queues.actor = actor
        return queues

    # Enqueue

    def enqueue(self, calls: EnqueueRequest) -> Sequence[Job]:
        """Store calls durably, all in one write.

        Returns:
            The rows as they were inserted, in the order of the bodies.

        Raises:
            BadInput: A value is out of range; nothing was written.
            Duplicate: Another job has the unique key; the bodies before it are stored.
            QuotaExceeded: There is no room; nothing was written.
            EnqueueUnknown: Some may or may not be stored; its `jobs` can be enqueued again.
            StoreUnavailable: Nothing was written.
        """
        jobs, store = self._prepare(calls)
        if calls.opts and jobs:
            jobs = orders.placed(self.engine, jobs)
            if rule_of(jobs[0]):
                return [self._place(job) for job in jobs]
        self._add(jobs, store.add, has_options=bool(calls.opts))
        return jobs

    def enqueue_all(self, requests: Sequence[EnqueueRequest]) -> Sequence[Job]:
        """Store requests of one call each, in as few writes as possible.

        Returns:
            The rows, in the order of the requests.

        Raises:
            As `enqueue`; `unsent` of the error counts the requests that were not sent.
        """
        placed: list[Job] = []
        part: list[Job] = []
        is_unique = False
        try:
            rows = [(jobs[0], store) for jobs, store in map(self._prepare, requests)]
            jobs = orders.placed(self.engine, [job for job, _ in rows])
            rows = list(zip(jobs, [store for _, store in rows], strict=True))
            for (is_unique, store), run in groupby(rows, key=_kind_of_write):
                part = [job for job, _ in run]
                if is_unique:
                    self._place_all(part, placed)
                else:
                    self._add(part, store.add)
                    placed += part
        except (StoreUnavailable, Duplicate, QuotaExceeded) as error:
            sent: Sequence[Job] = ()
            if isinstance(error, EnqueueUnknown):  # some of one insert may be in doubt
                sent = error.jobs if is_unique else part
            error.unsent = len(requests) - len(placed) - len(sent)
            raise
        return placed

    def enqueue_each(self, requests: Sequence[EnqueueRequest]) -> Sequence[Job | DuelineError]:
        """Store requests of one call each, without keys, as if each were the only one.

        They share writes where they can.

        Returns:
            For each its row, or the error that `enqueue` would raise.
        """
        answers: list[Job | DuelineError] = []
        places: dict[Store, list[int]] = {}
        for place, request in enumerate(requests):
            try:
                (job,), store = self._prepare(request)
                answers.append(job)
                places.setdefault(store, []).append(place)
            except DuelineError as error:
                answers.append(error)
        for store, mine in places.items():
            jobs = [job for job in map(answers.__getitem__, mine) if isinstance(job, Job)]
            for place, answer in zip(mine, self._answers(jobs, store), strict=True):
                answers[place] = answer
        return answers

    def _answers(self, jobs: Sequence[Job], store: Store) -> Sequence[Job | DuelineError]:
        """Store jobs; return each, or its error."""
        try:
            self._add(jobs, store.add)
        except EnqueueUnknown as error:
            unsure = {job.id for job in error.jobs}
            return [EnqueueUnknown.about([job]) if job.id in unsure else job for job in jobs]
        except StoreUnavailable as error:
            return [copy(error) for _ in jobs]
        except DuelineError as error:
            if len(jobs) == 1:
                return [error]
            return [answer for job in jobs for answer in self._answers([job], store)]
        return jobs

    def rows(self, calls: EnqueueRequest) -> Sequence[Job]:
        """Check calls, and return the rows to insert.

        Raises: As `enqueue`.
        """
        return self._prepare(calls)[0]

    def _prepare(self, calls: EnqueueRequest) -> tuple[Sequence[Job], Store]:
        """Return the rows of calls as `rows` does, and the store that inserts them.

        It is the store that records new jobs, if the queue's history has them.
        """
        queue, task, codec, bodies, asked_us, priority, tenant, opts, window_us, limits, *_ = calls
        now_us = self._time.earliest_us()
        validation.check_call(queue, asked_us, priority, tenant, now_us=now_us)
        settings = self._catalog.expect_here(queue)
        if settings.quotas:
            self.admission.admit(queue, tenant, len(bodies), wait_us=calls.wait_us)
            now_us = self._time.earliest_us()
        due_us = now_us if asked_us is None else asked_us
        pos_us = max(due_us, now_us)
        job_ids = calls.job_ids or self._ids.many(len(bodies), now_us)
        if opts or window_us:
            options = read_options(opts)
            validation.check_delivery(options, settings, task, queue)
            last_us = max(asked_us or 0, calls.called_us or now_us) + window_us
            validation.check_options(options, last_us, window_us)
            tenant = self._catalog.needy_tenant(tenant, options.needs)
        home = Lane(queue, 0, bucket_of(pos_us, settings.width_us), priority, tenant)
        lanes: Iterable[Lane] = repeat(home)
        if limits or settings.shards > 1:
            lanes = changes.lanes_of_new_jobs(home, job_ids, settings.shards, limits)
            home = next(iter(lanes), home)
        first_id, body = (job_ids[0], bodies[0]) if bodies else (JobId(b""), b"")
        like = Job(home, pos_us, first_id, 0, due_us, now_us, task, codec, body, opts, pos_us)
        jobs = [like] if len(bodies) == 1 else copies_of(like, lanes, job_ids, bodies)
        if limits:
            jobs = list(with_costs(jobs, limits, self._limits, now_us))
        if window_us:
            jobs = [changes.spread(job, window_us, width_us=settings.width_us) for job in jobs]
        jobs = jobs if self.engine.blobs is None else self.engine.blobs.placed(jobs)
        if opts:
            if options.webhook:
                self._catalog.adopt(WEBHOOKS)
            if options.awaits is not None:
                jobs = list(dependencies.placed(self.engine, jobs, is_inside=self.is_inside))
        return jobs, self._recording if settings.tells_all else self._store

    def enqueue_again(self, jobs: Sequence[Job]) -> None:
        """Insert rows with the keys they were given: neither loses nor duplicates stored ones.

        Raises: As `enqueue`.
        """
        for queue in {job.lane.queue for job in jobs}:
            self._catalog.expect_here(queue)
        plain = [job for job in jobs if not job.opts or not rule_of(job)]
        for job in jobs:
            if job.opts and rule_of(job):
                self._place(job, again=True)
        if plain:
            self._add(plain, partial(send_again, self._recording))

    def _place(self, job: Job, *, again: bool = False) -> Job:
        placed = self.unique.place(job, again=again)
        orders.enlist(self.engine, [job] if placed.id == job.id else [])
        self.engine.announce([job])
        return placed

    def _place_all(self, jobs: Sequence[Job], placed: list[Job]) -> None:
        """Place jobs with unique keys, and append them to `placed`; if it raises, up to there."""
        here: list[Job] = []
        try:
            here.extend(self.unique.place_all(jobs))
        finally:
            if here:
                own = {job.id for job in jobs}
                orders.enlist(self.engine, [job for job in here if job.id in own])
                self.engine.announce(jobs[: len(here)])
            placed += here

    def _add(self, jobs: Sequence[Job], send: Send, *, has_options: bool = True) -> None:
        try:
            stored = send(jobs)
        except Unknown as error:
            raise EnqueueUnknown.about(jobs) from error
        if has_options:  # some may have order keys
            orders.enlist(self.engine, jobs)
        if not all(stored):
            unsure = [job for job, sure in zip(jobs, stored, strict=True) if not sure]
            raise EnqueueUnknown.about(unsure)
        self.engine.announce(jobs)

    # Find

    def find(self, job_id: JobId) -> Found:
        """Find a job.

        Raises:
            NotFound: There is no such job, or it ended and no result was kept.
        """
        for _ in range(_LOOKS):
            row = self._store.find([job_id])[0]
            if row is not None:
                return self.found_in(row)
            outcome = results.read(self._store, job_id)
            if outcome is not None:
                return Found(outcome.state, None, outcome)
        raise NotFound(
            f"No job {job_id.hex()} is known.",
            hint="Was its result kept long enough? Is this the right store?",
        )

    def holder(self, queue: str, key: str) -> Job | None:
        """Return the waiting or running job of a queue that holds a unique key; None for none."""
        return self.unique.holder(check_queue_name(queue), checked_key(key))

    def found_in(self, row: Job) -> Found:
        """Return a job by its row."""
        if row.outcome:  # decided; its finisher is about to drop the row
            outcome = stored(row).finish.outcome
            return Found(outcome.state, None, outcome)
        return Found(status_of(row, self._time.latest_us()), row, None)

    def peek(self, queue: str, limit: int) -> Sequence[Job]:
        """Return the next due jobs, in the order in which a worker would claim them."""
        now_us = self._time.earliest_us()
        settings = self._catalog.settings(living_queue(queue))
        pages = list(self.engine.pages_of(queue, bucket_of(now_us, settings.width_us)))
        return peek(self._store, pages, settings.aging_us, now_us=now_us, limit=limit)

    # Changes: verdicts given with the token that was read

    def cancel(self, job_id: JobId, *, by_force: bool = False) -> bool:
        """End a waiting job; request the end of a running one.

        Args:
            job_id: The job.
            by_force: A running handler is stopped, whatever it does.

        Returns:
            True if it has ended and never runs again. False if it runs: its handler is notified,
            and it does not run again unless it is retried by hand.

        Raises:
            NotFound: There is no such job.
            Conflict: It is dead or has ended; nothing was changed.
        """
        asked: bytes | None = None
        for _ in range(_ROUNDS_MAX):
            current = self.find(job_id)
            row = current.row
            if asked and current.status == "cancelled":
                return True
            if row is None or current.status == "dead":
                if asked:  # it would end a later retry (rule P12)
                    cancel_requests.forget(self._store, job_id, asked)
                raise conflict_error(job_id, "cancelled", current.status)
            if may_have_begun(row) and not by_force:
                return self._ask_function_to_end(row)
            if current.status == "running":
                asked = self._ids.token()
                if self._ask_to_end(row, asked, by_force=by_force):
                    return False
                continue
            if finish(self._store, [self.cancelled(row, self._time.latest_us())])[0]:
                advance(self.engine, Layouts(), [row])
                return True
        raise conflict_error(job_id, "cancelled", "changing")

    def cancelled(self, row: Job, now_us: int) -> Finished:
        """Return the end of a waiting job that is cancelled."""
        settings = self._catalog.expect_here(row.lane.queue)
        outcome, note = Outcome("cancelled", now_us), self.did("cancelled")
        return Finished(row, finish_of(row, outcome, None, settings, note))

    def did(self, what: str) -> str:
        """Return who does something by hand; empty if that is not known."""
        return "" if self.actor is None else self.actor.did(what)

    def _noting(self, what: str) -> Store:
        """Return the store that records a change of jobs."""
        return self._recording if self.actor is None else noting(self._recording, self.did(what))

    def note(self, rows: Iterable[Job], what: str) -> None:
        """Record what an operator did to jobs, if that is known."""
        if self.actor is None:
            return
        now_us, text = self._time.latest_us(), self.did(what)
        noted = [
            row_of_note(row, now_us, text)
            for row in rows
            if self._catalog.settings(living_queue(row.lane.queue)).history != "off"
        ]
        if noted:
            self._store.append(noted)

    def _ask_function_to_end(self, row: Job) -> bool:
        """Request the end of a durable function that may have begun: only a claim ends it."""
        self.note([row], "asked to end")
        ask_to_end(self.engine, row.id)
        if row.is_claimed():
            version, now_us = self._ids.token(), self._time.latest_us()
            cancel_requests.ask_worker(self._store, row, now_us=now_us, version=version)
        return False

    def _ask_to_end(self, row: Job, version: bytes, *, by_force: bool) -> bool:
        """Request the end of a running job; return whether the same claim still held then.

        If so, every later claim finds the request. If not, it may be too late.
        """
        now_us = self._time.latest_us()
        self.note([row], "stopped by force" if by_force else "asked to stop")
        cancel_requests.ask(self._store, row, now_us=now_us, version=version, by_force=by_force)
        now = self._store.find([row.id])[0]
        return now is not None and now.token == row.token

    def retry(self, job_id: JobId, *, repeats_failure: bool = False) -> None:
        """Run a job as soon as possible: a dead one anew, a retrying or scheduled one now.

        A dead durable function goes on after its records; what failed last is called again, unless
        `repeats_failure`.

        Raises: As `cancel`, and Conflict for a durable function whose compensations ran.
        """
        for _ in range(_ROUNDS_MAX):
            self.complete_stored(job_id)
            current = self.find(job_id)
            row = current.row
            if row is None or current.status in ("running", "paused", "expired"):
                raise conflict_error(job_id, "retried", current.status)
            if self._is_spent(row):
                raise conflict_error(job_id, "retried", "started and delivered at most once")
            if not repeats_failure:
                ask_to_go_on(self.engine, row)
            if self._withdraw([row]) and self._redrive(row):
                return
        raise conflict_error(job_id, "retried", "changing")

    def _is_spent(self, row: Job) -> bool:
        return changes.was_called(row) and self._catalog.settings(row.lane.queue).is_once

    def _redrive(self, row: Job) -> bool:
        move = self.redrive(row)
        if row.opts and row.state == State.DEAD:
            is_moved = self.unique.retake(row, move, self._noting("retried"))
        else:
            is_moved = self._noting("retried").settle([move])[0]
        if is_moved:
            self._count_again([row])
        self.engine.wake([place_of(move)])
        self._catalog.used([row.lane])
        return is_moved

    def reschedule(self, job_id: JobId, at_us: int) -> None:
        """Change when a waiting job is due.

        Raises:
            NotFound: There is no such job.
            BadInput: The time is out of range, or not before the job's expiry.
            Conflict: It runs, is dead, or has ended; nothing was changed.
        """
        now_us = self._time.latest_us()
        validation.check_due(at_us, now_us=now_us)
        self._change(job_id, "rescheduled", Change(at_us=max(at_us, now_us)))

    def change(self, job_id: JobId, *, priority: int | None = None, **carried: object) -> None:
        """Change the priority of a waiting job, or what it carries: fields of `Carried`.

        None keeps a value. This is one step on stores with transactions; on others the priority is
        changed last.

        Raises: As `reschedule`, and BadInput if there is nothing to change.
        """
        if priority is not None:
            validation.check_priority(priority)
        given = {name: value for name, value in carried.items() if value is not None}
        own = Change(carried={name: CARRIED[name].read(value) for name, value in given.items()})
        steps = [step for step in (own, Change(priority=priority)) if step != Change()]
        if not steps:
            raise BadInput(
                "There is nothing to change.", hint="Pass a priority, tags, headers, or several."
            )
        if len(steps) == 1 or not isinstance(self._store, Transactional):
            for step in steps:
                self._change(job_id, "changed", step)
            return
        wakeups = DeferredWakeups(self.engine.wakeups)
        with self._store.transaction() as view:
            inside = self.inside(view.store, wakeups)
            for step in steps:
                inside._change(job_id, "changed", step)  # noqa: SLF001  (of the same class)
        wakeups.release()

    def _change(self, job_id: JobId, word: str, change: Change) -> None:
        for _ in range(_ROUNDS_MAX):
            current = self.find(job_id)
            row = changes.changeable(job_id, word, current.status, current.row)
            if change.at_us is not None and may_have_begun(row):
                raise Conflict(
                    f"The durable function {job_id.hex()} has begun and cannot be {word}.",
                    hint="Its own waits say when it goes on; send the signal that it waits for.",
                )
            if change.at_us is not None and row.opts:
                validation.check_options(read_options(row.opts), change.at_us, 0)
            width_us = self._catalog.expect_here(row.lane.queue).width_us
            token = self._ids.token()
            move = changes.changed(row, change, token=token, width_us=width_us)
            if self._noting(word).settle([move])[0]:
                self.engine.wake([place_of(move)])
                return
        raise conflict_error(job_id, word, "changing")

    def complete_stored(self, job_id: JobId) -> None:
        """Apply the effects of an outcome that another process stored."""
        row = self._store.find([job_id])[0]
        if row is not None and row.outcome:
            complete(self._store, [stored(row)])

    def retry_all(self, rows: Sequence[Job]) -> int:
        """Run waiting or dead jobs as soon as possible; running and changed ones are left.

        Returns:
            How many will run.
        """
        undecided = [row for row in rows if not row.outcome and not self._is_spent(row)]
        plain = [row for row in undecided if not row.opts or row.state != State.DEAD]
        count = 0
        for row in [row for row in undecided if row.opts and row.state == State.DEAD]:
            with suppress(Conflict):  # its unique key is taken, or its compensations ran
                ask_to_go_on(self.engine, row)
                if self._withdraw([row]):
                    count += self._redrive(row)
        for start in range(0, len(plain), _PAGE):
            withdrawn = self._withdraw(plain[start : start + _PAGE])
            for row in withdrawn:
                ask_to_go_on(self.engine, row)
            moves = [self.redrive(row) for row in withdrawn]
            held = self._noting("retried").settle(moves)
            self._count_again([row for row, sure in zip(withdrawn, held, strict=True) if sure])
            count += sum(held)
            self.engine.wake(map(place_of, moves))
            self._catalog.used(row.lane for row in withdrawn)
        return count

    def _withdraw(self, rows: Sequence[Job]) -> Sequence[Job]:
        """Delete what keeps jobs from running again; return the rows of the jobs that can run."""
        rows = cancel_requests.withdraw(self._store, rows)
        if dead := [row for row in rows if row.state == State.DEAD]:
            self._catalog.expect_here(living_queue(dead[0].lane.queue))
            if self._catalog.features.has(SECTIONS):
                sections.withdraw(self._store, dead)
        return rows

    def _count_again(self, rows: Sequence[Job]) -> None:
        """Note that dead jobs of batches run again, unless they have ended since (rule I4)."""
        now_us = self._time.latest_us()
        again = [End(row.id, row.hop, AGAIN, now_us) for row in rows if row.state == State.DEAD]
        if commits := ends.commits_of(again):
            with suppress(StoreUnavailable):  # the jobs run; only counts are late
                self._store.together([Group(commits=commits)])

    def redrive(self, row: Job) -> Move:
        """Return the verdict that runs a waiting or dead job now; a dead one starts anew."""
        width_us = self._catalog.expect_here(living_queue(row.lane.queue)).width_us
        token = self._ids.token()
        return changes.redriven(row, self._time.latest_us(), token=token, width_us=width_us)
