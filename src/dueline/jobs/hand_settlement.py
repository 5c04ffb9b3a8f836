"""Ends dead-letter jobs with a result that an operator knows."""

from dueline.core.attempt import Outcome
from dueline.core.call_options import durable_place
from dueline.core.features import SECTIONS
from dueline.core.job import JobId, State
from dueline.core.lane import living_queue
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.group_cancellation import advance
from dueline.jobs.history import happened
from dueline.jobs.moves import conflict_error
from dueline.jobs.queue import Queues
from dueline.tasks import sections
from dueline.workflows.records import Layouts


def settle_dead(queues: Queues, job_id: JobId, value: bytes) -> None:
    """End a dead-letter job as done, with a result; what waits for it goes on.

    Args:
        queues: The queues.
        job_id: The job.
        value: The result as JSON.

    Raises:
        NotFound: There is no such job.
        Conflict: It is not dead, or is a durable function; nothing was changed.
    """
    engine = queues.engine
    queues.complete_stored(job_id)
    current = queues.find(job_id)
    row = current.row
    if row is None or row.state != State.DEAD:
        raise conflict_error(job_id, "settled", current.status)
    if durable_place(row) is not None:
        raise conflict_error(job_id, "settled", "a dead durable function")
    settings = engine.catalog.expect_here(living_queue(row.lane.queue))
    outcome = Outcome("done", engine.time.latest_us(), value=value.decode())
    attempt = happened(row, outcome.state, outcome.ended_us, error=queues.did("settled"))
    end = finish_of(row, outcome, attempt, settings)
    if not finish(engine.store, [Finished(row, end)])[0]:
        raise conflict_error(job_id, "settled", "changing")
    if engine.catalog.features.has(SECTIONS):
        sections.withdraw(engine.store, [row])
    advance(engine, Layouts(), [row])
