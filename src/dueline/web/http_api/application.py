"""The HTTP API as an ASGI application."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dueline.api.application import Dueline
from dueline.api.connect import mask
from dueline.web.http_api import chunks, claims, functions, jobs, operators, queues, workflows
from dueline.web.http_api.frame import Operation
from dueline.web.http_api.openapi import document
from dueline.web.problems import problem_of_status
from dueline.web.redaction import REDACT, Redaction
from dueline.web.security import Access, Authorize, Guard, Identity, Role
from dueline.web.sessions import EndedSessions
from dueline.web.site import Site

MODULES: Final = (jobs, chunks, functions, workflows, queues, claims, operators)
OPERATIONS: Final[Sequence[Operation]] = tuple(op for module in MODULES for op in module.OPERATIONS)


def api(
    app: Dueline,
    *,
    role: Role = "reader",
    tokens: Mapping[str, Role | Identity] | None = None,
    authorize: Authorize | None = None,
    hosts: Sequence[str] = (),
    redact: str = REDACT,
) -> ASGIApp:
    """Return the HTTP API of an application alone, to mount at a path such as "/api/v1".

    The dashboard has it at "/api/v1". Who has access is decided as for the dashboard.

    Args:
        app: The application: its tasks check the arguments of calls.
        role: Role of requests where nobody logs in: as for the dashboard, "producer" for programs
            that enqueue, or "worker" for those that claim.
        tokens: Role, or Identity with a name, of each token, at least 16 characters each.
        authorize: Function that gets the connection and returns the Identity of its sender, or
            None. It may be asynchronous.
        hosts: Host names under which the API answers; by default those of this machine, or any
            name if a login is needed.
        redact: Regular expression for the names of arguments whose values are hidden.

    Returns:
        An ASGI application.

    Raises:
        ConfigError: A role or a token is invalid.
    """
    access = Access(role, dict(tokens or {}), authorize, tuple(hosts))
    site = Site(app, Redaction(redact), mask(app.url))
    ended = EndedSessions(lambda: app.engine)
    return Guard(routes_of(site), access, api="", ended=ended, silence=site.silence)


def routes_of(site: Site) -> Starlette:
    """Return the operations, without a check of who sends a request."""
    routes = Starlette(
        routes=[
            Route("/openapi.json", _document),
            *(operation.route() for operation in OPERATIONS),
        ],
        exception_handlers={HTTPException: _refused},
    )
    routes.router.redirect_slashes = False
    routes.state.site = site
    return routes


def _document(request: Request) -> Response:
    made = document(OPERATIONS, server=request.scope.get("root_path", ""))
    return Response(msgspec.json.encode(made), media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    del request
    return problem_of_status(error.status_code, headers=error.headers)
