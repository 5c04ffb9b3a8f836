"""Jobs: the list, one job, dead-letter jobs, and changes of many."""

import json
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dueline.admin.filters import STATES, with_state
from dueline.admin.job_lists import Count
from dueline.admin.operations import check_bulk, targets
from dueline.admin.read_models import READ_US_MAX
from dueline.admin.redrives import chosen, read_rate
from dueline.admin.search import ENDED, ENDED_STATES, IN_HISTORY, count_like
from dueline.api.job_handle import parse_id
from dueline.core.codec import encode_result
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.web.drawing import spans
from dueline.web.rendering import render
from dueline.web.site import back, begin_redrive, form_of, operations, site_of

PAGE = 50
COUNTED_MAX = 10_000
_DONE = {
    "retry": "retried",
    "cancel": "cancelled",
    "reschedule": "rescheduled",
    "move": "moved",
    "settle": "settled",
    "delete": "deleted",
    "run again": "again",
    "pause": "paused-job",
    "resume": "resumed",
}
_OF_ONE = ("retry", "cancel", "reschedule", "move", "pause", "resume", "settle", "delete", "again")
_SELECTED = {
    "dead": ("retry", "delete"),
    "running": ("cancel",),
    "paused": ("cancel", "move"),
    **dict.fromkeys(ENDED_STATES, ("run again",)),
    ENDED: (),
}
"""Changes of jobs that are selected in a list, by its state."""
_OF_WAITING = ("retry", "cancel", "move")

_JOB = "job-"
"""Start of the names of the boxes that select jobs."""


def list_jobs(request: Request) -> Response:
    """Show the jobs of a filter, which is a part of the address."""
    admin = site_of(request).admin
    text = request.query_params.get("q", "").strip()
    page, like = None, None
    error: BadInput | NotFound | None = None
    try:
        like = admin.filter(text)
        page = admin.list(like, limit=PAGE, after=request.query_params.get("after"))
    except (BadInput, NotFound) as refusal:
        error = refusal
    if page is not None and not page.jobs and _is_id(text):
        return RedirectResponse(f"{request.scope.get('root_path', '')}/jobs/{text}", 303)
    return render(
        request,
        "jobs.html",
        status=400 if isinstance(error, BadInput) else 200,
        filter=text,
        page=page,
        error=error,
        state=like.state if like else None,
        states=STATES,
        tabs=[(state, with_state(text, state)) for state in (None, *STATES)],
        changes=targets(like) if like else (),
        has_ended=like is not None and like.state in IN_HISTORY,
        selected=_SELECTED.get(like.state or "", _OF_WAITING) if like is not None else (),
    )


def _is_id(text: str) -> bool:
    digits = text.replace("-", "").lower()
    return len(digits) == 32 and all(sign in "0123456789abcdef" for sign in digits)  # noqa: PLR2004


def show_job(request: Request) -> Response:
    """Show one job."""
    site = site_of(request)
    details = site.admin.get(request.path_params["id"])
    job = details.summary
    redaction = site.redaction
    return render(
        request,
        "job.html",
        job=job,
        details=details,
        arguments=redaction.arguments(details.arguments, site.parameters(job.task)),
        result=redaction.value(details.result),
        headers=redaction.value(dict(details.carried.headers)),
        chunks=[redaction.value(json.loads(chunk.data)) for chunk in details.chunks],
        explanation=None if job.state == "done" else site.admin.explain(job.id),
        gantt=spans(details, site.now_us()),
        can_delete=job.state == "dead",
        can_run_again=details.has_call,
        can_retry=job.state in ("scheduled", "retrying", "dead"),
        can_cancel=job.state in ("scheduled", "ready", "retrying", "paused", "running"),
        can_pause=job.state in ("scheduled", "ready", "retrying"),
        can_resume=job.state == "paused",
        can_move=job.state in ("scheduled", "ready", "retrying", "paused"),
        can_reschedule=job.state in ("scheduled", "ready", "retrying"),
    )


def change_job(request: Request, *, what: str) -> Response:
    """Retry, cancel, reschedule, pause or resume one job."""
    change = operations(request)
    job_id = parse_id(request.path_params["id"])
    path = f"/jobs/{job_id.hex()}"
    if what == "again":
        new = change.run_again(job_id)
        return back(request, f"/jobs/{new.hex()}", "again")
    if what == "delete":
        if "confirmed" not in form_of(request):
            return _ask_to_delete(request, [job_id], f"{path}/delete", path)
        change.delete(job_id)
        return back(request, "/jobs?q=state%3Adead", "deleted")
    if what == "retry":
        change.retry(job_id)
    elif what == "settle":
        change.settle(job_id, _result(request))
    elif what == "cancel":
        if not change.cancel(job_id):
            return back(request, path, "asked")
    elif what == "move":
        change.move_job(job_id, _queue(request))
    elif what == "pause":
        change.pause_job(job_id)
    elif what == "resume":
        change.resume_job(job_id)
    else:
        change.reschedule(job_id, _at(request))
    return back(request, path, _DONE[what])


def _result(request: Request) -> bytes:
    """Return the result of a form, which is JSON."""
    try:
        return encode_result(json.loads(form_of(request).get("value", "null")), "the job")
    except ValueError as error:
        raise BadInput(
            f"The result is not JSON: {error}.", hint="Write null or a text in quotes."
        ) from error


def change_selected(request: Request) -> Response:
    """Change the jobs that were selected in a list."""
    change, form = operations(request), form_of(request)
    text, what = form.get("q", ""), form.get("what", "")
    ids = [parse_id(name.removeprefix(_JOB)) for name in form if name.startswith(_JOB)]
    if not ids:
        raise BadInput("No job is selected.", hint="Tick the box of a job.")
    path = f"/jobs?{urlencode({'q': text})}"
    if what == "delete" and "confirmed" not in form:
        return _ask_to_delete(request, ids, "/jobs/selected", path, q=text)
    done = change.selected(what, ids, to=_queue(request) if what == "move" else "")
    return back(request, path, _DONE[what], done.done + done.asked)


def _ask_to_delete(
    request: Request, ids: Sequence[JobId], action: str, path: str, **values: str
) -> Response:
    """Ask for a confirmation before jobs are deleted."""
    count = "one job" if len(ids) == 1 else f"{len(ids)} jobs"
    boxes = {f"{_JOB}{job_id.hex()}": "on" for job_id in ids}
    return render(
        request,
        "ask.html",
        heading=f"Delete {count}",
        text=ids[0].hex() if len(ids) == 1 else f"Selected jobs: {len(ids)}.",
        sub="Deleted jobs cannot be retried.",
        action=action,
        values={"what": "delete", "confirmed": "yes", **values, **boxes},
        button="Delete",
        back=path,
    )


def _queue(request: Request) -> str:
    """Return the queue of a form to which jobs are moved."""
    queue = form_of(request).get("to", "").strip()
    if not queue:
        raise BadInput("No queue is named.", hint="Write the name of the queue to move to.")
    return queue


def _at(request: Request) -> int:
    return site_of(request).now_us() + parse_span(form_of(request).get("after", "").strip())


def confirm(request: Request) -> Response:
    """Count the jobs that a change would concern, and ask for a confirmation."""
    operations(request)
    admin = site_of(request).admin
    text, what = request.query_params.get("q", ""), request.query_params.get("what", "")
    like = admin.filter(text)
    check_bulk(what, like)
    # Not the expired jobs in the history, which have ended.
    count = Count(*count_like(admin.engine, like, most=COUNTED_MAX, within_us=READ_US_MAX))
    sample = admin.list(like, limit=min(5, max(1, count.jobs))).jobs[: count.jobs]
    return render(
        request,
        "confirm.html",
        filter=text,
        what=what,
        count=count,
        sample=sample,
        can_pace=what == "retry" and like.state == "dead",
    )


def change_jobs(request: Request) -> Response:
    """Change the jobs of a filter, some thousands at a time."""
    change = operations(request)
    form = form_of(request)
    text, what = form.get("q", ""), form.get("what", "")
    like = site_of(request).admin.filter(text)
    at_us = _at(request) if what == "reschedule" else 0
    if what == "retry" and like.state == "dead" and form.get("rate", "").strip():
        begin_redrive(change, like, text, read_rate(form["rate"].strip()))
        return back(request, "/dead", "redriving")
    if what == "move":
        moved = change.move(like, text, _queue(request)).moved
        return back(request, f"/jobs?{urlencode({'q': text})}", _DONE[what], moved)
    done = change.bulk(what, like, text, at_us=at_us)
    return back(request, f"/jobs?{urlencode({'q': text})}", _DONE[what], done.done + done.asked)


def dead(request: Request) -> Response:
    """Show the dead-letter jobs by error."""
    admin = site_of(request).admin
    return render(request, "dead.html", dead=admin.dead_letters(), redrives=admin.redrives()[:20])


def stop_redrive(request: Request) -> Response:
    """Stop a paced redrive."""
    operations(request).stop_redrive(request.path_params["redrive"])
    return back(request, "/dead", "stopped")


def resume_redrive(request: Request) -> Response:
    """Resume a paced redrive, in a thread of this process."""
    change, redrive_id = operations(request), request.path_params["redrive"]
    redrive = chosen(site_of(request).admin.engine, redrive_id, to_resume=True)
    begin_redrive(change, redrive.like, redrive.written, redrive.rate)
    return back(request, "/dead", "redriving")


ROUTES = [
    Route("/jobs", list_jobs),
    Route("/jobs/change", confirm),
    Route("/jobs/change", change_jobs, methods=["POST"]),
    Route("/jobs/selected", change_selected, methods=["POST"]),
    Route("/jobs/{id}", show_job),
    *(
        Route(f"/jobs/{{id}}/{what}", partial(change_job, what=what), methods=["POST"])
        for what in _OF_ONE
    ),
    Route("/dead", dead),
    Route("/dead/redrives/{redrive}/stop", stop_redrive, methods=["POST"]),
    Route("/dead/redrives/{redrive}/resume", resume_redrive, methods=["POST"]),
]
