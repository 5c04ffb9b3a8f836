"""Operations of the HTTP API: each is a function, and its annotations are its schema.

To add a route, write a function in a module of this package, and list it in the module's
`OPERATIONS` (a new module also in `application.MODULES`):

    @operation("POST", "/streams/{name}/pause", role="operator")
    def pause_stream(call: Call, body: StreamPart) -> Done:
        \"\"\"Pause a consumer group or a shard.

        This text is its description.
        \"\"\"
        call.operations().pause_stream(call.path["name"], group=body.group, shard=body.shard)
        return Done()

`body` and `query` are optional parameters, each a subclass of `Input`: what does not fit is
refused before the function is called. The result is a `msgspec.Struct`. An ordinary function runs
in a thread, a coroutine function on the event loop. A DuelineError becomes a problem document. The
OpenAPI document is made from the same annotations. Changes that operators make go through
`call.operations()`, which records them.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast, get_type_hints

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.admin.operations import Operations
from dueline.core.actor import actor_of
from dueline.core.codec import learned
from dueline.core.errors import DuelineError
from dueline.web.http_api.idempotency import KeyReused, once
from dueline.web.problems import (
    INVALID,
    INVALID_JSON,
    KEY_REUSED,
    problem,
    problem_of,
    problem_of_status,
)
from dueline.web.security import Identity, Refusal, Role, read_body
from dueline.web.site import Site, site_of

BODY_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a body, unless an operation allows more."""

KEY_HEADER: Final = "Idempotency-Key"

F = TypeVar("F", bound=Callable[..., Any])


class Input(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body or query. Unknown fields are refused."""


class Call:
    """One request.

    Attributes:
      request: The request.
      path: The parameters of its path.
      identity: Who sends it.
      site: The application.
      raw: Its body.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.path: Mapping[str, str] = request.path_params
        self.identity: Identity = request.scope["dueline.identity"]
        self.site: Site = site_of(request)
        self.raw = b""

    def once(self, act: Callable[[], str]) -> str:
        """Return what a change gives that is made once for each Idempotency-Key."""
        request = f"{self.request.url.path}\0".encode() + self.raw
        key, sender = self.request.headers.get(KEY_HEADER), self.identity.name
        return once(self.site.admin.engine, key, sender=sender, request=request, act=act)

    def operations(self) -> Operations:
        """Return the changes of the sender, which are recorded."""
        return self.site.admin.operations(actor_of(self.identity.name, "HTTP API"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what its function's annotations say, and who may call it.

    Attributes:
      roles: Any one of these is needed.
      status: Status of a success.
      bytes_max: Maximum size of the body.
      is_keyed: Whether it takes an Idempotency-Key.
      media: Media type of a success; another one than JSON is not described further.
    """

    method: Literal["GET", "POST"]
    path: str
    function: Callable[..., Any]
    roles: tuple[Role, ...]
    body: type[Input] | None
    query: type[Input] | None
    answer: Any
    status: int = 200
    bytes_max: int = BODY_BYTES_MAX
    is_keyed: bool = False
    media: str = "application/json"

    def route(self) -> Route:
        """Return the route."""
        return Route(self.path, self._serve, methods=[self.method])

    async def _serve(self, request: Request) -> Response:
        call = Call(request)
        if not any(map(call.identity.may, self.roles)):
            need = " or ".join(self.roles)
            return problem_of_status(403, f"This needs the role {need}; yours is {_role(call)}.")
        try:
            given: dict[str, Any] = {}
            if self.query is not None:
                given["query"] = msgspec.convert(
                    dict(request.query_params), self.query, strict=False
                )
            if self.body is not None:
                given["body"] = await self._read(call, self.body)
            if inspect.iscoroutinefunction(self.function):
                answer = await cast("Awaitable[Any]", self.function(call, **given))
            else:
                answer = await run_in_threadpool(self.function, call, **given)
        except msgspec.ValidationError as error:
            return problem(INVALID, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return problem(INVALID_JSON, str(error))
        except Refusal as refusal:
            return problem_of_status(refusal.status, refusal.message)
        except KeyReused:
            return problem(KEY_REUSED)
        except DuelineError as error:
            return problem_of(error)
        if isinstance(answer, Response):
            return answer
        return Response(msgspec.json.encode(answer), self.status, media_type="application/json")

    async def _read(self, call: Call, kind: type[Input]) -> Input:
        headers = call.request.headers
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        call.raw = await read_body(call.request, self.bytes_max)
        if call.raw and media != "application/json":
            raise Refusal(415, "Send application/json.")
        return learned(lambda: msgspec.json.decode(call.raw or b"{}", type=kind))


def _role(call: Call) -> str:
    return call.identity.role


def operation(
    method: Literal["GET", "POST"],
    path: str,
    *,
    role: Role | tuple[Role, ...],
    status: int = 200,
    bytes_max: int = BODY_BYTES_MAX,
    is_keyed: bool = False,
    media: str = "application/json",
) -> Callable[[Callable[..., Any]], Operation]:
    """Declare an operation; its function's docstring is its description.

    Args:
        method: GET reads, POST changes.
        path: The path, such as "/jobs/{id}".
        role: Role that is needed, or several of which one is.
        status: Status of a success.
        bytes_max: Maximum size of the body.
        is_keyed: Whether it takes an Idempotency-Key.
        media: Media type of a success.
    """

    def declare(function: Callable[..., Any]) -> Operation:
        hints = get_type_hints(function, include_extras=True)
        return Operation(
            method,
            path,
            function,
            role if isinstance(role, tuple) else (role,),
            hints.get("body"),
            hints.get("query"),
            hints["return"],
            status,
            bytes_max,
            is_keyed,
            media,
        )

    return declare
