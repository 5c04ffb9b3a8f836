"""Log in with a token, and out."""

import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from dueline.web.rendering import render
from dueline.web.security import (
    SESSION_COOKIE,
    SESSION_S,
    Access,
    Guard,
    Refusal,
    set_cookie,
)
from dueline.web.site import form_of


def ask(request: Request) -> Response:
    """Ask for a token."""
    return render(request, "login.html", is_wrong=False)


async def log_in(request: Request) -> Response:
    """Open a session for a token; an address with wrong ones waits for its turn."""
    access: Access = request.scope["dueline.access"]
    guard: Guard = request.scope["dueline.guard"]
    token = form_of(request).get("token", "")
    try:
        identity = await guard.by_token(request, token)
    except Refusal as refusal:
        return PlainTextResponse(f"{refusal.message}\n", refusal.status)
    if identity is None:
        return render(request, "login.html", status=403, is_wrong=True)
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
    session = access.session_of(token, time.time())
    set_cookie(response, request, SESSION_COOKIE, session, age_s=SESSION_S)
    return response


async def log_out(request: Request) -> Response:
    """End the session of this browser, also for copies of its cookie."""
    guard: Guard = request.scope["dueline.guard"]
    await guard.end_session(request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
    set_cookie(response, request, SESSION_COOKIE, "", age_s=0)
    return response


ROUTES = [
    Route("/login", ask),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
