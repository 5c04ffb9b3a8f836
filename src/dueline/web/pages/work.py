"""Workers, schedules and limits."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.core.errors import BadInput
from dueline.web.rendering import render
from dueline.web.site import back, form_of, operations, site_of

_DONE = {"pause": "paused", "resume": "resumed", "trigger": "triggered"}


def workers(request: Request) -> Response:
    """Show the workers that are alive."""
    return render(request, "workers.html", workers=site_of(request).admin.workers())


def schedules(request: Request) -> Response:
    """Show all schedules."""
    return render(request, "schedules.html", schedules=site_of(request).admin.schedules())


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
    Route("/schedules", schedules),
    *(
        Route(f"/schedules/{{name}}/{what}", partial(change_schedule, what=what), methods=["POST"])
        for what in _DONE
    ),
    Route("/limits", limits),
    Route("/limits/{name}", set_limit, methods=["POST"]),
]
