"""Expire workflows that ended long ago."""

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.core.maintenance import StepResult
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, Layout

EVERY_US = 3600 * SECOND_US

KEEP_US = 7 * DAY_US
"""How long after its last step a workflow can be inspected, and its dead steps retried."""

FLOWS_A_STEP = 20
PAGES_A_STEP = 100


def expire_workflows(engine: Engine, after: str | None) -> StepResult:
    """Delete some expired workflows; the next step continues within a large one."""
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
    """Return whether a workflow ended before a timestamp, and none of its jobs is needed.

    The last steps are checked first, since they are the ones that wait.
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
    """Return whether no step waits for a dead job: its workflow continues without it."""
    return row.state == State.DEAD and not row.outcome and layout.nodes[step].is_lenient
