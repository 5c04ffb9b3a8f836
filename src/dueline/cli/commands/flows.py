"""`dueline flows`: show and change workflows."""

import json
from itertools import islice
from typing import Annotated

import typer

from dueline.admin.id_prefixes import find_flow, is_prefix
from dueline.api.job_handle import parse_id
from dueline.cli.options import LIMIT, DryRunOption, LimitOption, argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Raw, Span, Value, note
from dueline.cli.session import session_of
from dueline.cli.workflow_tree import COLUMNS as STEP_COLUMNS
from dueline.cli.workflow_tree import drawn, entry
from dueline.core.codec import encode_result
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.jobs import workflow_control
from dueline.jobs.queue import Queues
from dueline.workflows import records
from dueline.workflows import workflow as engine
from dueline.workflows.readiness import Failure
from dueline.workflows.status import StepStatus, step_statuses
from dueline.workflows.workflow import WorkflowView

COLUMNS = ("id", "name", "state", "steps", "left", "started")

flows = typer.Typer(help="Show and change workflows.")

FlowArgument = Annotated[str, argument("ID", "Id of the workflow.")]
StepOption = Annotated[int | None, option("N", "Only this step and the steps after it.", "--step")]


@flows.command("list")
def list_flows(context: typer.Context, *, limit: LimitOption = LIMIT) -> None:
    """List workflows, the newest first.

    Example: dueline flows list --limit 10
    """
    with session_of(context).queues() as queues:
        listed = records.listed(queues.engine.store)
        found = [_look(queues, flow) for flow, _ in islice(listed, limit)]
        shown = [_entry(look) for look in found if look is not None]
        more = next(listed, None) is not None
        Output.of(context, queues.engine).entries(shown, COLUMNS, count=len(shown), more=more)
    if more:
        note(f"Only {len(shown)} are shown; raise --limit to see more.")
    elif not shown:
        note("No workflows. Start one with app.start(...).")


@flows.command()
def show(
    context: typer.Context,
    flow: FlowArgument,
    *,
    whole: Annotated[bool, typer.Option("--all", help="Show every step on its own line.")] = False,
) -> None:
    """Show a workflow as a tree with the states of its steps.

    Similar parallel steps share one line; JSON has one entry per step.

    Example: dueline flows show 0196f2...
    """
    with session_of(context).queues() as queues:
        look = _view(queues, flow)
        every = step_statuses(queues.engine, look)
        output = Output.of(context, queues.engine)
        shown = {**_entry(look), **_more(look, every)}
        if session_of(context).form == "table":
            lines = list(drawn(look.layout, every, whole=whole))
            output.entry(shown, parts=[Part("steps", lines, STEP_COLUMNS)])
        else:
            nodes = look.layout.nodes
            needs = (sorted(set(node.needs())) for node in nodes)
            ids = (records.job_of(look.flow, number).hex() for number in range(len(nodes)))
            steps = [
                {**entry(look.layout, one), "needs": need, "job": job}
                for one, need, job in zip(every, needs, ids, strict=True)
            ]
            output.data({**shown, "count": shown["steps"], "steps": steps})


@flows.command()
def cancel(
    context: typer.Context,
    flow: FlowArgument,
    *,
    step: StepOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Cancel waiting steps and ask running steps to stop.

    Example: dueline flows cancel 0196f2... --step 3
    """
    with session_of(context).queues() as queues:
        look = _view(queues, flow)
        ends = look.ends()
        living = sum(number not in ends for number in look.branch(step))
        shown: dict[str, Value] = {"id": look.flow.hex(), "matching": living}
        if not dry_run:
            changed = workflow_control.cancel(queues, look, step)
            shown |= {"cancelled": changed.done, "asked_to_stop": changed.asked}
        Output.of(context, queues.engine).entry({**shown, "dry_run": dry_run})


@flows.command()
def retry(
    context: typer.Context,
    flow: FlowArgument,
    *,
    step: StepOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Retry dead-letter steps; steps that wait for them then continue.

    Example: dueline flows retry 0196f2...
    """
    with session_of(context).queues() as queues:
        look = _view(queues, flow)
        branch = set(look.branch(step))
        dead = sum(
            status.state == "dead"
            for status in step_statuses(queues.engine, look)
            if status.step in branch
        )
        shown: dict[str, Value] = {"id": look.flow.hex(), "matching": dead}
        if not dry_run:
            shown["retried"] = workflow_control.retry(queues, look, step).done
        Output.of(context, queues.engine).entry({**shown, "dry_run": dry_run})


@flows.command()
def signal(
    context: typer.Context,
    flow: FlowArgument,
    name: Annotated[str, argument("NAME", "Name of the signal.")],
    *,
    value: Annotated[str, option("JSON", "Value of the signal.")] = "null",
) -> None:
    """Send a signal to waiting steps.

    A second signal of the same name is rejected.

    Example: dueline flows signal 0196f2... approved --value '{"by": "ann"}'
    """
    try:
        read = json.loads(value)
    except RecursionError as error:
        raise BadInput(f"{value!r:.80} is nested too deeply.") from error
    except ValueError as error:
        raise BadInput(
            f"{value!r:.80} is not JSON: {error}.", hint="""Quote strings: --value '"yes"'."""
        ) from error
    written = encode_result(read, f"the signal {name:.80}")
    with session_of(context).queues() as queues:
        look = _view(queues, flow)
        engine.signal(queues.engine, look, name, written)
        shown: Entry = {"id": look.flow.hex(), "signal": name, "value": Raw(written.decode())}
        Output.of(context, queues.engine).entry(shown)


def _view(queues: Queues, text: str) -> WorkflowView:
    """Return the workflow of an argument, which may be the first digits of an id."""
    flow = find_flow(queues.engine, text) if is_prefix(text) else parse_id(text)
    return WorkflowView(queues.engine, flow)


def _look(queues: Queues, flow: JobId) -> WorkflowView | None:
    try:
        return WorkflowView(queues.engine, flow)
    except NotFound:  # deleted meanwhile
        return None


def _entry(look: WorkflowView) -> dict[str, Value]:
    progress = look.progress()
    return {
        "id": look.flow.hex(),
        "name": look.layout.name,
        "state": look.status(),
        "steps": progress.total,
        **progress.ended,
        "left": progress.left,
        "started": Instant(look.layout.started_us),
    }


def _more(look: WorkflowView, every: list[StepStatus]) -> dict[str, Value]:
    """Return its duration, and its result or the reason why it has none."""
    shown: dict[str, Value] = {}
    last_us = max((step.at_us for step in every), default=0)
    if not look.progress().left and last_us:
        shown["took"] = Span(max(0, last_us - look.layout.started_us))
    outcome = look.outcome()
    if isinstance(outcome, Failure):
        shown["why"] = look.why(outcome)
    elif outcome is not None:
        shown["result"] = Raw(outcome)
    return shown
