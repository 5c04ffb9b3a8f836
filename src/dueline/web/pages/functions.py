"""Durable functions: the list, one with its calls, one call, and changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dueline.admin.functions import (
    SLEEPING,
    STOPPED,
    WAITING,
    readable_value,
    shown_state,
    state_of,
)
from dueline.admin.job_views import CALLS_SHOWN, JobDetails
from dueline.admin.operations import Operations
from dueline.admin.search import ENDED_STATES
from dueline.api.job_handle import parse_id
from dueline.core.codec import encode_result
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.durable.call_details import CalledJob
from dueline.durable.sending import Sending
from dueline.durable.values import StoredValue
from dueline.durable.views import FunctionView, RecordedCall
from dueline.web.rendering import render
from dueline.web.site import Site, back, form_of, operations, site_of

PAGE: Final = 50
STATES: Final = (
    "running", SLEEPING, WAITING, STOPPED, "ready", "retrying", "done", "dead", "cancelled",
)  # fmt: skip
PREVIEW_CHARACTERS: Final = 160
"""Maximum length of a value in the list of calls."""

GATHERS_EXPANDED: Final = 3
"""Number of gathers of a page whose jobs are listed, the last ones."""

JOBS_EXPANDED: Final = 8
"""Number of jobs that are listed of each of them."""

JOBS_A_PAGE: Final = 100

CHANGES: Final[Mapping[str, str]] = {
    "signal": "The function takes it with ctx.wait_signal. It is kept until then.",
    "cancel": "Its compensations run first.",
    "retry": "What failed last is called again. A step that waits for its next attempt is called "
    "now. All other records are kept.",
    "reset": "Calls after this one are made again, by the code of its workers. No record is "
    "deleted.",
    "fork": "A new job begins with the records up to this call. This function is left as it is.",
}
"""What operators may do with a function, and what it does."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call in the list.

    Attributes:
      value: The beginning of its value, as JSON; empty without one.
      hidden: Why the value is not shown; empty if it is.
      attempts: Number of attempts of a step; 0 for other calls.
      jobs: The first jobs of a gather; more: how many others it has.
    """

    call: RecordedCall
    value: str = ""
    hidden: str = ""
    attempts: int = 0
    jobs: Sequence[CalledJob] = ()
    more: int = 0


def list_functions(request: Request) -> Response:
    """Show durable functions, the newest first."""
    query = request.query_params
    state, name = query.get("state", ""), query.get("name", "").strip()
    page = site_of(request).admin.functions(
        limit=PAGE, after=_number(query.get("after", "")),
        state=state if state in STATES else None, name=name,
    )  # fmt: skip
    return render(request, "functions.html", page=page, states=STATES, state=state, searched=name)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004


def show_function(request: Request) -> Response:
    """Show a durable function and its calls; for other jobs, their page."""
    site, own = site_of(request), request.path_params["id"]
    try:
        details = site.admin.function(own, to=_number(request.query_params.get("to", "")))
    except NotFound:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/jobs/{own}", 303)
    job, view = details.summary, details.function
    assert view is not None
    state = state_of(site.admin.engine, parse_id(job.id))
    value, hidden = (None, "") if state is None else readable_value(state)
    return render(
        request,
        "function.html",
        job=job,
        details=details,
        view=view,
        shown_state=job.shown_state if view.last < view.total else shown_state(details),
        rows=_rows(site, job.id, view),
        has_state=state is not None,
        state=site.redaction.named("state", value),
        hidden_state=hidden,
        arguments=site.redaction.arguments(details.arguments, site.parameters(job.task)),
        result=site.redaction.value(details.result),
        explanation=None if job.state == "done" else site.admin.explain(job.id),
        changes=_changes(details, view),
        page_size=CALLS_SHOWN,
    )


def _changes(details: JobDetails, view: FunctionView) -> Sequence[str]:
    """Return what can be done with a function."""
    state = details.summary.state
    if state in ENDED_STATES:
        return ()
    can_go_back = state != "running" and not view.end
    names = {
        "signal": state != "dead",
        "retry": can_go_back,
        "reset": can_go_back,
        "fork": True,
        "cancel": state != "dead" and not view.end,
    }
    return [name for name, is_possible in names.items() if is_possible]


def _rows(site: Site, job_id: str, view: FunctionView) -> list[CallRow]:
    """Return the calls in their order; a compensation follows the call that it undoes."""
    gathers = [call.position for call in view.calls if call.kind == "gather"]
    calls = sorted(view.calls, key=lambda call: (int(call.position), call.kind == "undo"))
    return [
        _row(site, job_id, call, is_expanded=call.position in gathers[-GATHERS_EXPANDED:])
        for call in calls
    ]


def _row(site: Site, job_id: str, call: RecordedCall, *, is_expanded: bool) -> CallRow:
    value, hidden = _shown(site, call.name, call.value)
    jobs: Sequence[CalledJob] = ()
    if is_expanded and call.kind == "gather":
        jobs = site.admin.called_jobs(job_id, int(call.position), limit=JOBS_EXPANDED)
    is_step = call.kind in ("step", "undo")
    return CallRow(
        call,
        _preview(value) if call.value is not None and not hidden else "",
        hidden,
        call.tries + (not call.is_open) if is_step else 0,
        jobs,
        call.count - len(jobs),
    )


def _shown(site: Site, name: str, stored: StoredValue | None) -> tuple[Any, str]:
    """Return a value without secrets, or why it is not shown. name: of the step or signal."""
    if stored is None:
        return None, ""
    value, hidden = readable_value(stored)
    return site.redaction.named(name, value), hidden


def _preview(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= PREVIEW_CHARACTERS else f"{text[:PREVIEW_CHARACTERS]}…"


def show_call(request: Request) -> Response:
    """Show a call: its value or error, and the jobs of a gather."""
    site, own = site_of(request), request.path_params["id"]
    position = _number(request.path_params["position"])
    whole = site.admin.call(own, position)
    call, after = whole.call, _number(request.query_params.get("after", ""))
    details = site.admin.function(own, to=position, most=1)
    assert details.function is not None
    value, hidden = _shown(site, call.name, whole.stored)
    is_error = call.state == "failed" and call.kind == "step" and isinstance(value, list)
    jobs = site.admin.called_jobs(own, position, after=after, limit=JOBS_A_PAGE)
    return render(
        request,
        "call.html",
        function=own,
        task=details.summary.task,
        row=_row(site, own, call, is_expanded=False),
        undo=whole.undo,
        has_value=whole.stored is not None and not is_error,
        value=value,
        hidden=hidden,
        error="" if not is_error else value[2] or call.error,
        jobs=jobs,
        next=after + JOBS_A_PAGE if after + len(jobs) < call.count else None,
        changes=[what for what in _changes(details, details.function) if what in ("reset", "fork")],
    )


def confirm(request: Request) -> Response:
    """Ask for a confirmation of a change, and for what it needs."""
    operations(request)
    query = request.query_params
    return _ask(request, dict(query), query.get("what", ""))


def _ask(request: Request, values: Mapping[str, str], what: str, error: str = "") -> Response:
    site = site_of(request)
    if what not in CHANGES:
        raise BadInput(f"{what!r:.80} is nothing that is done with functions.")
    details = site.admin.function(request.path_params["id"], most=1)
    assert details.function is not None
    waits = [call.name for call in details.function.open_calls if call.state == "waiting"]
    return render(
        request,
        "function_change.html",
        status=400 if error else 200,
        what=what,
        sub=CHANGES[what],
        job=details.summary,
        total=details.function.total,
        error=error,
        values={
            "name": waits[0] if waits else "",
            "value": "null",
            "to": "",
            "id": site.admin.engine.ids.token().hex(),
            **values,
        },
    )


def change_function(request: Request) -> Response:
    """Signal, cancel, retry, reset or fork a function."""
    change, form = operations(request), form_of(request)
    job_id, what = parse_id(request.path_params["id"]), form.get("what", "")
    path = f"/functions/{job_id.hex()}"
    if what == "signal":
        return _signal(request, change, job_id, path)
    if what in ("reset", "fork"):
        text = form.get("to", "").strip()
        if text and not (text.isascii() and text.isdecimal()):
            return _ask(request, form, what, f"{text!r:.80} is not the number of a call.")
        to = int(text[:9]) if text else None
        if what == "fork":
            return back(request, f"/functions/{change.fork(job_id, to).hex()}", "forked")
        change.reset(job_id, to)
        return back(request, path, "reset")
    if what == "cancel":
        return back(request, path, "cancelled" if change.cancel(job_id) else "asked-function")
    if what != "retry":
        raise BadInput(f"{what!r:.80} is nothing that is done with functions.")
    change.retry(job_id)
    return back(request, path, "retried")


def _signal(request: Request, change: Operations, job_id: JobId, path: str) -> Response:
    """Send a signal; the form has its id, so that a repeat of the request is the same signal."""
    form = form_of(request)
    name, text = form.get("name", ""), form.get("value", "")
    try:
        value = encode_result(msgspec.json.decode(text), f"the signal {name:.80}")
    except (msgspec.DecodeError, RecursionError) as error:
        return _ask(
            request, form, "signal", f'The value is not JSON: {error}. Quote strings: "yes".'
        )
    sent = Sending(name, value, form.get("id") or None)
    change.signal(job_id, sent, site_of(request).producer.tasks)
    return back(request, path, "signalled")


ROUTES = [
    Route("/functions", list_functions),
    Route("/functions/{id}", show_function),
    Route("/functions/{id}/calls/{position}", show_call),
    Route("/functions/{id}/change", confirm),
    Route("/functions/{id}/change", change_function, methods=["POST"]),
]
