"""The status of the steps of a workflow."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dueline.core.engine import Engine
from dueline.core.job import Job, State
from dueline.core.job_status import status_of
from dueline.workflows import records
from dueline.workflows.graph import Layout
from dueline.workflows.readiness import Broken, End, Held, Readiness, Runnable, Waits, judge, reason
from dueline.workflows.workflow import WorkflowView


class StepStatus(NamedTuple):
    """The status of a step.

    state: its outcome, or the state of its job; or "waiting" for other steps or a signal, or "held"
    by a dead step; "unknown" if nothing is stored, as while a workflow is being stored. at_us: when
    it ended, was claimed, or is due; 0 if that means nothing. why: what it waits for, or why it
    failed. errors: number of failed attempts.
    """

    step: int
    state: str
    at_us: int = 0
    why: str = ""
    errors: int = 0


def step_statuses(
    engine: Engine, view: WorkflowView, steps: Iterable[int] | None = None
) -> list[StepStatus]:
    """Return the status of steps, in order; None: of all."""
    chosen = list(range(view.layout.size) if steps is None else steps)
    ends = view.ends()
    left = [step for step in chosen if step not in ends or not ends[step].is_final]
    rows: dict[int, Job] = {}
    for row in view.rows(left):
        place = records.place_of(row)
        if place is not None:
            rows[place.number] = row
    now_us = engine.time.latest_us()
    ends = {  # read once more: a step that ended in between has no row
        step: end
        for step, end in view.ends().items()
        if end.is_final or not _is_living(rows.get(step), now_us)
    }
    statuses = []
    for step in chosen:
        end = ends.get(step)
        if end is not None:
            statuses.append(StepStatus(step, end.state, end.ended_us, end.error))
        else:
            statuses.append(_stand(view.layout, step, ends, rows.get(step), now_us))
    return statuses


def _is_living(row: Job | None, now_us: int) -> bool:
    """Return whether a row is of a job that is not dead, or is retried."""
    return row is not None and status_of(row, now_us) != "dead"


def _stand(
    layout: Layout, step: int, ends: Mapping[int, End], row: Job | None, now_us: int
) -> StepStatus:
    if row is None:
        return StepStatus(step, "unknown")
    state = status_of(row, now_us)
    running = StepStatus(step, "running", row.claimed_us, errors=row.errors)
    if state == "running" and row.state == State.STARTED:
        return running
    word = judge(layout, step, ends)
    node = layout.nodes[step]
    if isinstance(word, Held):
        return StepStatus(step, "held", why=reason(layout, word.failure))
    if isinstance(word, Waits):
        return StepStatus(step, "waiting", why=f"for {missing(layout, step, word)}")
    if isinstance(word, Broken):
        why = f"until the others are cancelled: {reason(layout, word.failure)}"
        return StepStatus(step, "waiting", why=why)
    if isinstance(word, Runnable) and node.signal:
        return StepStatus(step, "waiting", why=f"for the signal {node.signal}")
    if state == "running":
        return running
    return StepStatus(step, state, row.at_us, row.error, row.errors)


def held_state(engine: Engine, view: WorkflowView, step: int) -> str:
    """Return "held" or "waiting" for a parked step; empty if its workflow does not hold it."""
    word = readiness_of(engine, view, step)
    if isinstance(word, Held):
        return "held"
    has_signal = isinstance(word, Runnable) and bool(view.layout.nodes[step].signal)
    return "waiting" if has_signal or isinstance(word, Waits | Broken) else ""


def missing(layout: Layout, step: int, word: Waits) -> str:
    """Describe which steps a step waits for."""
    first = named(layout, word.first)
    needs = len(set(layout.nodes[step].needs()))
    if needs == 1:
        return first
    return f"{word.steps} of {needs} steps, the first is {first}"


def named(layout: Layout, step: int) -> str:
    """Return the name of a step: its number and title."""
    return f"step {step} ({layout.title(step)})"


def readiness_of(engine: Engine, view: WorkflowView, step: int) -> Readiness:
    """Return whether a step may run, as a worker would decide."""
    needs = view.layout.needs_by_block(step)
    return judge(view.layout, step, records.ends(engine.store, view.flow, needs))
