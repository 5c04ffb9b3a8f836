"""Starts, cancels and retries workflows."""

from typing import TYPE_CHECKING, Final

from dueline.core.errors import Duplicate, EnqueueUnknown
from dueline.core.job import JobId
from dueline.jobs import dependencies
from dueline.jobs.bulk import BulkResult, cancel_all, retry_all
from dueline.jobs.queue import Queues
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, Layout
from dueline.workflows.records import flow_with
from dueline.workflows.workflow import Start, WorkflowView, send, withdraw

if TYPE_CHECKING:
    from dueline.workflows.forking import Kept

_PAGE: Final = 500


def start(queues: Queues, start: Start, *, again: bool = False) -> JobId:
    """Store a workflow; return its id, or that of the one that has its unique key.

    One with a key is stored without the two steps of the key: the one that starts it, and the one
    that holds the key. These are inserted with the key (rule B4).

    Args:
        queues: The queues.
        start: The workflow.
        again: It may be stored already, and some steps may have ended.

    Raises:
        Duplicate: Another workflow has the key; nothing was stored.
        EnqueueUnknown: It may or may not be stored; start it again.
        StoreUnavailable: Nothing was written.
    """
    engine = queues.engine
    if not start.layout.key:
        send(engine, start, again=again)
        return start.flow
    *others, _, holder = start.jobs
    if not again and (other := queues.unique.given_instead(holder)) is not None:
        return flow_with(other)
    rest = start._replace(jobs=others)
    send(engine, rest, again=again)
    try:
        placed = queues.unique.place(holder, again=again)
    except Duplicate:
        withdraw(engine, rest)
        raise
    if placed.id != holder.id:
        withdraw(engine, rest)
    engine.announce([holder])
    return flow_with(placed)


def fork(queues: Queues, look: WorkflowView, from_step: int, kept: "Kept") -> JobId:
    """Start a workflow with the results of another one, from a step on; return its id.

    Args:
        queues: The queues.
        look: The other workflow.
        from_step: The first step that runs anew.
        kept: Returns calls of steps that have ended; see `Kept`.

    Raises: As `forking.fork` and `start`.
    """
    from dueline.workflows import forking  # noqa: PLC0415  (used by few)

    engine = queues.engine
    begun = forking.fork(engine, look, from_step, kept, queues.admission.admit)
    placed = dependencies.placed(engine, begun.jobs, is_inside=queues.is_inside)
    begun = begun._replace(jobs=placed)
    try:
        return start(queues, begun)
    except EnqueueUnknown as error:
        error.start = begun
        raise


def cancel(queues: Queues, look: WorkflowView, step: int | None = None) -> BulkResult:
    """End the waiting steps of a branch, and request the end of running ones."""
    total = BulkResult()
    for changed in cancel_all(queues, look.rows(reversed(look.branch(step)))):
        total = total.plus(changed)
    return total


def cancel_group(queues: Queues, flow: JobId, layout: Layout, step: int) -> None:
    """End the live steps of a group; `step` gathers the group (rule W8)."""
    steps = range(layout.nodes[step].cancels_from, step)
    blocks = {step // BLOCK for step in steps}
    ends = records.ends(queues.engine.store, flow, blocks, with_values=False)
    left = [step for step in steps if step not in ends]
    for begin in range(0, len(left), _PAGE):
        ids = [records.job_of(flow, step) for step in left[begin : begin + _PAGE]]
        for _ in cancel_all(
            queues, [row for row in queues.engine.store.find(ids) if row is not None]
        ):
            pass


def retry(queues: Queues, look: WorkflowView, step: int | None = None) -> BulkResult:
    """Run the dead steps of a branch again; the steps that wait for them continue then."""
    dead = [step for step, end in look.ends().items() if not end.is_final]
    branch = set(look.branch(step))
    total = BulkResult()
    for changed in retry_all(queues, look.rows(step for step in dead if step in branch)):
        total = total.plus(changed)
    return total
