"""Claims of jobs that no worker runs: those of HTTP clients, and of raw queues.

Each session is a worker without handlers: it claims by the rules of a worker, and hands the jobs
out. A client extends and ends its claims by their rows; nothing of that is kept here but for jobs
with limits, whose permits the session holds. A client that stops does nothing more: its claims
end with their leases.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dueline.coordination.worker_registry import BEATS_A_LEASE, KnownTasks, Presence, announce
from dueline.core.attempt import Done, Ended, Ending, GivenBack
from dueline.core.call_options import is_awaited
from dueline.core.codec import encode, encode_result
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, LeaseLost
from dueline.core.job import Claim, Job, JobId, Token
from dueline.core.lane import limits_of
from dueline.core.logging import log
from dueline.core.process_identity import worker_name
from dueline.core.store import Extend
from dueline.core.store_capabilities import flush_claims
from dueline.jobs import cancel_requests
from dueline.jobs.group_cancellation import advance
from dueline.jobs.results import kept_us
from dueline.limits.permits import HeldPermits
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.tasks.payload_codecs import as_json
from dueline.worker.cancellations import Cancellations
from dueline.worker.claimer import ClaimedJob, Claimer
from dueline.worker.execution import UNKNOWN_TASK_WAIT_US
from dueline.worker.paused_jobs import DeferredJobs
from dueline.worker.settler import Settler
from dueline.worker.workflow_steps import WorkflowSteps
from dueline.workflows.records import Layouts

Read = TypeVar("Read")

LIMITED_MAX: Final = 1_000
"""Maximum number of jobs with limits that one session holds."""

SESSIONS_MAX: Final = 100
"""Maximum number of sessions; the one that was used least recently is closed."""


class Terms(NamedTuple):
    """What a client claims.

    Attributes:
      client: Its name, a part of the name of the worker; empty for none.
      queues: Names of queues.
      tasks: Names of the tasks that it knows; None for all.
      lease_us: Duration of its claims; None for that of each queue.
      is_raw: It takes arguments of any codec.
    """

    client: str
    queues: tuple[str, ...]
    tasks: frozenset[str] | None = None
    lease_us: int | None = None
    is_raw: bool = False


class HandedJob(NamedTuple):
    """A claimed job for a client. given: first arguments of a workflow step, a JSON array."""

    job: Job
    given: bytes

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments, as JSON values.

        Raises:
          BadInput: They cannot be read.
        """
        try:
            arguments = msgspec.json.decode(as_json(self.job.codec, self.job.body))
            given = msgspec.json.decode(self.given) if self.given else []
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"The arguments are not JSON: {error}.") from error
        match arguments:
            case {"args": list(args), "kwargs": dict(kwargs)}:
                return [*given, *args], kwargs
            case list(args):
                return [*given, *args], {}
        raise BadInput("The arguments are not a list.")

    def body(self) -> bytes:
        """Return the body; of a step with first arguments, a JSON document with all of them.

        Raises:
          BadInput: They cannot be read.
        """
        if not self.given:
            return self.job.body
        args, kwargs = self.arguments()
        return encode({"args": args, "kwargs": kwargs})


class _AnyTask(frozenset[str]):
    """The tasks of a client that takes all."""

    __slots__ = ()

    def __contains__(self, task: object) -> bool:
        return True


class ClaimSession:
    """The claims of one kind of client, as those of a worker; threads may share it.

    Attributes:
      worker: The worker that is recorded with its claims.

    Args:
      engine: The engine.
      settler: Ends jobs that do not run.
      terms: What the clients claim.
      known: Names of tasks that the heartbeat reports for clients that take all.
    """

    def __init__(
        self, engine: Engine, settler: Settler, terms: Terms, known: Sequence[str]
    ) -> None:
        self.worker = f"{worker_name()}:{terms.client}" if terms.client else worker_name()
        self._engine = engine
        self._terms = terms
        self._is_closed = False
        self._known = known if terms.tasks is None else sorted(terms.tasks)
        self._settler = settler
        self._permits = HeldPermits(engine, self.worker)
        own = KnownTasks(_AnyTask() if terms.tasks is None else terms.tasks, is_raw=terms.is_raw)
        self._claimer = Claimer(
            engine, terms.queues, self.worker,
            lease_us=terms.lease_us, permits=self._permits, known=own,
        )  # fmt: skip
        self._deferred = DeferredJobs(
            engine, own, settler.limited, threading.Event(), settler.circuits(terms.queues)
        )
        self._cancellations = Cancellations(engine, self.worker, engine.clock)
        self._steps = WorkflowSteps(engine, settler)
        self._limited: dict[JobId, Job] = {}
        self._started_us = engine.time.latest_us()
        self._announced_us = 0
        self._lock = threading.Lock()

    def claim(self, most: int) -> Sequence[HandedJob]:
        """Claim due jobs, the most urgent first; each is recorded as started.

        Args:
            most: Maximum number of jobs.

        Raises:
            StoreUnavailable: Jobs that were claimed are due again when their leases end.
        """
        with self._lock:
            if self._is_closed:
                return ()
            self._announce()
            self._drop_ended()
            self._claimer.unblock(self._permits.begin(self._held, LIMITED_MAX))
            self._claimer.refresh()
            claimed: list[HandedJob] = []
            try:
                while len(claimed) < most:
                    taken = self._claimer.claim(most - len(claimed), {})
                    if not taken:
                        break
                    claimed += self._fit(taken)
                self._deferred.requeue()
                return self._started(claimed)
            finally:
                self._permits.settle(self._held)

    def _fit(self, taken: Sequence[ClaimedJob]) -> Sequence[HandedJob]:
        """End or defer claimed jobs that do not run; return the others."""
        sorted_ = self._settler.sort(taken)
        self._settler.complete(sorted_.decided)
        self._settler.record_crashes(sorted_.died)
        self._settler.end(sorted_.over)
        self._steps.ended(sorted_.gone)
        fit, waiting, ended = self._deferred.sort(sorted_.fit, sorted_.deaths)
        self._deferred.defer(waiting)
        ended += self._cancellations.refused([job for job, _ in fit])
        if ended:
            self._settler.settle(ended, [])
            self._steps.ended(attempt.job for attempt in ended)
            over = {attempt.job.id for attempt in ended}
            fit = [claimed for claimed in fit if claimed.job.id not in over]
        steps = self._steps.sort(fit)
        self._limited |= {job.id: job for job, _ in steps.fit if limits_of(job.lane)}
        self._steps.park_and_end(steps)
        return [HandedJob(job, steps.given.get(job.id, b"")) for job, _ in steps.fit]

    def _started(self, claimed: Sequence[HandedJob]) -> Sequence[HandedJob]:
        """Record that jobs are started: if the client dies, that counts as a crash (rule A1)."""
        if not claimed:
            return ()
        flush_claims(self._engine.store)  # clients get the fence
        jobs = [handed.job for handed in claimed]
        held = self._engine.store.settle([Extend(job, job.at_us, started=True) for job in jobs])
        self._permits.started([job.claim() for job in jobs], self._engine.time.latest_us())
        kept = [handed for handed, sure in zip(claimed, held, strict=True) if sure]
        for job, sure in zip(jobs, held, strict=True):
            if not sure:
                self._limited.pop(job.id, None)
        return kept

    def extend(self, job: Job, until_us: int) -> int | None:
        """Extend the permits of a claim with limits.

        Returns:
            Until when the claim may last; None if other workers have its permits.
        """
        with self._lock:
            self._drop_ended()
            self._permits.settle(self._held)
            claim = job.claim()
            held = self._limited.get(job.id)
            lost = self._permits.keep(self._held())
            if held is None or held.claim() != claim or held in lost:
                return None
            until_us = min(until_us, self._permits.ends_us([job]).get(claim, until_us))
            self._limited[job.id] = held._replace(at_us=max(held.at_us, until_us))
            return until_us

    def drop(self, job: Job) -> None:
        """Release the permits of a job that has ended."""
        with self._lock:
            if self._limited.pop(job.id, None) is not None:
                self._permits.settle(self._held)

    def close(self) -> None:
        """Release what is unused; permits of claims that last are left to expire."""
        with self._lock:
            self._is_closed = True
            self._claimer.close()
            self._settler.close()
            if not self._limited:
                self._permits.close()

    def _held(self) -> Sequence[Job]:
        return list(self._limited.values())

    def _drop_ended(self) -> None:
        """Drop jobs whose claims have ended: nobody extends them any more."""
        now_us = self._engine.time.earliest_us()
        self._limited = {id_: job for id_, job in self._limited.items() if job.at_us > now_us}

    def _announce(self) -> None:
        """Report that clients serve the queues, for people, until three leases after a claim.

        It is not registered as a process, since its claims last to their ends.
        """
        engine, now_us = self._engine, self._engine.time.latest_us()
        lease_us = min(engine.catalog.settings(name).lease_us for name in self._terms.queues)
        if now_us - self._announced_us >= lease_us // BEATS_A_LEASE:
            self._announced_us = now_us
            presence = Presence(
                worker=self.worker,
                queues=self._terms.queues,
                tasks=tuple(self._known),
                slots=0,  # clients take as many jobs as they ask for
                held=0,
                started_us=self._started_us,
                beat_us=now_us,
                clock_skew_us=engine.time.skew_us(),
                is_raw=self._terms.tasks is None,
            )
            announce(engine.store, presence, version=engine.ids.token(), beat_every_us=lease_us)


class ClaimSessions:
    """The sessions of one process, and the ends of claims; threads may share it.

    Args:
      engine: The engine.
      handlers: Handlers by task, for their retry policies and limits.
      hooks: Functions to call with what became of attempts.
    """

    def __init__(
        self, engine: Engine, handlers: Mapping[str, Handler], hooks: Hooks | None = None
    ) -> None:
        self.engine = engine
        self._handlers = handlers
        self._hooks = hooks
        self._chance = random.Random()  # threads may share it; a new one costs a read of entropy
        self._sessions: OrderedDict[Terms, ClaimSession] = OrderedDict()
        self._lock = threading.Lock()
        self._circuits = self._settler().circuits(())
        self._counting = threading.Lock()

    def claim(self, terms: Terms, most: int, read: Callable[[HandedJob], Read]) -> list[Read]:
        """Claim due jobs, the most urgent first.

        Args:
            terms: What is claimed.
            most: Maximum number of jobs.
            read: Makes of a job what the client gets. If it raises BadInput, the job is released
                for other workers.

        Raises:
            StoreUnavailable: Jobs that were claimed are due again when their leases end.
        """
        answers: list[Read] = []
        for handed in self._session(terms).claim(most):
            try:
                answers.append(read(handed))
            except BadInput as error:
                log.warning("job %s is released: %s", handed.job.id.hex(), error)
                self.settle([(handed.job, GivenBack(UNKNOWN_TASK_WAIT_US))])
        return answers

    def _session(self, terms: Terms) -> ClaimSession:
        """Return the session of some clients."""
        with self._lock:
            session = self._sessions.get(terms)
            if session is None:
                known = sorted(self._handlers)
                session = ClaimSession(self.engine, self._settler(), terms, known)
                self._sessions[terms] = session
            self._sessions.move_to_end(terms)
            is_full = len(self._sessions) > SESSIONS_MAX
            old = self._sessions.popitem(last=False)[1] if is_full else None
        if old is not None:
            old.close()
        return session

    def _settler(self) -> Settler:
        """Return a settler, which one thread uses at a time."""
        return Settler(self.engine, self._handlers, self._chance, self._hooks)

    def held(self, job_id: JobId, token: Token) -> Job:
        """Return the row of a claim.

        Raises:
            LeaseLost: The claim has ended, or never was.
        """
        row = self.engine.store.find([job_id])[0]
        if row is None or row.token != token or not row.is_claimed() or row.outcome:
            raise LeaseLost(
                f"The job {job_id.hex()} is not claimed with this token.",
                hint="If you repeat a request, the first may have ended it: read the job.",
            )
        return row

    def extend(self, jobs: Sequence[Job], lease_us: int | None) -> list[int | None]:
        """Extend claims; they never become shorter.

        Args:
            jobs: The rows of the claims.
            lease_us: New duration from now; None for that of the queue.

        Returns:
            The new end of each claim; None for one that was lost.

        Raises:
            Conflict: A job has limits, and another process holds its permits.
        """
        engine, now_us = self.engine, self.engine.time.latest_us()
        wanted: list[Extend] = []
        for job in jobs:
            own_us = engine.catalog.settings(job.lane.queue).lease_us
            end_us = now_us + (own_us if lease_us is None else lease_us)
            until_us = self._extend_permits(job, end_us) if limits_of(job.lane) else end_us
            if until_us is not None:
                wanted.append(Extend(job, until_us, started=True))
        held = engine.store.settle(wanted)
        ends_us = {
            extended.job.claim(): max(extended.at_us, extended.job.at_us)
            for extended, sure in zip(wanted, held, strict=True)
            if sure
        }
        return [ends_us.get(job.claim()) for job in jobs]

    def _extend_permits(self, job: Job, until_us: int) -> int | None:
        session = self._session_of(job)
        if session is None:
            raise Conflict(
                f"Another process claimed the job {job.id.hex()}, which has limits.",
                hint="Send all requests of a client to the same server.",
            )
        return session.extend(job, until_us)

    def is_cancelled(self, job: Job) -> bool:
        """Return whether the end of a claimed job was requested."""
        return job.claim() in cancel_requests.of_worker(self.engine.store, job.worker)

    def done(self, job: Job, result: object) -> Done:
        """Return the ending of a job that is done, with its result if that is kept.

        Raises:
            BadInput: The result is too large.
        """
        value = encode_result(result, job.task)
        keep_us = self.engine.catalog.settings(job.lane.queue).keep_us
        return Done(value if kept_us(job, keep_us) > 0 or is_awaited(job) else b"")

    def settle(self, endings: Sequence[tuple[Job, Ending]]) -> list[Job]:
        """Store how attempts ended; a job whose end was requested is cancelled unless it is done.

        Returns:
            The jobs whose claims were lost; nothing was recorded for them.
        """
        now_us = self.engine.time.latest_us()
        ended = [Ended(job, ending, job.claimed_us, now_us) for job, ending in endings]
        requested = self._requested(ended)
        with closing(self._settler()) as settler:
            lost = settler.settle(ended, [], requested)
        missing = {job.claim() for job in lost}
        held = [job for job, _ in endings if job.claim() not in missing]
        for job in held:
            if job.claim() in requested:
                cancel_requests.note(self.engine.store, job.worker, [job.claim()])
            if limits_of(job.lane) and (session := self._session_of(job)) is not None:
                session.drop(job)
        if self._circuits.terms:
            with self._counting:
                self._circuits.ended([each for each in ended if each.job.claim() not in missing])
        if steps := [job for job in held if job.opts]:
            advance(self.engine, Layouts(), steps)
        return lost

    def _requested(self, ended: Sequence[Ended]) -> Collection[Claim]:
        """Return the claims whose ends were requested, of the workers of attempts (rule P11)."""
        workers = {attempt.job.worker for attempt in ended if not isinstance(attempt.ending, Done)}
        store = self.engine.store
        return {claim for worker in workers for claim in cancel_requests.of_worker(store, worker)}

    def _session_of(self, job: Job) -> ClaimSession | None:
        with self._lock:
            return next(
                (session for session in self._sessions.values() if session.worker == job.worker),
                None,
            )

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            sessions = [*self._sessions.values()]
            self._sessions.clear()
        for session in sessions:
            session.close()
