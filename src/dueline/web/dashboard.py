"""The dashboard as an ASGI application."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dueline.api.application import Dueline
from dueline.api.connect import mask
from dueline.core.errors import BadInput, Conflict, DuelineError, NotFound, StoreUnavailable
from dueline.core.logging import enable_loggers
from dueline.web.http_api.application import routes_of
from dueline.web.pages import (
    batches,
    functions,
    jobs,
    login,
    metrics,
    overview,
    queues,
    store,
    streams,
    work,
    workflows,
)
from dueline.web.problems import problem_of_status
from dueline.web.redaction import REDACT, Redaction
from dueline.web.rendering import render
from dueline.web.security import API, Access, Authorize, Guard, Identity, Role
from dueline.web.sessions import EndedSessions
from dueline.web.site import Site

STATIC = Path(__file__).with_name("static")

_STATUS: Mapping[type[DuelineError], int] = {
    NotFound: 404,
    BadInput: 400,
    Conflict: 409,
    StoreUnavailable: 503,
}


def dashboard(
    app: Dueline,
    *,
    role: Role = "reader",
    tokens: Mapping[str, Role | Identity] | None = None,
    authorize: Authorize | None = None,
    hosts: Sequence[str] = (),
    redact: str = REDACT,
    title: str | None = None,
    tasks: Dueline | None = None,
) -> ASGIApp:
    """Return the dashboard of an application, to run or to mount.

    Without `tokens` and `authorize` it only answers requests from this machine, to a name of this
    machine.

    Args:
        app: The application whose store is shown.
        role: Role of requests where nobody logs in: "reader" only reads, "operator" changes jobs
            and pauses queues, "admin" also changes settings.
        tokens: Role of each token that opens the dashboard, or an Identity with a name for the
            record of changes; at least 16 characters each.
        authorize: Function that gets the connection and returns the Identity of its user, or None:
            the login of the application in which the dashboard is mounted. It may be asynchronous.
        hosts: Host names under which the dashboard answers; by default those of this machine, or
            any name if a login is needed.
        redact: Regular expression for the names of arguments whose values are hidden.
        title: Name of the store on all pages; by default its URL without passwords.
        tasks: Application whose tasks name the arguments; by default the same.

    Returns:
        An ASGI application.

    Raises:
        ConfigError: A role or a token is invalid.
    """
    enable_loggers()
    access = Access(role, dict(tokens or {}), authorize, tuple(hosts))
    modules = (
        overview,
        jobs,
        queues,
        work,
        workflows,
        functions,
        batches,
        streams,
        store,
        metrics,
        login,
    )
    site = Site(app, Redaction(redact), title or mask(app.url), tasks)
    pages = Starlette(
        routes=[
            Mount(API, routes_of(site)),
            *(route for module in modules for route in module.ROUTES),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        exception_handlers={DuelineError: _failed, HTTPException: _refused},
    )
    pages.state.site = site
    return Guard(pages, access, ended=EndedSessions(lambda: site.app.engine), silence=site.silence)


def _failed(request: Request, error: Exception) -> Response:
    """Return the page of an error."""
    assert isinstance(error, DuelineError)
    kinds = [status for kind, status in _STATUS.items() if isinstance(error, kind)]
    return _message(request, (kinds or [500])[0], error.message, error.hint or "")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if "dueline.access" not in request.scope:  # the path of the HTTP API itself
        return problem_of_status(error.status_code)
    text = "There is no such page." if error.status_code == 404 else error.detail  # noqa: PLR2004
    return _message(request, error.status_code, text, "")


def _message(request: Request, status: int, message: str, hint: str) -> Response:
    return render(request, "message.html", status=status, message=message, hint=hint, code=status)
