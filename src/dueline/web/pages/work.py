"""Workers, tasks, schedules and limits."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.coordination.worker_requests import RequestKind
from dueline.core.errors import BadInput
from dueline.web.drawing import sparkline
from dueline.web.rendering import render
from dueline.web.site import back, form_of, operations, site_of

_WORKERS = {
    "ping": "They answer with what they run.",
    "quiet": "They take no new jobs; what they have claimed runs to its end.",
    "resume": "They take jobs again.",
    "stop": "They stop as after SIGTERM: running jobs may finish, and the processes exit with 143.",
}
"""What operators ask workers for."""

_DONE = {"pause": "paused", "resume": "resumed", "trigger": "triggered"}


def workers(request: Request) -> Response:
    """Show the workers that are alive."""
    admin = site_of(request).admin
    return render(request, "workers.html", workers=admin.workers(), answers=admin.worker_answers())


def confirm_workers(request: Request) -> Response:
    """Ask whether one worker, or all of them, should be quiet or stop."""
    operations(request)
    what, worker = _asked_of_workers(request.query_params)
    return render(
        request,
        "ask.html",
        heading=f"{what.capitalize()} {'one worker' if worker else 'all workers'}",
        text=worker or f"Live workers: {len(site_of(request).admin.workers())}.",
        sub=_WORKERS[what],
        action="/workers/change",
        values={"what": what, "worker": worker},
        button=what.capitalize(),
        back="/workers",
    )


def change_workers(request: Request) -> Response:
    """Ask one worker, or all of them."""
    change = operations(request)
    what, worker = _asked_of_workers(form_of(request))
    _, workers = change.ask_workers(what, worker or None)
    return back(request, "/workers", f"workers-{what}", len(workers))


def _asked_of_workers(values: Mapping[str, str]) -> tuple[RequestKind, str]:
    what, worker = values.get("what", ""), values.get("worker", "")
    if what not in _WORKERS:
        raise BadInput(f"{what!r:.80} is nothing that workers do.")
    return cast("RequestKind", what), worker


def tasks(request: Request) -> Response:
    """Show the tasks: those that fail first, then those that run most."""
    known = site_of(request).task_summaries()
    ordered = sorted(
        known or (), key=lambda task: (-(task.failing or 0), -task.per_s, -task.ended, task.name)
    )
    drawn = [(task, sparkline(task.slots)) for task in ordered]
    return render(request, "tasks.html", tasks=drawn, is_read=known is not None)


def schedules(request: Request) -> Response:
    """Show all schedules, and how the last run of each ended."""
    site = site_of(request)
    listed, runs = site.admin.schedules(), site.last_runs()
    return render(request, "schedules.html", schedules=listed, runs=runs)


def change_schedule(request: Request, *, what: str) -> Response:
    """Pause, resume or trigger a schedule."""
    operations(request).schedule(what, request.path_params["name"])
    return back(request, "/schedules", _DONE[what])


def limits(request: Request) -> Response:
    """Show semaphores with their holders, and rates."""
    return render(request, "limits.html", limits=site_of(request).admin.limits())


def set_limit(request: Request) -> Response:
    """Set the capacity of a semaphore."""
    change, capacity = operations(request, "admin"), form_of(request).get("capacity", "")
    if not capacity.isdecimal():
        raise BadInput(f"{capacity!r:.80} is not a capacity.", hint="Use 4, for example.")
    change.set_capacity(request.path_params["name"], int(capacity))
    return back(request, "/limits", "saved")


ROUTES = [
    Route("/workers", workers),
    Route("/workers/change", confirm_workers),
    Route("/workers/change", change_workers, methods=["POST"]),
    Route("/tasks", tasks),
    Route("/schedules", schedules),
    *(
        Route(f"/schedules/{{name}}/{what}", partial(change_schedule, what=what), methods=["POST"])
        for what in _DONE
    ),
    Route("/limits", limits),
    Route("/limits/{name}", set_limit, methods=["POST"]),
]
