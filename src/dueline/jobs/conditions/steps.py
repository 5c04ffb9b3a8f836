"""What a step of a workflow waits for."""

from typing import NamedTuple

from dueline.core.errors import NotFound, StoreCorrupt
from dueline.core.job import JobId
from dueline.jobs.conditions.dependencies import wait_for_others
from dueline.jobs.conditions.orders import wait_for_turn
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Explanation, Facts, line, when
from dueline.workflows import records
from dueline.workflows.graph import Layout
from dueline.workflows.readiness import Broken, Failure, Held, NotNeeded, Runnable, Waits
from dueline.workflows.records import Layouts
from dueline.workflows.release import ask, is_parked
from dueline.workflows.status import missing, named, readiness_of, step_statuses
from dueline.workflows.workflow import WorkflowView


class StepWait(NamedTuple):
    """What the workflow of a step says of it.

    Attributes:
        ends: How the step ends without being run; None if it will run.
        condition: What it waits for; None if it waits for nothing.
        is_ready: It is parked although all steps that it needs have ended.
    """

    ends: Explanation | None = None
    condition: Condition | None = None
    is_ready: bool = False


def step_wait(subject: Subject) -> StepWait:
    """Return what others say of a job, as the worker that claims it would decide.

    These are the jobs that it waits for, those before it in its order, then its workflow.
    """
    job = subject.job
    others = wait_for_others(subject)
    if isinstance(others, Explanation):
        return StepWait(others)
    if others is not None:
        return StepWait(condition=others)
    if (turn := wait_for_turn(subject)) is not None:
        return StepWait(condition=turn)
    step_of = records.step_of(job)
    if step_of is None:
        return StepWait()
    flow, step = step_of
    try:
        view = WorkflowView(subject.engine, flow)
    except NotFound as error:
        return (
            StepWait(_of_no_workflow(error)) if not job.task or _may_wait(subject) else StepWait()
        )
    if step >= len(view.layout.nodes):
        return StepWait()
    try:
        return _wait_in(subject, view, step)
    except StoreCorrupt as error:
        reads = f"the outcomes of the workflow {flow.hex()} cannot be read: {error.message}"
        command = "dueline doctor"
        clause = f"{reads} (`{command}`)"
        return StepWait(condition=Condition("steps", flow.hex(), clause, "operator", 0, command))


def _may_wait(subject: Subject) -> bool:
    place = records.place_of(subject.job)
    return place is not None and place.parked_us > 0


def _of_no_workflow(error: NotFound) -> Explanation:
    return Explanation(
        "steps",
        f"It is a step of an unknown workflow. {error.message} The next worker that claims it "
        "moves it to the dead-letter list.",
        ends_as="dead",
    )


def _wait_in(subject: Subject, view: WorkflowView, step: int) -> StepWait:
    cancelled = _cancelled_by(subject, view, step)
    if cancelled is not None:
        return StepWait(_of_cancelled_group(view, cancelled))
    if subject.job.task and not _may_wait(subject):
        return StepWait()  # a worker that claims it does not ask either
    word = ask(subject.engine, Layouts(), subject.job)
    if isinstance(word, NotNeeded):
        return StepWait(_not_needed(view, word))
    if isinstance(word, Held):
        return StepWait(condition=_held(view, word))
    if isinstance(word, Broken):
        return StepWait(condition=_broken(view, word))
    if isinstance(word, Waits):
        return StepWait(condition=_waiting(subject, view, step, word))
    if not isinstance(word, Runnable):
        return StepWait()
    condition = _signal(subject, view.layout, view.flow, step)
    return StepWait(condition=condition, is_ready=condition is None and is_parked(subject.job))


def _cancelled_by(subject: Subject, view: WorkflowView, step: int) -> Failure | None:
    """Return the failed part of a group that is cancelled, if a step is in such a group."""
    for span in view.layout.cancelled_spans:
        if step in span:
            word = readiness_of(subject.engine, view, span.stop)
            if isinstance(word, Broken):
                return word.failure
    return None


def _of_cancelled_group(view: WorkflowView, failure: Failure) -> Explanation:
    first = named(view.layout, failure.step)
    return Explanation(
        "never",
        f"It will be cancelled without a run: {first} of the workflow {view.flow.hex()} failed "
        f"({line(failure.end.error) or failure.end.state}), and its group is cancelled when a part "
        "fails.",
        {"failed_step": failure.step},
        ends_as="cancelled",
    )


def _not_needed(view: WorkflowView, word: NotNeeded) -> Explanation:
    return Explanation(
        "never",
        f"It will never run: {line(word.why)}. It is a step of the workflow {view.flow.hex()}; the "
        "next worker that claims it records that it is cancelled.",
        ends_as="cancelled",
    )


def _held(view: WorkflowView, word: Held) -> Condition:
    first, end = word.failure
    flow = view.flow.hex()
    command = f"dueline flows retry {flow}"
    return Condition(
        "held",
        named(view.layout, first),
        f"it is held by {named(view.layout, first)} of the workflow {flow}, which is dead because "
        f"of {line(end.error)}, until that is retried (`{command}`)",
        "operator",
        command=command,
        facts={"dead_step": first, "error": end.error},
    )


def _broken(view: WorkflowView, word: Broken) -> Condition:
    step = word.failure.step
    return Condition(
        "steps",
        named(view.layout, step),
        "it waits until the other steps of its group have ended, which are cancelled since "
        f"{named(view.layout, step)} of the workflow {view.flow.hex()} failed",
        "work",
        facts={"failed_step": step},
    )


def _waiting(subject: Subject, view: WorkflowView, step: int, word: Waits) -> Condition:
    first = step_statuses(subject.engine, view, [word.first])[0]
    node = view.layout.nodes[step]
    facts: Facts = {
        "steps_left": word.steps,
        "first_step": word.first,
        "first_task": view.layout.title(word.first),
        "first_state": first.state,
    }
    said = missing(view.layout, step, word)
    only = ""
    if node.undoes:
        only = f"; it undoes {named(view.layout, node.undoes[0])}, and runs only if a step fails"
    elif node.unless is not None:
        only = "; it runs only if a step fails"
    job_id = records.job_of(view.flow, word.first).hex()
    return Condition(
        "steps",
        named(view.layout, word.first),
        f"it waits for {said}, which is {first.state}, of the workflow {view.flow.hex()}{only}",
        "work",
        command=f"dueline jobs explain {job_id}",
        unknown=f"when {named(view.layout, word.first)} ends",
        facts=facts,
    )


def _signal(subject: Subject, layout: Layout, flow: JobId, step: int) -> Condition | None:
    """Return the signal that a step waits for; None if it waits for none, or it was sent."""
    name = layout.nodes[step].signal
    place = records.place_of(subject.job)
    if not name or place is None or records.signalled(subject.engine.store, flow, name) is not None:
        return None
    facts: Facts = {"signal": name}
    until = ""
    if place.until_us:
        facts = {**facts, "until_us": place.until_us}
        until = f" until {when(place.until_us, subject.now_us)}"
    command = f"dueline flows signal {flow.hex()} {name}"
    return Condition(
        "signal", name, f"it waits for the signal {name}{until} (`{command}`)", "operator",
        at_us=0, command=command, facts=facts,
    )  # fmt: skip
