"""`dueline flows`: show and change workflows and durable functions."""

import json
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Annotated

import typer

from dueline.admin.functions import (
    STATES,
    FunctionSummary,
    check_state,
    function_of,
    list_functions,
)
from dueline.admin.id_prefixes import find_flow, find_id, is_prefix
from dueline.admin.job_views import JobDetails
from dueline.admin.reruns import kept_step
from dueline.api.job_handle import parse_id
from dueline.cli import job_rows
from dueline.cli.options import LIMIT, DryRunOption, LimitOption, argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Raw, Span, Value, note
from dueline.cli.session import session_of
from dueline.cli.workflow_tree import COLUMNS as STEP_COLUMNS
from dueline.cli.workflow_tree import drawn, entry
from dueline.core.codec import encode_result
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.durable import generations
from dueline.durable.sending import Sending, send_json
from dueline.foresight.job_forecast import explain
from dueline.jobs import workflow_control
from dueline.jobs.queue import Queues
from dueline.workflows import records
from dueline.workflows import workflow as engine
from dueline.workflows.readiness import Failure
from dueline.workflows.status import StepStatus, step_statuses
from dueline.workflows.workflow import WorkflowView

COLUMNS = ("id", "name", "state", "steps", "left", "started")

flows = typer.Typer(help="Show and change workflows and durable functions.")

FlowArgument = Annotated[str, argument("ID", "Id of the workflow or durable function.")]
StepOption = Annotated[int | None, option("N", "Only this step and the steps after it.", "--step")]


@flows.command("list")
def list_flows(
    context: typer.Context,
    *,
    state: Annotated[
        str | None, option("STATE", "Only those in this state, such as stopped.")
    ] = None,
    name: Annotated[str | None, option("NAME", "Only those of this name, or of this task.")] = None,
    limit: LimitOption = LIMIT,
) -> None:
    """List workflows and durable functions, the newest first.

    Durable functions are listed once they have begun. Their steps are their records, as of their
    last wait.

    Example: dueline flows list --state stopped
    """
    check_state(state, (*STATES, "failed"))
    with session_of(context).queues() as queues:
        listed = (
            _entry(look)
            for flow, known in records.listed(queues.engine.store)
            if name in (None, known) and (look := _look(queues, flow)) is not None
        )
        workflows = (entry for entry in listed if state in (None, entry["state"]))
        functions = map(_function_entry, list_functions(queues.engine, state=state, name=name))
        newest = merge(functions, workflows, key=lambda entry: str(entry["id"]), reverse=True)
        shown = list(islice(newest, limit))
        more = next(newest, None) is not None
        output = Output.of(context, queues.engine)
        output.entries(shown, COLUMNS, count=len(shown), more=more)
    if more:
        note(f"Only {len(shown)} are shown; raise --limit to see more.")
    elif not shown and state is None and name is None:
        note("No workflows. Start one with app.start(...), or a function of @app.durable.")
    elif not shown:
        note("No workflows match.")


@flows.command()
def show(
    context: typer.Context,
    flow: FlowArgument,
    *,
    whole: Annotated[bool, typer.Option("--all", help="Show every step on its own line.")] = False,
) -> None:
    """Show a workflow as a tree, or a durable function with its calls.

    Similar parallel steps share one line; JSON has one entry per step.

    Example: dueline flows show 0196f2...
    """
    with session_of(context).queues() as queues:
        look = _find(queues, flow)
        if isinstance(look, JobDetails):
            _show_function(context, queues, look)
            return
        every = step_statuses(queues.engine, look)
        output = Output.of(context, queues.engine)
        shown = {**_entry(look), **_more(look, every)}
        if session_of(context).form == "table":
            lines = list(drawn(look.layout, every, whole=whole))
            output.entry(shown, parts=[Part("steps", lines, STEP_COLUMNS)])
        else:
            size = look.layout.size
            needs = (
                sorted({need for need in node.needs() if need < size})
                for node in look.layout.nodes[:size]
            )
            ids = (records.job_of(look.flow, number).hex() for number in range(size))
            steps = [
                {**entry(look.layout, stand), "needs": need, "job": job}
                for stand, need, job in zip(every, needs, ids, strict=True)
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
    """Cancel waiting steps and ask running steps to stop; ask a durable function to end.

    A durable function runs its compensations first.

    Example: dueline flows cancel 0196f2... --step 3
    """
    with session_of(context).queues() as queues:
        look = _find(queues, flow)
        if isinstance(look, JobDetails):
            _refuse_step(step)
            job_id = parse_id(look.summary.id)
            answer: Entry = {"id": look.summary.id, "matching": 1, "dry_run": dry_run}
            if not dry_run:
                is_cancelled = queues.cancel(job_id)
                counts = {"cancelled": int(is_cancelled), "asked_to_stop": int(not is_cancelled)}
                answer = {**answer, **counts}
            Output.of(context, queues.engine).entry(answer)
            return
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

    A dead durable function goes on after its records; what failed last is called again.

    Example: dueline flows retry 0196f2...
    """
    with session_of(context).queues() as queues:
        look = _find(queues, flow)
        if isinstance(look, JobDetails):
            _refuse_step(step)
            answer: Entry = {"id": look.summary.id, "matching": int(look.summary.state == "dead")}
            if not dry_run:
                queues.retry(parse_id(look.summary.id))
                answer = {**answer, "retried": 1}
            Output.of(context, queues.engine).entry({**answer, "dry_run": dry_run})
            return
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
def reset(
    context: typer.Context,
    flow: Annotated[str, argument("ID", "Id of the durable function.")],
    *,
    to: Annotated[
        int | None, option("N", "The last call whose record is kept; 0 for none.")
    ] = None,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Begin a new job, and leave this one.")
    ] = False,
) -> None:
    """Continue a waiting, stopped or dead durable function after a call.

    By default all its records are kept. No record is deleted.

    Example: dueline flows reset 0196f2... --to 6
    """
    with session_of(context).queues() as queues:
        look = _find(queues, flow)
        if not isinstance(look, JobDetails):
            raise BadInput(
                f"{look.flow.hex()} is a workflow.", hint="Use `dueline flows retry --step`."
            )
        job_id = parse_id(look.summary.id)
        if as_new:
            job_id = generations.fork(queues, job_id, to)
        else:
            generations.reset(queues, job_id, to)
        shown: Entry = {"id": job_id.hex(), "reset_to": to, "as_new": as_new}
        Output.of(context, queues.engine).entry(shown)


@flows.command()
def fork(
    context: typer.Context,
    flow: FlowArgument,
    *,
    from_step: Annotated[int, option("N", "First step, or call, that runs again.", "--from-step")],
) -> None:
    """Start a new workflow or durable function that reuses what came before a step.

    Steps without a result, and all that need one of these, run again too. Arguments of ended steps
    are kept in queues with history=arguments. The old one is left as it is; a workflow must not
    run.

    Example: dueline flows fork 0196f2... --from-step 4
    """
    with session_of(context).queues() as queues:
        look = _find(queues, flow)
        if isinstance(look, JobDetails):
            old = parse_id(look.summary.id)
            new = generations.fork(queues, old, max(0, from_step - 1))
        else:
            old, kept = look.flow, kept_step(queues.engine)
            new = workflow_control.fork(queues, look, from_step, kept)
        shown: Entry = {"id": new.hex(), "forked_from": old.hex(), "from_step": from_step}
        Output.of(context, queues.engine).entry(shown)
        session_of(context).note_result(new.hex())


@flows.command()
def signal(
    context: typer.Context,
    flow: FlowArgument,
    name: Annotated[str, argument("NAME", "Name of the signal.")],
    *,
    value: Annotated[str, option("JSON", "Value of the signal.")] = "null",
    own: Annotated[
        str | None, option("ID", "Id of the signal, for durable functions.", "--id")
    ] = None,
) -> None:
    """Send a signal to waiting steps, or to a durable function.

    A second signal of the same name is rejected by a workflow. A durable function keeps it for
    its next wait; repeat a signal with the same --id if it is not known whether it was sent.

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
        look = _find(queues, flow)
        if isinstance(look, JobDetails):
            flow_id = parse_id(look.summary.id)
            send_json(queues, flow_id, Sending(name, written, own))
        else:
            flow_id = look.flow
            engine.signal(queues.engine, look, name, written)
        shown: Entry = {"id": flow_id.hex(), "signal": name, "value": Raw(written.decode())}
        Output.of(context, queues.engine).entry(shown)


def _view(queues: Queues, text: str) -> WorkflowView:
    """Return the workflow of an argument, which may be the first digits of an id."""
    flow = find_flow(queues.engine, text) if is_prefix(text) else parse_id(text)
    return WorkflowView(queues.engine, flow)


def _find(queues: Queues, text: str) -> WorkflowView | JobDetails:
    """Return the workflow or the durable function of an argument.

    Raises: NotFound: there is neither.
    """
    try:
        return _view(queues, text)
    except NotFound as error:
        with suppress(NotFound):
            job_id = find_id(queues.engine, text) if is_prefix(text) else parse_id(text)
            return function_of(queues, job_id)
        raise error from None


def _refuse_step(step: int | None) -> None:
    if step is not None:
        raise BadInput("--step is for workflows; a durable function has calls.", hint="Omit it.")


def _function_entry(function: FunctionSummary) -> dict[str, Value]:
    return {
        "id": function.id.hex(),
        "kind": "function",
        "name": function.task,
        "state": function.state,
        "steps": function.records,
        "left": None,
        "started": Instant(function.started_us),
    }


def _show_function(context: typer.Context, queues: Queues, details: JobDetails) -> None:
    assert details.function is not None
    explanation = explain(queues, parse_id(details.summary.id))
    shown = job_rows.of_shown_function(details, explanation.sentence)
    parts = [job_rows.calls_part(details.function)]
    Output.of(context, queues.engine).entry(shown, parts=parts)


def _look(queues: Queues, flow: JobId) -> WorkflowView | None:
    try:
        return WorkflowView(queues.engine, flow)
    except NotFound:  # deleted meanwhile
        return None


def _entry(look: WorkflowView) -> dict[str, Value]:
    progress = look.progress()
    return {
        "id": look.flow.hex(),
        "kind": "workflow",
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
