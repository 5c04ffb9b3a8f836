"""Let go of workflows that ended long ago."""

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.core.maintenance import StepResult
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, Layout

EVERY_US = 3600 * SECOND_US

KEEP_US = 7 * DAY_US
"""So long after the end of its last step a workflow can be looked at, and its dead retried."""

FLOWS_A_STEP = 20
PAGES_A_STEP = 100


def expire_workflows(engine: Engine, after: str | None) -> StepResult:
    """Let go of some workflows that are over; of a large one the next step goes on."""
    before_us = engine.time.earliest_us() - KEEP_US
    acts, pages = 0, 0
    after = after or ""  # before all places, and not None: a step may end in the first workflow
    listed = records.started_before(engine.store, before_us, after=after)
    for looked_at, (place, flow) in enumerate(listed):
        if looked_at == FLOWS_A_STEP:
            return StepResult(acts, after)
        layout = records.read(engine.store, flow)
        if layout is None or _is_over(engine, flow, layout, before_us):
            for _ in records.forget(engine.store, flow, layout):
                pages += 1
                if pages == PAGES_A_STEP:
                    return StepResult(acts, after)
            acts += 1
        after = place
    return StepResult(acts)


def _is_over(engine: Engine, flow: JobId, layout: Layout, before_us: int) -> bool:
    """Tell whether a workflow ended before an instant, and no job of it is of use.

    The last steps come first: they are those that wait.
    """
    for block in reversed(layout.blocks()):
        ends = records.ends(engine.store, flow, [block], with_values=False)
        if any(end.ended_us >= before_us for end in ends.values()):
            return False
        steps = range(block * BLOCK, min(len(layout.nodes), (block + 1) * BLOCK))
        left = [step for step in steps if step not in ends or not ends[step].is_final]
        rows = engine.store.find([records.job_of(flow, step) for step in left]) if left else ()
        for step, row in zip(left, rows, strict=True):
            if row is not None and not _is_seen_to(layout, step, row):
                return False
    return True


def _is_seen_to(layout: Layout, step: int, row: Job) -> bool:
    """Tell whether a dead job is one that nobody waits for: its workflow goes on without it."""
    return row.state == State.DEAD and not row.outcome and layout.nodes[step].is_lenient
