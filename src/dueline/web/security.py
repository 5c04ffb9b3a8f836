"""Who may see and change what: hosts, identities, roles, and requests that are forged.

Everything here runs before a page does. Without tokens and without the host application's login,
only requests from this machine, to a name of this machine, are answered.
"""

import asyncio
import hashlib
import hmac
import inspect
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.web.guesses import Guesses
from dueline.web.problems import problem_of_status
from dueline.web.sessions import EndedSessions
from dueline.web.silence import Silence, answer_in_time

Role = Literal["reader", "operator", "admin", "producer", "worker"]

ROLES: Final[Mapping[Role, frozenset[Role]]] = {
    "reader": frozenset({"reader"}),
    "operator": frozenset({"reader", "operator", "producer"}),
    "admin": frozenset({"reader", "operator", "admin", "producer", "worker"}),
    "producer": frozenset({"producer"}),
    "worker": frozenset({"worker"}),
}
"""Each role with the roles that it includes.

Readers see everything, operators change jobs and pause queues, admins change settings. Producers
enqueue and read results, workers claim and end jobs: both only in the HTTP API.
"""

TOKEN_CHARACTERS_MIN: Final = 16
BODY_BYTES_MAX: Final = 64 * 1024
BODY_S_MAX: Final = 10
SESSION_S: Final = 12 * 3600
FORM_FIELDS_MAX: Final = 60

SESSION_COOKIE: Final = "dueline_session"
CSRF_COOKIE: Final = "dueline_csrf"

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_FORM: Final = "application/x-www-form-urlencoded"
_SAFE: Final = ("GET", "HEAD")
API: Final = "/api/v1"
"""Path of the HTTP API in the dashboard."""
_UNAUTHENTICATED: Final = ("/login", "/static/")


class Identity(NamedTuple):
    """Who sends a request. name: for the record of changes."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Return whether the identity has this role, or one that includes it."""
        return role in ROLES[self.role]


Authorize = Callable[[HTTPConnection], Identity | Awaitable[Identity | None] | None]
"""Returns who sends a request, or None for nobody: the login of the host application."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who has access.

    Attributes:
        role: Role of requests from this machine, where nobody logs in.
        tokens: Role of each token, or its Identity: a name and a role.
        authorize: The login of the host application.
        hosts: Names under which the dashboard answers; empty for those of this machine, or for
            any name where a login is needed.

    Raises:
        ConfigError: A role or a token is invalid.
    """

    role: Role = "reader"
    tokens: Mapping[str, "Role | Identity"] = field(default_factory=dict, repr=False)
    authorize: Authorize | None = None
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        for given in (self.role, *self.tokens.values()):
            role = given.role if isinstance(given, Identity) else given
            if role not in ROLES:
                raise ConfigError(f"{role!r:.80} is not a role.", hint=f"Use {', '.join(ROLES)}.")
        if any(len(token) < TOKEN_CHARACTERS_MIN for token in self.tokens):
            raise ConfigError(
                f"A token of the dashboard has less than {TOKEN_CHARACTERS_MIN} characters.",
                hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )

    @property
    def needs_login(self) -> bool:
        """Whether every request must say who sends it."""
        return bool(self.tokens) or self.authorize is not None

    def allows_host(self, host: str) -> bool:
        """Return whether the dashboard answers under this name: a foreign one is an attack."""
        names = self.hosts or (() if self.needs_login else LOOPBACK_HOSTS)
        return not names or host.lower() in {name.lower() for name in names}

    def by_token(self, token: str) -> Identity | None:
        """Return the identity of a token; all are compared, in constant time."""
        identity = None
        for number, (known, given) in enumerate(self.tokens.items(), 1):
            if hmac.compare_digest(known.encode(), token.encode()):
                identity = (
                    given
                    if isinstance(given, Identity)
                    else Identity(f"token {number} ({given})", given)
                )
        return identity

    def session_of(self, token: str, now_s: float) -> str:
        """Return the session of a token: it does not contain the token, and ends by itself."""
        until = f"{int(now_s) + SESSION_S}-{secrets.token_hex(8)}"
        return f"{until}.{_signature(token, until)}"

    def by_session(self, session: str, now_s: float) -> Identity | None:
        """Return the identity of a session that has not ended."""
        until, _, signature = session.partition(".")
        if until_of(session) <= now_s:
            return None
        for token in self.tokens:
            if hmac.compare_digest(_signature(token, until), signature):
                return self.by_token(token)
        return None


def until_of(session: str) -> int:
    """Return when a session ends, in seconds UTC; 0 if it cannot be read."""
    until = session.partition(".")[0].partition("-")[0]
    return int(until[:12]) if until.isascii() and until.isdecimal() else 0


def _signature(token: str, until: str) -> str:
    return hmac.new(token.encode(), f"dueline {until}".encode(), hashlib.sha256).hexdigest()


class Refusal(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Guard:
    """Lets only good requests reach the pages, and adds the headers of all responses.

    Args:
        app: The pages.
        access: Who has access.
        api: Path of the HTTP API; empty if there are no pages.
        ended: The sessions that were ended; None to ask for none.
        silence: Whether the disk of the store answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        api: str = API,
        ended: EndedSessions | None = None,
        silence: Silence = lambda: None,
    ) -> None:
        self._silence = silence
        self._app, self._access, self._api, self._ended = app, access, api, ended
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)

        async def refuse(error: StoreUnavailable) -> None:
            secured = _with_headers(send, request, None)
            await self._refused(request, Refusal(503, error.message))(scope, receive, secured)

        await answer_in_time(lambda note: self._respond(request, note), send, self._silence, refuse)

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        if f"{_path(request.scope)}/".startswith(f"{self._api}/"):
            return problem_of_status(refusal.status, refusal.message)
        return PlainTextResponse(f"{refusal.message}\n", refusal.status)

    async def _respond(self, request: Request, send: Send) -> None:
        scope = request.scope
        if f"{_path(scope)}/".startswith(f"{self._api}/"):
            await self._answer(request, send)
            return
        csrf = request.cookies.get(CSRF_COOKIE, "")
        is_new = not _is_csrf(csrf)
        if is_new:
            csrf = secrets.token_hex(16)
        scope["dueline.csrf"] = csrf
        secured = _with_headers(send, request, csrf if is_new else None)
        try:
            answer = await self._check(request)
        except Refusal as refusal:
            answer = self._refused(request, refusal)
        await (answer or self._app)(scope, request.receive, secured)

    async def _answer(self, request: Request, send: Send) -> None:
        """Answer a request to the HTTP API."""
        answer: Response | None = None
        try:
            await self._check_call(request)
        except Refusal as refusal:
            answer = self._refused(request, refusal)
        secured = _with_headers(send, request, None)
        await (answer or self._app)(request.scope, request.receive, secured)

    async def _check_call(self, request: Request) -> None:
        """Check a request to the HTTP API, but for its body.

        A browser says which site sends a request that is not a GET; another program sends a token,
        or runs on this machine.

        Raises: Refusal: the request is not answered.
        """
        _check_host(request, self._access)
        if request.method not in (*_SAFE, "POST"):
            raise Refusal(405, "Use GET or POST.")
        self._expect_disk()
        if "\0" in _path(request.scope):
            raise Refusal(400, "An address has no null characters.")
        identity = await self._identify(request)
        if identity is None:
            raise Refusal(401, "The token is missing, or not valid.")
        request.scope["dueline.identity"] = identity
        is_marked = "origin" in request.headers or "sec-fetch-site" in request.headers
        has_bearer = _bearer_of(request) is not None
        if request.method == "POST" and is_marked and not has_bearer:
            _check_origin(request)

    async def _check(self, request: Request) -> Response | None:
        """Return the answer of a request that does not reach the pages; None for others.

        Raises: Refusal: the request is not answered.
        """
        _check_host(request, self._access)
        if request.method not in (*_SAFE, "POST"):
            raise Refusal(405, "Use GET or POST.")
        path = _path(request.scope)
        if "\0" in path:
            raise Refusal(400, "An address has no null characters.")
        if not path.startswith(_UNAUTHENTICATED):
            self._expect_disk()
        has_bearer = _bearer_of(request) is not None
        identity = await self._identify(request)
        request.scope["dueline.identity"] = identity
        request.scope["dueline.access"] = self._access
        request.scope["dueline.guard"] = self
        if request.method == "POST":
            form = await _read_form(request)
            if not (has_bearer and identity):
                _check_origin(request)
                if not hmac.compare_digest(form.get("csrf", ""), request.scope["dueline.csrf"]):
                    raise Refusal(403, "The form is too old: load the page again.")
            request.scope["dueline.form"] = form
        is_open = path.startswith(_UNAUTHENTICATED) or path == "/logout"
        if identity is not None and not (is_open or identity.may("reader")):
            raise Refusal(403, f"The pages need the role reader; yours is {identity.role}.")
        if identity is not None or path.startswith(_UNAUTHENTICATED):
            return None
        if request.method in _SAFE and self._access.tokens and not has_bearer:
            base = request.scope.get("root_path", "")
            return RedirectResponse(f"{base}/login", 303)
        raise Refusal(401, "Log in first.")

    def _expect_disk(self) -> None:
        """Expect that no call waits too long for the disk: this one would wait with it.

        Raises: Refusal: one does.
        """
        if (error := self._silence()) is not None:
            raise Refusal(503, error.message)

    async def _identify(self, request: Request) -> Identity | None:
        access = self._access
        if access.tokens and (token := _bearer_of(request)) is not None:
            return await self.by_token(request, token)
        if access.tokens and (session := request.cookies.get(SESSION_COOKIE)):
            identity = access.by_session(session, time.time())
            if identity is not None and not await self._has_ended(session):
                return identity
        if access.authorize is not None:
            answer = access.authorize(request)
            return await answer if inspect.isawaitable(answer) else answer
        return None if access.tokens else Identity("local", access.role)

    async def end_session(self, session: str) -> None:
        """End a session before its time.

        Raises: StoreUnavailable: it may go on.
        """
        if self._ended is not None and self._access.by_session(session, time.time()):
            await run_in_threadpool(self._ended.add, session, until_of(session))

    async def by_token(self, request: Request, token: str) -> Identity | None:
        """Return the identity of a token; an address with wrong ones waits for its turn.

        Raises: Refusal: too many attempts of its address wait.
        """
        host = request.client.host if request.client else "this machine"
        if not await self._guesses.wait(host, token):
            raise Refusal(429, "Too many wrong tokens came from your address. Try again later.")
        identity = self._access.by_token(token)
        self._guesses.note(host, token, is_right=identity is not None)
        return identity

    async def _has_ended(self, session: str) -> bool:
        if self._ended is None:
            return False
        try:
            return await run_in_threadpool(self._ended.has, session)
        except StoreUnavailable as error:
            raise Refusal(503, "The store does not answer.") from error


def _bearer_of(request: Request) -> str | None:
    """Return the token of a request; the name of the scheme has no case (RFC 9110)."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _path(scope: Scope) -> str:
    """Return the path below the place where the dashboard is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _check_host(request: Request, access: Access) -> None:
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if not access.allows_host(host):
        raise Refusal(421, "This name is not one of the dashboard's (see --host-name).")
    if not access.needs_login and not _is_here(request):
        raise Refusal(403, "Only this machine has access: configure a token or a login.")


def _is_here(request: Request) -> bool:
    """Return whether a request comes from this machine; on a socket file it has no address."""
    if request.client is None:
        return True
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _check_origin(request: Request) -> None:
    """Refuse a form that another site sent.

    Raises: Refusal: it was, or the browser does not say where the form comes from.
    """
    origin = request.headers.get("origin") or request.headers.get("referer") or ""
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Refusal(403, "The request comes from another site.")
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Refusal(403, "The request comes from another site.")


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Read a body, which has a maximum size and time.

    Raises: Refusal: it is too large, or too slow.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > bytes_max:
                    raise Refusal(413, f"The body may have {bytes_max:,} bytes.")
    except TimeoutError as error:
        raise Refusal(408, f"The body did not arrive within {BODY_S_MAX} s.") from error
    except ClientDisconnect as error:
        raise Refusal(400, "The body ended early.") from error
    return b"".join(parts)


async def _read_form(request: Request) -> dict[str, str]:
    """Read a form, which has a maximum size and time.

    Raises: Refusal: it is too large, too slow, or not a form.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise Refusal(415, f"Send {_FORM}.")
    body = await read_body(request, BODY_BYTES_MAX)
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise Refusal(400, "The form cannot be read.") from error
    if any("\0" in value for _, value in pairs):
        raise Refusal(400, "A form has no null characters.")
    return dict(pairs)


def _is_csrf(text: str) -> bool:
    return len(text) == 32 and all(sign in "0123456789abcdef" for sign in text)  # noqa: PLR2004


def _with_headers(send: Send, request: Request, csrf: str | None) -> Send:
    """Return a `send` that adds the headers of all responses, and a new cookie."""
    is_static = _path(request.scope).startswith("/static/")

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers["Cache-Control"] = "max-age=3600" if is_static else "no-store"
            headers["Vary"] = "Cookie, HX-Request"
            if csrf is not None and not is_static:
                cookie = Response()
                set_cookie(cookie, request, CSRF_COOKIE, csrf)
                headers.append("set-cookie", cookie.headers["set-cookie"])
        await send(message)

    return send_secured


def set_cookie(
    response: Response, request: HTTPConnection, name: str, value: str, *, age_s: int | None = None
) -> None:
    """Set a cookie that no script reads, and that no other site sends."""
    response.set_cookie(
        name,
        value,
        max_age=age_s,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
