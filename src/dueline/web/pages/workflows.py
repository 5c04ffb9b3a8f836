"""Workflows: the list, and one as a graph."""

from functools import partial
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.api.job_handle import parse_id
from dueline.core.errors import BadInput
from dueline.web.drawing import graph
from dueline.web.rendering import render
from dueline.web.site import back, form_of, operations, site_of

PAGE = 50
STEPS_SHOWN = 500
STATES = ("running", "done", "failed", "cancelled")


def list_workflows(request: Request) -> Response:
    """Show workflows, the newest first."""
    after = request.query_params.get("after", "")
    begin = int(after) if after.isascii() and after.isdecimal() and len(after) < 10 else 0  # noqa: PLR2004
    state = request.query_params.get("state", "")
    name = request.query_params.get("name", "").strip()
    page = site_of(request).admin.workflows(
        limit=PAGE, after=begin, state=state if state in STATES else None, name=name
    )
    return render(request, "workflows.html", page=page, states=STATES, state=state, searched=name)


def show_workflow(request: Request) -> Response:
    """Show a workflow as a graph, and its steps."""
    workflow = site_of(request).admin.workflow(request.path_params["id"])
    layout = workflow.view.layout
    steps = [
        (step, layout.label(step.step), job)
        for step, job in islice(zip(workflow.steps, workflow.jobs, strict=True), STEPS_SHOWN)
    ]
    return render(
        request,
        "workflow.html",
        workflow=workflow.summary,
        drawing=graph(workflow),
        steps=steps,
        hidden=max(0, len(workflow.steps) - STEPS_SHOWN),
        dead=sum(step.state == "dead" for step in workflow.steps),
    )


def change_workflow(request: Request, *, what: str) -> Response:
    """Retry the dead steps of a workflow, or cancel its steps."""
    flow = parse_id(request.path_params["id"])
    changed = operations(request).workflow(what, flow)
    done = "retried" if what == "retry" else "cancelled"
    return back(request, f"/workflows/{flow.hex()}", done, changed.done + changed.asked)


def fork_workflow(request: Request) -> Response:
    """Start a workflow with the results of this one, from a step on."""
    flow, text = parse_id(request.path_params["id"]), form_of(request).get("from", "").strip()
    if not (text.isascii() and text.isdecimal()):
        raise BadInput(f"{text!r:.80} is not the number of a step.")
    new = operations(request).fork_workflow(flow, int(text[:9]))
    return back(request, f"/workflows/{new.hex()}", "forked")


ROUTES = [
    Route("/workflows", list_workflows),
    Route("/workflows/{id}", show_workflow),
    *(
        Route(f"/workflows/{{id}}/{what}", partial(change_workflow, what=what), methods=["POST"])
        for what in ("retry", "cancel")
    ),
    Route("/workflows/{id}/fork", fork_workflow, methods=["POST"]),
]
