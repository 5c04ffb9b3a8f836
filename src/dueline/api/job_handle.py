"""Handles on jobs."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dueline.api import durable_jobs
from dueline.api.chunks import Chunks
from dueline.api.code_changes import acting
from dueline.api.handle import Handle, R_co, twin
from dueline.coordination.worker_registry import key_of, live_workers
from dueline.core.attempt import read_epitaph
from dueline.core.blobs import whole
from dueline.core.call_options import carried_by, headers_of, tags_of
from dueline.core.clock import Clock, asked_instant_us, asked_span_us
from dueline.core.codec import AS_JSON, DAMAGE, decode_result, encode_result
from dueline.core.errors import BadInput, JobFailed
from dueline.core.job import JobId, State
from dueline.core.lane import living_queue
from dueline.core.logging import log
from dueline.core.retry import is_uncertain
from dueline.core.worker_needs import shown
from dueline.durable import generations, sending
from dueline.jobs import attempt_lines, job_pauses, progress_records
from dueline.jobs.attempt_lines import AttemptLines
from dueline.jobs.explanation import Explanation
from dueline.jobs.hand_settlement import settle_dead
from dueline.jobs.queue import Found, Queues
from dueline.jobs.unknown_tasks import known_tasks, misfit_text, unknown_text
from dueline.tasks.familiar_words import JOB_METHODS, unknown_attribute
from dueline.tasks.handler import Handler
from dueline.tasks.progress import Progress
from dueline.worker.execution import job_here

ID_BYTES: Final = 16


class Job(Handle[R_co]):
    """A handle on an enqueued job; `R` is the type of its result.

    `task.enqueue(...)` returns it, `app.job(job_id)` creates it from an id. `await job.astatus()`
    does as `status` without blocking the event loop; so do the other names with an `a` in front.
    """

    __slots__ = ("_kind", "_tasks")
    _awaited = ("job", "task.aenqueue")

    def __init__(
        self,
        job_id: JobId,
        queues: Queues,
        clock: Clock,
        kind: Any = Any,  # noqa: ANN401
        tasks: Mapping[str, Handler] = {},
    ) -> None:
        self._id, self._queues, self._clock, self._kind = job_id, queues, clock, kind
        self._tasks = tasks

    if not TYPE_CHECKING:  # for mypy, such an attribute does not exist

        def __getattr__(self, name: str) -> NoReturn:
            """Name what to write instead of a method of another queue."""
            raise unknown_attribute(self, name, JOB_METHODS, "Jobs")

    @property
    def status(self) -> str:
        """The state of the job; at most two reads of the store.

        One of scheduled, ready, running, retrying, paused, done, dead, cancelled, expired and
        lost.

        Raises:
            NotFound: The job does not exist, or its result has expired.
        """
        return self._queues.find(self._id).status

    @property
    def is_uncertain(self) -> bool:
        """Whether the job is dead since an attempt ended in a section that must not repeat.

        See `ctx.not_repeatable`. An operator decides: `retry`, `settle` or delete.

        Raises:
            NotFound: The job does not exist, or its result has expired.
        """
        row = self._queues.find(self._id).row
        return row is not None and row.state == State.DEAD and is_uncertain(row.error)

    def _read(self) -> tuple[bool, Found]:
        job = self._queues.find(self._id)
        return job.outcome is not None or job.status in ("dead", "expired"), job

    def _report_wait(self, job: Found) -> None:
        if job.status != "ready" or job.row is None:
            return
        queue, key = living_queue(job.row.lane.queue), key_of(job.row)
        live = self._answer(lambda: live_workers(self._queues.engine))
        serving = [worker for worker in live if queue in worker.queues]
        if not serving:
            log.warning("job %s waits: no live worker serves the queue %s", self.id, queue)
        elif key not in known_tasks(queue, serving):
            why = unknown_text(key) + misfit_text(job.row)
            log.warning("job %s waits: %s", self.id, why)
        elif why := known_tasks(queue, serving).unmet(job.row.lane):
            log.warning("job %s waits: %s", self.id, why)

    def _late(self, job: Found) -> TimeoutError:
        text = f"The job {self.id} is still {job.status}."
        if job.status == "ready" and job_here() is not None:
            text += (
                " The handler that waits for it keeps a slot of its worker: if that is the only "
                "one, the job cannot start. Use more slots, or steps of a workflow."
            )
        return TimeoutError(text)

    def _value(self, job: Found) -> R_co:
        outcome = job.outcome
        if job.status == "expired":
            raise JobFailed(f"The job {self.id} expired before it ran to its end.")
        if outcome is None:
            error, _ = read_epitaph(job.row.error if job.row else "")
            raise JobFailed(f"The job {self.id} is dead: {error}")
        if outcome.state != "done":
            why = f"The job {self.id} is {outcome.state}: {outcome.error}"
            raise JobFailed(why.rstrip(": "))
        text = whole(self._queues.engine.blobs, outcome.value)
        value: R_co = decode_result(text, self._kind)
        return value

    @property
    def progress(self) -> Progress | None:
        """The last progress that the handler reported, at most a second old.

        None if it reported none, or more than a day ago.
        """
        return progress_records.read(self._queues.engine.store, self._id)

    @property
    def meta(self) -> dict[str, Any]:
        """What the handler noted with `ctx.set_meta`, at most a second old.

        Empty if it noted nothing, or more than a day ago.
        """
        return progress_records.read_notes(self._queues.engine.store, self._id)

    def chunks(
        self, *, after: str | None = None, timeout: timedelta | float | None = None
    ) -> Chunks:
        """Follow what the handler emits with `ctx.emit`, until the job ends.

        Chunks arrive in their order, less than half a second after they were emitted. If the job
        is retried, the new attempt emits from its beginning: `chunk.attempt` changes, and chunks of
        earlier attempts are removed. Chunks are kept for a day.

        Args:
            after: The id of the last chunk that was read; None for all that are kept.
            timeout: Maximum wait for the next chunk, a timedelta or seconds; None for no limit.

        Returns:
            An iterator of `Chunk`, for `for` and `async for`. It raises NotFound if the job does
            not exist, and TimeoutError if nothing arrives in time.

        Raises:
            BadInput: `after` is no id of a chunk.
        """
        return Chunks(self._queues, self._clock, self._id, after, timeout)

    def explain(self, until: timedelta | float | None = None) -> Explanation:
        """Return what must change before the job can start, and when it is expected to start.

        Reads up to 10,000 rows of the job's queue, so call it for people, not for every job.

        Args:
            until: A duration, a timedelta or seconds: also say whether the job starts within it,
                and what would start it by then.

        Returns:
            The explanation: `str()` of it is a sentence, `conditions` everything that must change,
            the next one first, `reason` the kind of the first, and `facts` the numbers and names
            behind it. The reason of a job that does not exist is `unknown`.
            The facts `expected_us`, `earliest_us` and `latest_us` are the expected start and the
            interval in which 80 % of such jobs start; `no_forecast` says why there are none.
        """
        from dueline.foresight.until import explain_until  # noqa: PLC0415  (slow to load)

        within_us = None if until is None else asked_span_us(until, "until")
        return explain_until(self._queues, self._id, within_us)

    def logs(self) -> Sequence[AttemptLines]:
        """Return what the handler logged, for each attempt that keeps it.

        The task says which attempts do: `@app.task(logs="failed")`. Lines expire with the history
        of the queue.

        Returns:
            The lines of up to 20 attempts, the first first.
        """
        return attempt_lines.read(self._queues.engine.store, self._id)

    def cancel(self, *, force: bool = False) -> bool:
        """Cancel the job if it waits; ask its handler to stop if it runs.

        A handler notices within two seconds, in `ctx.check_cancelled()` or at its next await. A
        handler that never checks runs to its end, which decides the outcome. The job is not
        retried in any case.

        Args:
            force: End a running job within two seconds, whatever its handler does. A child
                process is killed; jobs that run next to it are released. A thread cannot be
                stopped: its job ends as cancelled, and its handler runs on without effect on it.

        Returns:
            True if the job is cancelled; False if it runs and was asked to stop.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job is dead or has ended.
        """
        return acting(self._queues).cancel(self._id, by_force=force)

    def reschedule(
        self, *, due: datetime | None = None, after: timedelta | float | None = None
    ) -> None:
        """Change the due time of the job.

        Args:
            due: New due time, an aware datetime.
            after: Duration from now, a timedelta or seconds.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job runs, is dead or has ended.
            BadInput: Not exactly one of both is given, or the time is out of range or after the
                job's expiry.
        """
        if (due is None) == (after is None):
            raise BadInput("Pass exactly one of `due` and `after`.", hint="Use after=60.")
        if due is not None:
            at_us = asked_instant_us(due, "due")
        else:
            at_us = self._queues.engine.time.latest_us() + asked_span_us(after, "after")
        acting(self._queues).reschedule(self._id, at_us)

    def move(self, queue: str) -> None:
        """Move the waiting job to another queue.

        Its id, time, priority, tenant, attempts and unique key stay, so this handle finds it.

        Args:
            queue: Name of the queue, which exists.

        Raises:
            NotFound: The job or the queue does not exist.
            Conflict: The job runs, is dead or has ended, or its keys or delivery do not allow it.
            QuotaExceeded: The queue has no room.
            BadInput: The name is invalid.
        """
        from dueline.jobs.queue_moves import QueueMoves  # noqa: PLC0415  (seldom used)

        QueueMoves(acting(self._queues), queue).move(self._id)

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:  # noqa: A002, ANN401
        """Send a signal to a durable function; it takes it with `ctx.wait_signal(name)`.

        Signals of a name are taken in the order in which they were sent. A signal that is not
        awaited yet is kept.

        Args:
            name: Name of the signal.
            value: A plain value.
            id: Id of the signal: a repeat with the same id changes nothing, also if it is not
                known whether the first call took effect. By default a random one.

        Raises:
            NotFound: The job does not exist, or is no durable function of this application.
            Conflict: It has ended, or has 1,000 unread signals of this name.
            BadInput: The name, id or value cannot be used.
        """
        sent = sending.Sending(name, value, id)
        sending.send_signal(acting(self._queues), self._tasks, self._id, sent)

    @property
    def state(self) -> Any:  # noqa: ANN401
        """What a durable function set last with `ctx.state(value)`; None without that."""
        return durable_jobs.state(self._queues, self._tasks, self._id)

    def steps(self) -> Sequence[durable_jobs.DurableStep]:
        """Return what a durable function has recorded, in the order of its calls."""
        return durable_jobs.steps(self._queues, self._id)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job, sorted; empty once it has ended.

        Raises:
            NotFound: The job does not exist, or its result has expired.
        """
        row = self._queues.find(self._id).row
        return () if row is None else tags_of(row)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the job; empty once it has ended.

        Raises:
            NotFound: The job does not exist, or its result has expired.
        """
        row = self._queues.find(self._id).row
        return {} if row is None else headers_of(row)

    @property
    def needs(self) -> dict[str, int | str]:
        """What the job needs of its worker, by name; empty once it has ended.

        Raises:
            NotFound: The job does not exist, or its result has expired.
        """
        row = self._queues.find(self._id).row
        return {} if row is None else shown(carried_by(row).needs)

    def change(
        self,
        *,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Change the priority, the tags or the headers of the job.

        Args:
            priority: New priority; None to keep it.
            tags: New tags, which replace the present ones; None to keep them.
            headers: New headers, which replace the present ones; None to keep them.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job runs, is dead or has ended.
            BadInput: None is given, or a value is out of range.
        """
        acting(self._queues).change(self._id, priority=priority, tags=tags, headers=headers)

    def pause(self) -> None:
        """Let no worker claim the job until it is resumed; nothing happens if it is paused.

        It keeps its place, its unique key and its part of a quota, and never ends by itself: it
        expires, if its time has passed, once it is resumed.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job runs, is dead or has ended.
        """
        job_pauses.pause(acting(self._queues), self._id)

    def resume(self) -> None:
        """Return a paused job to its place: if its time has passed, it is due now.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job is not paused.
        """
        job_pauses.resume(acting(self._queues), self._id)

    def retry(self) -> None:
        """Run the job as soon as possible, even if it is a dead-letter job.

        A dead durable function goes on after what it has recorded; what failed last is called
        again.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job runs or has ended, or is a durable function whose compensations ran.
        """
        acting(self._queues).retry(self._id)

    def settle(self, value: Any = None) -> None:  # noqa: ANN401
        """End a dead-letter job as done, with a result that is known by other means.

        What waits for the job goes on: the next steps of its workflow, and its dependents.

        Args:
            value: The result, a plain value.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job is not dead, or is a durable function.
            BadInput: The value cannot be written as JSON, or is too large.
        """
        settle_dead(self._queues, self._id, encode_result(value, "the job"))

    def reset(self, *, to: int | None = None, as_new: bool = False) -> "Job[R_co]":
        """Continue a waiting, stopped or dead durable function after a position of its log.

        Args:
            to: The last call whose record is kept, as `steps()` numbers them; 0 begins anew. By
                default all are kept.
            as_new: Begin a new job with the records, and leave this one as it is; also while it
                runs, and after its compensations ran.

        Returns:
            The job that goes on.

        Raises:
            NotFound: The job does not exist, or is no durable function.
            Conflict: It runs, or its compensations ran; for a new job, a call has not ended.
            BadInput: There is no such position.
        """
        job_id = self._id
        if as_new:
            job_id = generations.fork(acting(self._queues), job_id, to)
        else:
            generations.reset(acting(self._queues), job_id, to)
        return Job(job_id, self._queues, self._clock, self._kind, self._tasks)

    astatus = twin(status)
    aprogress = twin(progress)
    ameta = twin(meta)
    aexplain = twin(explain)
    acancel = twin(cancel)
    aretry = twin(retry)
    areschedule = twin(reschedule)
    amove = twin(move)
    apause = twin(pause)
    aresume = twin(resume)
    asignal = twin(signal)
    asettle = twin(settle)


def decoded(queues: Queues, values: Sequence[str], kind: Any) -> Sequence[Any]:  # noqa: ANN401
    """Decode results of one type, together if all of them are of it."""
    if (blobs := queues.engine.blobs) is not None:
        values = [blobs.whole(value) for value in values]
    with suppress(*DAMAGE, UnicodeEncodeError):
        results: list[Any] = AS_JSON.decoder(list[kind])(f"[{','.join(values)}]".encode())
        if len(results) == len(values):
            return results
    return [decode_result(value, kind) for value in values]


def parse_id(text: str | bytes) -> JobId:
    """Return the id of a job from its string, with or without dashes, or from its 16 bytes.

    Raises: BadInput: it is not an id.
    """
    if isinstance(text, bytes) and len(text) == ID_BYTES:
        return JobId(text)
    try:
        return JobId(uuid.UUID(text).bytes)  # type: ignore[arg-type]  # refused below
    except (ValueError, TypeError, AttributeError) as error:  # the last two: not a string
        raise BadInput(
            f"{text!r:.80} is not a job id.",
            hint="Use 32 hexadecimal digits; the command line takes the first four or more.",
        ) from error
