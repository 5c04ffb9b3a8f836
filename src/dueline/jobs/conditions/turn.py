"""The turn of a ready job: the jobs before it, and the slots of workers."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import Presence
from dueline.core.deadlines import deadline_of
from dueline.core.job import Job, State
from dueline.core.lane import limits_of
from dueline.core.retry import CRASHES_MAX
from dueline.jobs.claim_order import Ahead, jobs_before
from dueline.jobs.claims import claims_of
from dueline.jobs.conditions.held import start_us
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, when

CLAIMS_MAX: Final = 10_000
"""Maximum number of claimed jobs that are counted."""


class Turn(NamedTuple):
    """The turn of a ready job.

    Attributes:
        condition: What it says.
        is_next: The job comes first, and a slot is free: nothing must change.
    """

    condition: Condition
    is_next: bool


def turn_of(subject: Subject) -> Turn:
    """Return the turn of a ready job among those that the able workers claim."""
    job, engine, queue = subject.job, subject.engine, subject.queue
    ahead = min(
        (
            jobs_before(engine, job, names, subject.now_us, tasks)
            for names, tasks in {(worker.queues, worker.known) for worker in subject.able}
        ),
        key=lambda each: each.jobs,
    )
    workers = [worker for worker in subject.serving if worker.is_claiming]
    load = _load(subject, workers)
    own = [worker.own[queue][0] for worker in workers if queue in worker.own]
    position = ahead.by_queue.get(queue, 0) + 1
    facts: Facts = {
        "queue": queue,
        "position": position,
        "position_is_at_least": ahead.is_capped,
        "before_in_other_queues": ahead.jobs + 1 - position,
        "workers": len(workers),
        "held": sum(load.held.values()),
        "slots": sum(worker.slots for worker in workers),
        "crashes": job.crashes,
    }
    if own:
        facts = {**facts, "own_slots": sum(own), "own_taken": load.taken(workers, queue)}
    is_full = all(load.is_full(worker, queue) for worker in subject.able)
    share = f" of which the queue may take {sum(own)}" if own else ""
    clause = (
        f"it is at position {_position_text(queue, position, ahead)}; live workers: "
        f"{len(workers)}, jobs that they hold: {facts['held']}, slots: {facts['slots']}{share}"
        f"{', none free' if is_full else ''}"
    )
    if ahead.first is not None:
        first, shared = ahead.first, sorted({*limits_of(job.lane)} & {*limits_of(ahead.first.lane)})
        same = f", which has the limit {shared[0]} too" if shared else ""
        clause += f"; first is the job {first.id.hex()} ({_priority_text(first)}){same}"
        facts = {**facts, "first": first.id.hex(), "more_urgent": ahead.more_urgent}
    unknown = "when workers have free slots" if is_full else ""
    condition = Condition("waiting", job.id.hex(), clause, "work", unknown=unknown, facts=facts)
    return Turn(condition, is_next=not (ahead.jobs or ahead.is_capped or is_full))


def _priority_text(job: Job) -> str:
    deadline_us = deadline_of(job.lane.priority)
    return f"priority {job.lane.priority}" if deadline_us is None else "an earlier deadline"


def deadline_text(subject: Subject) -> str:
    """Return a job's deadline in words; empty if it has none."""
    deadline_us = deadline_of(subject.job.lane.priority)
    if deadline_us is None:
        return ""
    at = when(deadline_us, subject.now_us)
    if deadline_us > subject.now_us:
        return f"Its deadline is {at}."
    return f"Its deadline has passed, at {at}: a deadline only orders jobs, and it still runs."


def suspect(subject: Subject) -> Condition:
    """Return that a job runs alone because a worker died while it ran."""
    job = subject.job
    return Condition(
        "suspect",
        job.id.hex(),
        f"a worker died while it ran (crash {job.crashes}, dead at {CRASHES_MAX}), so it runs "
        "only when a worker runs nothing else",
        "work",
        unknown="when a worker runs nothing else",
        facts={"crashes": job.crashes},
    )


def _position_text(queue: str, position: int, ahead: Ahead) -> str:
    """Return the position of a job in the claim order, as text."""
    least = "or later " if ahead.is_capped else ""
    turns = ", where others take turns" if ahead.has_turns else ""
    others = [f"{name}: {count}" for name, count in ahead.by_queue.items() if name != queue]
    before = f", behind jobs of other queues that share its slots ({', '.join(others)})"
    return f"{position} {least}of the queue {queue}{turns}{before if others else ''}"


class _Load(NamedTuple):
    """What workers hold. held: jobs, by worker. slots: taken ones, by worker and queue."""

    held: Counter[str]
    slots: Counter[tuple[str, str]]

    def taken(self, workers: Sequence[Presence], queue: str) -> int:
        """Return how many slots jobs of a queue take."""
        return sum(self.slots[worker.worker, queue] for worker in workers)

    def is_full(self, worker: Presence, queue: str) -> bool:
        """Return whether a worker has no slot for another job of a queue.

        Programs that claim by hand have no slots, and take as many jobs as they ask for.
        """
        if not worker.slots:
            return False
        if queue in worker.own and self.slots[worker.worker, queue] >= worker.own[queue][0]:
            return True
        return sum(self.slots[worker.worker, name] for name in worker.queues) >= worker.slots


def _load(subject: Subject, workers: Sequence[Presence]) -> _Load:
    """Count what workers hold, by the rows: their own reports are some seconds old.

    A prefetched job takes no slot yet, and a batch takes one.
    """
    by_name = {worker.worker: worker for worker in workers}
    names = sorted(set(chain.from_iterable(worker.queues for worker in workers)))
    load = _Load(Counter(), Counter())
    batches: Counter[tuple[str, str, str]] = Counter()
    for job in claims_of(subject.engine, names, CLAIMS_MAX):
        worker, queue = by_name.get(job.worker), job.lane.queue
        if worker is None or start_us(subject.engine, job) > subject.now_us:
            continue
        load.held[worker.worker] += 1
        if job.task not in worker.batches:
            load.slots[worker.worker, queue] += 1
        elif job.state == State.STARTED:
            batches[worker.worker, queue, job.task] += 1
    for (name, queue, task), count in batches.items():
        load.slots[name, queue] += -(-count // by_name[name].batches[task][0])
    return load
