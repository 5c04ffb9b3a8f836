"""Log in with a token, and out."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dueline.web.rendering import render
from dueline.web.security import LOGIN_DELAY_S, SESSION_COOKIE, SESSION_S, Access, set_cookie
from dueline.web.site import form_of


def ask(request: Request) -> Response:
    """Ask for a token."""
    return render(request, "login.html", is_wrong=False)


async def log_in(request: Request) -> Response:
    """Open a session for a token; a wrong one takes longer."""
    access: Access = request.scope["dueline.access"]
    token = form_of(request).get("token", "")
    if access.by_token(token) is None:
        await asyncio.sleep(LOGIN_DELAY_S)
        return render(request, "login.html", status=403, is_wrong=True)
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
    session = access.session_of(token, time.time())
    set_cookie(response, request, SESSION_COOKIE, session, age_s=SESSION_S)
    return response


def log_out(request: Request) -> Response:
    """End the session of this browser."""
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
    set_cookie(response, request, SESSION_COOKIE, "", age_s=0)
    return response


ROUTES = [
    Route("/login", ask),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
