"""What a step of a workflow waits for."""

from dataclasses import replace

from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.job import Job
from dueline.jobs.explanation import Explanation, Facts, line, when
from dueline.workflows import records as recipe
from dueline.workflows.graph import Layout
from dueline.workflows.readiness import Broken, Fit, Held, Waits
from dueline.workflows.release import is_parked
from dueline.workflows.status import missing, named, stands, word_on
from dueline.workflows.workflow import Look


def as_step(job: Job, explanation: Explanation) -> Explanation:
    """Add of which workflow a job is, if it is of one."""
    found = recipe.step_of(job)
    if found is None:
        return explanation
    flow, step = found[0].hex(), found[1]
    facts = {"flow": flow, "step": step, **explanation.facts}
    said = explanation.sentence
    if flow not in said:
        said = f"{said} It is step {step} of the workflow {flow}."
    return replace(explanation, sentence=said, facts=facts)


def parked(engine: Engine, job: Job, now_us: int) -> Explanation | None:
    """Say what a step waits for; None: for nothing that its workflow knows of.

    One that needs nothing does not ask its workflow.
    """
    found, place = recipe.step_of(job), recipe.place_of(job)
    if found is None or place is None or (job.task and not place.parked_us):
        return None
    flow, step = found
    try:
        look = Look(engine, flow)
    except NotFound as error:
        return Explanation(
            "steps",
            f"It is a step of a workflow of which nothing is known. {error.message} The next "
            "worker that comes to it puts it to the dead.",
        )
    word = word_on(engine, look, step)
    of = f"of the workflow {flow.hex()}"
    if isinstance(word, Waits):
        return _waiting(engine, look, step, word)
    if isinstance(word, Held):
        first, end = word.failure
        return Explanation(
            "held",
            f"It is held by {named(look.layout, first)} {of}, which is dead because of "
            f"{line(end.error)}, until that is retried (`dueline flows retry {flow.hex()}`).",
            {"dead_step": first, "error": end.error},
        )
    if isinstance(word, Broken):
        return Explanation(
            "steps",
            f"It waits until the other steps of its group have ended, which are cancelled since "
            f"{named(look.layout, word.failure.step)} {of} failed.",
            {"failed_step": word.failure.step},
        )
    if not isinstance(word, Fit) or not is_parked(job):
        return None
    return _for_signal(look.layout, job, place.until_us, now_us) or Explanation(
        "steps",
        f"All steps {of} that it needs have ended; it goes on as soon as a worker says so, or at "
        f"{when(job.at_us, now_us)}, when it looks for itself.",
        {"at_us": job.at_us},
    )


def _waiting(engine: Engine, look: Look, step: int, word: Waits) -> Explanation:
    first = stands(engine, look, [word.first])[0]
    facts: Facts = {
        "steps_left": word.steps,
        "first_step": word.first,
        "first_task": look.layout.nodes[word.first].title,
        "first_state": first.state,
    }
    said = missing(look.layout, step, word)
    return Explanation(
        "steps",
        f"It waits for {said}, which is {first.state}, of the workflow {look.flow.hex()}.",
        facts,
    )


def _for_signal(layout: Layout, job: Job, until_us: int, now_us: int) -> Explanation | None:
    found = recipe.step_of(job)
    assert found is not None
    flow, step = found[0].hex(), found[1]
    name = layout.nodes[step].signal
    if not name:
        return None
    facts: Facts = {"signal": name}
    until = ""
    if until_us:
        facts = {**facts, "until_us": until_us}
        until = f" until {when(until_us, now_us)}"
    return Explanation(
        "signal",
        f"It waits for the signal {name}{until} (`dueline flows signal {flow} {name}`).",
        facts,
    )
