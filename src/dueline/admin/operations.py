"""Changes that operators make by hand, each with a record of who made it.

The record is written before the change, and completed after it: a change of a process that was
killed has a record without a result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from dueline.admin import redrives
from dueline.admin.bulk_runs import BulkRun, Change
from dueline.admin.redrives import PacedRedrive, Redrive
from dueline.admin.reruns import KEEP_ARGUMENTS, kept_call, kept_step, request_of
from dueline.admin.search import IN_HISTORY, JobFilter
from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.coordination.worker_requests import RequestKind
from dueline.core.actor import Actor
from dueline.core.clock import DAY_US
from dueline.core.codec import encode
from dueline.core.durations import instant_text
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, DuelineError, NotFound, QuotaExceeded
from dueline.core.job import JobId, State
from dueline.core.limit_names import check_limit
from dueline.core.queue_settings import QueueSettings, StreamPause
from dueline.core.readable_records import readable
from dueline.core.store import Delete, Put, Records
from dueline.durable import generations
from dueline.durable.sending import Sending, send_json
from dueline.jobs import job_pauses, pauses, workflow_control
from dueline.jobs.bulk import (
    BulkResult,
    cancel_all,
    delete_dead,
    reschedule_all,
    retry_all,
    sum_of,
)
from dueline.jobs.hand_settlement import settle_dead
from dueline.jobs.moves import conflict_error
from dueline.jobs.queue import Queues
from dueline.jobs.queue_moves import QueueMoves
from dueline.limits import semaphore
from dueline.limits.definitions import expect_kind
from dueline.limits.semaphore import Semaphore
from dueline.schedules import scheduler
from dueline.streams import groups, parked
from dueline.streams import pauses as stream_pauses
from dueline.tasks.handler import Handler
from dueline.workflows.workflow import WorkflowView

PARTITION: Final = "operator-actions"
KEEP_US: Final = 90 * DAY_US
_LAST_US: Final = 2**62
BULK_MAX: Final = 5_000
"""Maximum number of jobs that one call changes; a repeat continues."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Action:
    """One change by an operator.

    Attributes:
      at_us: When it began, in microseconds UTC.
      who: The operator.
      what: The change, such as "retry" or "pause queue".
      target: What was changed: an id, a name or a filter.
      result: How it ended; empty if its process was killed.
      door: How it was made, such as "command line".
    """

    at_us: int
    who: str
    what: str
    target: str
    result: str = ""
    door: str = ""


def actions(records: Records, *, limit: int) -> list[Action]:
    """Return what operators did, the latest first."""
    return [action for _, action in islice(readable(records, PARTITION, Action), limit)]


@dataclass(slots=True)
class Recording:
    """A change whose record is open. result: how it ends; empty: the record is deleted."""

    result: str = "done"


@contextmanager
def recorded(engine: Engine, actor: Actor, what: str, target: str) -> Iterator[Recording]:
    """Record a change by an operator: before the block runs, and how it ended.

    Args:
        engine: The store.
        actor: The operator.
        what: The change.
        target: What is changed.
    """
    store, now_us = engine.store, engine.time.latest_us()
    action = Action(now_us, actor.name, what, target[:500], door=actor.door)
    key = f"{_LAST_US - now_us:016x}-{engine.ids.token().hex()[:8]}"

    def write(result: str) -> None:
        value = encode(replace(action, result=result))
        put = Put(key, engine.ids.token(), value, expires_us=now_us + KEEP_US)
        store.commit(PARTITION, (put,))

    recording = Recording()
    write("")
    try:
        yield recording
    except DuelineError as error:
        write(f"rejected: {error.message}"[:500])
        raise
    if recording.result:
        write(recording.result)
    else:
        store.commit(PARTITION, (Delete(key),))


class Operations:
    """What one operator changes.

    Args:
        queues: The queues of the store.
        actor: The operator.
    """

    def __init__(self, queues: Queues, actor: Actor) -> None:
        self._queues = queues.by(actor)
        self._actor = actor

    def _recorded(self, what: str, target: str, change: Callable[[], T]) -> T:
        with recorded(self._queues.engine, self._actor, what, target) as action:
            changed = change()
            if isinstance(changed, BulkResult):
                action.result = f"{changed.done} jobs"
            elif isinstance(changed, bytes):
                action.result = changed.hex()
        return changed

    # Jobs

    def retry(self, job_id: JobId) -> None:
        """Run a job as soon as possible.

        Raises: As `Queues.retry`.
        """
        self._recorded("retry", job_id.hex(), lambda: self._queues.retry(job_id))

    def cancel(self, job_id: JobId, *, by_force: bool = False) -> bool:
        """Cancel a waiting job, or ask a running one to stop; return whether it has ended.

        Raises: As `Queues.cancel`.
        """
        return self._recorded(
            "cancel by force" if by_force else "cancel",
            job_id.hex(),
            lambda: self._queues.cancel(job_id, by_force=by_force),
        )

    def settle(self, job_id: JobId, value: bytes) -> None:
        """End a dead-letter job as done, with a result as JSON.

        Raises: As `settle_dead`.
        """
        self._recorded("settle", job_id.hex(), lambda: settle_dead(self._queues, job_id, value))

    def reschedule(self, job_id: JobId, at_us: int) -> None:
        """Change when a waiting job is due.

        Raises: As `Queues.reschedule`.
        """
        self._recorded(
            f"reschedule to {instant_text(at_us)}",
            job_id.hex(),
            lambda: self._queues.reschedule(job_id, at_us),
        )

    def move_job(self, job_id: JobId, to: str) -> None:
        """Move a waiting job to another queue.

        Raises: As `QueueMoves` and `QueueMoves.move`.
        """
        moves = QueueMoves(self._queues, to)
        self._recorded(f"move to {moves.to}", job_id.hex(), lambda: moves.move(job_id))

    def pause_job(self, job_id: JobId) -> None:
        """Let no worker claim a waiting job until it is resumed.

        Raises: As `job_pauses.pause`.
        """
        self._recorded("pause", job_id.hex(), lambda: job_pauses.pause(self._queues, job_id))

    def resume_job(self, job_id: JobId) -> None:
        """Return a paused job to its place.

        Raises: As `job_pauses.resume`.
        """
        self._recorded("resume", job_id.hex(), lambda: job_pauses.resume(self._queues, job_id))

    def delete(self, job_id: JobId) -> None:
        """Delete a dead-letter job.

        Raises:
            NotFound: There is no such job.
            Conflict: It is not dead.
        """
        job = self._queues.find(job_id)
        row = job.row
        if row is None or row.outcome or row.state != State.DEAD:
            raise conflict_error(job_id, "deleted", job.status)
        self._recorded("delete", job_id.hex(), lambda: sum_of(delete_dead(self._queues, [row])))

    def run_again(self, job_id: JobId) -> JobId:
        """Enqueue the call of an ended job as a new job; return its id.

        Raises:
            NotFound: There is no such job.
            Conflict: Its arguments are not kept.
        """
        call = kept_call(self._queues.engine, job_id)
        if call is None:
            raise Conflict(
                f"The arguments of the job {job_id.hex()} are not kept.",
                hint=KEEP_ARGUMENTS,
            )
        (row,) = self._recorded(
            "run again", job_id.hex(), lambda: self._queues.enqueue(request_of(call))
        )
        return row.id

    def selected(self, what: str, ids: Sequence[JobId], *, to: str = "") -> BulkResult:
        """Change jobs that were selected one by one; jobs that cannot be changed so are left.

        Args:
            what: "retry", "cancel", "delete", "run again" or "move".
            ids: Their ids.
            to: The queue to which "move" moves them.

        Raises:
            BadInput: There is no such change.
        """
        changes: dict[str, Callable[[JobId], object]] = {
            "retry": self.retry,
            "cancel": self.cancel,
            "delete": self.delete,
            "run again": self.run_again,
            "move": lambda job_id: self.move_job(job_id, to),
        }
        if what not in changes:
            raise no_change(what)
        if what == "move":
            QueueMoves(self._queues, to)
        done = asked = 0
        for job_id in ids:
            with suppress(Conflict, NotFound, QuotaExceeded):
                is_asked = changes[what](job_id) is False
                asked, done = asked + is_asked, done + (not is_asked)
        return BulkResult(done=done, asked=asked, left=len(ids) - done - asked)

    def bulk(
        self, what: str, like: JobFilter, written: str, *, at_us: int = 0, limit: int = BULK_MAX
    ) -> BulkResult:
        """Change all jobs that match, up to a limit; a repeat continues after them.

        Args:
            what: "retry", "cancel", "reschedule" or "delete".
            like: Which jobs.
            written: The filter as it was written.
            at_us: The new due time of "reschedule".
            limit: Maximum number of jobs.

        Raises:
            BadInput: Jobs in this state cannot be changed so.
            Conflict: Another process runs the same change.
        """
        changes: dict[str, Change] = {
            "retry": partial(retry_all, self._queues),
            "cancel": partial(cancel_all, self._queues),
            "reschedule": lambda rows: reschedule_all(self._queues, rows, at_us),
            "delete": partial(delete_dead, self._queues),
        }
        if what not in changes:
            raise no_change(what)
        check_bulk(what, like)
        run = BulkRun(self._queues.engine, like, f"{what} {at_us or ''}")

        return self._recorded(
            f"{what} all",
            written or "all jobs",
            lambda: sum_of(run.run(changes[what], limit=limit)),
        )

    def move(self, like: JobFilter, written: str, to: str, *, limit: int = BULK_MAX) -> QueueMoves:
        """Move the waiting jobs of a queue that match to another one; a repeat continues.

        Args:
            like: Which jobs; it names their queue.
            written: The filter as it was written.
            to: The queue to move them to.
            limit: Maximum number of jobs.

        Returns:
            What was moved, and what was left.

        Raises:
            BadInput: The filter names no queue, the same queue, or a state of ended jobs.
            NotFound: A queue does not exist.
            Conflict: Another process runs the same change.
        """
        run, moves = move_run(self._queues, like, to)
        self._recorded(
            f"move to {to}", written, lambda: sum_of(run.run(moves.move_all, limit=limit))
        )
        return moves

    def preview_move(self, like: JobFilter, to: str) -> QueueMoves:
        """Count the jobs that `move` would move, and those that it would leave."""
        run, moves = move_run(self._queues, like, to)
        moves.preview(islice(run.matching(), BULK_MAX))
        return moves

    def paced_redrive(
        self, like: JobFilter, written: str, rate: float, *, count_max: int | None = None
    ) -> PacedRedrive:
        """Return a redrive at a rate, in jobs per second; `begin_redrive` comes next.

        Raises:
            Conflict: It runs already.
        """
        return PacedRedrive(
            self._queues, like, written, rate, self._actor.name, count_max=count_max
        )

    def begin_redrive(self, paced: PacedRedrive) -> None:
        """Record a redrive that the caller runs.

        Raises:
            Conflict: Another process has begun it.
        """
        redrive = paced.redrive
        self._recorded(f"redrive at {redrive.rate:g}/s", redrive.written or "all jobs", paced.begin)

    def stop_redrive(self, redrive: str) -> Redrive:
        """Stop a redrive; its process ends about a second later.

        Raises:
            NotFound: There is no such redrive.
        """
        engine = self._queues.engine
        return self._recorded("stop redrive", redrive, lambda: redrives.stop(engine, redrive))

    # Durable functions

    def signal(self, job_id: JobId, sent: Sending, tasks: Mapping[str, Handler]) -> None:
        """Send a signal to a durable function.

        Args:
            job_id: The function.
            sent: The signal; its value is JSON, as bytes.
            tasks: Tasks of which one may be the function.

        Raises: As `send_json`.
        """
        self._recorded(
            f"signal {sent.name}",
            job_id.hex(),
            lambda: send_json(self._queues, job_id, sent, tasks),
        )

    def reset(self, job_id: JobId, to: int | None) -> None:
        """Continue a durable function after a call; None: after the last one.

        Raises: As `generations.reset`.
        """
        self._recorded(
            _after_call("reset", to), job_id.hex(),
            lambda: generations.reset(self._queues, job_id, to),
        )  # fmt: skip

    def fork(self, job_id: JobId, to: int | None) -> JobId:
        """Begin a new durable function with the records of another one; return its id.

        Raises: As `generations.fork`.
        """
        return self._recorded(
            _after_call("fork", to), job_id.hex(),
            lambda: generations.fork(self._queues, job_id, to),
        )  # fmt: skip

    # Queues

    def pause(self, queue: str) -> None:
        """Pause a queue."""
        self._recorded("pause queue", queue, lambda: pauses.pause(self._queues.engine, queue))

    def resume(self, queue: str) -> None:
        """Resume a queue."""
        self._recorded("resume queue", queue, lambda: pauses.resume(self._queues.engine, queue))

    def configure(self, queue: str, **changes: Any) -> QueueSettings:  # noqa: ANN401
        """Change the settings of a queue.

        Raises: As `Catalog.configure`.
        """
        said = ", ".join(f"{name}={value}" for name, value in sorted(changes.items()))
        return self._recorded(
            f"set {said}", queue, lambda: self._queues.engine.catalog.configure(queue, **changes)
        )

    # Workers

    def ask_workers(self, kind: RequestKind, worker: str | None) -> tuple[str, Sequence[Presence]]:
        """Ask one live worker, by the first letters of its id, or all of them for None.

        Returns:
            The key under which they answer, and the workers.

        Raises:
            NotFound: No live worker has this id.
            BadInput: Several have it, or a worker is a program that claims by hand.
        """
        engine = self._queues.engine
        workers = worker_requests.chosen(live_workers(engine), worker)
        target = "all workers" if worker is None else workers[0].worker
        return self._recorded(
            f"{kind} worker", target, lambda: worker_requests.send(engine, kind, workers)
        ), workers

    # Streams

    def pause_stream(self, stream: str, *, group: str | None, shard: int | None) -> None:
        """Pause a consumer group, a shard, or a shard for one group.

        Raises: As `streams.pauses.pause`.
        """
        self._stream("pause stream", stream, group, shard, stream_pauses.pause)

    def resume_stream(self, stream: str, *, group: str | None, shard: int | None) -> None:
        """End such a pause.

        Raises: As `streams.pauses.resume`.
        """
        self._stream("resume stream", stream, group, shard, stream_pauses.resume)

    def forget_subscriber(self, name: str) -> None:
        """Remove a subscriber to topics, so that events that it has not read can expire.

        Raises: As `streams.groups.forget_subscriber`.
        """
        store = self._queues.engine.store
        self._recorded("forget subscriber", name, lambda: groups.forget_subscriber(store, name))

    def unpark(self, stream: str, group: str, name: str | None) -> int:
        """Have the events of a parked key handled again, or all; return the number of keys.

        Raises: As `streams.parked.unpark`.
        """
        engine = self._queues.engine
        target = f"{stream}/{group}: {name or 'all'}"
        return self._recorded(
            "unpark events", target, lambda: parked.unpark(engine, stream, group, name)
        )

    def _stream(
        self,
        what: str,
        stream: str,
        group: str | None,
        shard: int | None,
        change: Callable[..., object],
    ) -> None:
        target = f"{stream}: {StreamPause(group, shard).text}"
        engine = self._queues.engine
        self._recorded(what, target, lambda: change(engine, stream, group=group, shard=shard))

    # Schedules, limits, workflows

    def schedule(self, what: str, name: str) -> None:
        """Pause, resume or trigger a schedule."""
        change = {
            "pause": scheduler.pause,
            "resume": scheduler.resume,
            "trigger": scheduler.trigger,
        }[what]
        self._recorded(f"{what} schedule", name, lambda: change(self._queues, name))

    def set_capacity(self, name: str, capacity: int) -> None:
        """Set the capacity of a semaphore.

        Raises:
            BadInput: The name or the capacity is invalid.
        """
        check_limit(name, capacity)
        engine = self._queues.engine
        expect_kind(engine.store, name, is_rate=False)
        known = semaphore.settings(engine.store).get(name, Semaphore(capacity))
        most = max(known.most, capacity) if known.most else 0
        setting = replace(known, capacity=capacity, most=most)
        self._recorded(
            f"set capacity {capacity}",
            name,
            lambda: semaphore.define(engine.store, name, setting, ids=engine.ids),
        )

    def fork_workflow(self, flow: JobId, from_step: int) -> JobId:
        """Start a workflow with the results of another one, from a step on; return its id.

        Raises: As `workflow_control.fork`, and NotFound: the workflow does not exist.
        """
        view, kept = WorkflowView(self._queues.engine, flow), kept_step(self._queues.engine)
        return self._recorded(
            f"fork workflow from step {from_step}", flow.hex(),
            lambda: workflow_control.fork(self._queues, view, from_step, kept),
        )  # fmt: skip

    def batch(self, what: str, name: str, change: Callable[[Queues], T]) -> T:
        """Change the jobs of a batch: "retry" or "cancel"; `change` does it."""
        return self._recorded(f"{what} batch", name, lambda: change(self._queues))

    def workflow(self, what: str, flow: JobId) -> BulkResult:
        """Retry the dead steps of a workflow, or cancel its steps.

        Raises:
            NotFound: The workflow does not exist.
        """
        view = WorkflowView(self._queues.engine, flow)
        change = {"retry": workflow_control.retry, "cancel": workflow_control.cancel}[what]
        return self._recorded(
            f"{what} workflow", flow.hex(), lambda: change(self._queues, view, None)
        )


def _after_call(what: str, to: int | None) -> str:
    return f"{what} function" if to is None else f"{what} function after call {to}"


def check_bulk(change: str, like: JobFilter) -> None:
    """Check that jobs of this filter can be changed so.

    Raises:
        BadInput: They cannot.
    """
    if change not in ("retry", "cancel", "reschedule", "delete", "move"):
        raise no_change(change)
    if change in targets(like):
        return
    if change == "move":
        if like.queue is None:
            raise BadInput("The filter names no queue to move from.", hint="Use queue:NAME.")
        raise BadInput(f"Jobs in state {like.state} cannot be moved.", hint="Choose another.")
    if like.state in IN_HISTORY:
        raise BadInput(f"Jobs in state {like.state} cannot be changed.", hint="Choose another.")
    if like.state == "dead":
        raise BadInput("Dead-letter jobs can be retried or deleted.", hint="Choose retry.")
    if change == "delete":
        raise BadInput("Only dead-letter jobs can be deleted.", hint="Choose cancel.")


def move_run(queues: Queues, like: JobFilter, to: str) -> tuple[BulkRun, QueueMoves]:
    """Return the bulk run that moves the jobs of a filter to a queue, and what moves them.

    Raises: As `Operations.move`.
    """
    check_bulk("move", like)
    moves = QueueMoves(queues, to, like.queue)
    return BulkRun(queues.engine, like, f"move {to}"), moves


def no_change(what: str) -> BadInput:
    """Return the error of a change that does not exist."""
    return BadInput(f"{what!r:.80} is not a change of jobs.")


def targets(like: JobFilter) -> Sequence[str]:
    """Return the changes that are possible for jobs of this filter.

    Expired jobs that no worker has ended yet can be cancelled.
    """
    if like.state == "expired":
        return ("cancel",)
    if like.state in IN_HISTORY:
        return ()
    words = {"dead": ("retry", "delete"), "running": ("cancel",), "paused": ("cancel", "move")}
    changes = words.get(like.state or "", ("retry", "cancel", "reschedule", "move"))
    return changes if like.queue is not None else [what for what in changes if what != "move"]
