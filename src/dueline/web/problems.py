"""Errors of the HTTP API as problem documents (RFC 9457)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from dueline.core.errors import (
    BadInput,
    ConfigError,
    Conflict,
    DuelineError,
    Duplicate,
    EnqueueUnknown,
    LeaseLost,
    NotFound,
    QuotaExceeded,
    StoreUnavailable,
    Unknown,
)
from dueline.core.text import printable

RETRY_AFTER_S = 1
"""Time after which a client repeats a request that found the store unavailable, in seconds."""


class Kind(NamedTuple):
    """A kind of problem; hint: what to do, unless the error says that."""

    status: int
    name: str
    title: str
    hint: str = ""


INVALID_JSON = Kind(400, "invalid-json", "The body is not JSON.", "Send a JSON object.")
INVALID = Kind(422, "invalid", "A value is invalid.", "See the schema at openapi.json.")
NOT_FOUND = Kind(404, "not-found", "There is no such thing.", "See the paths at openapi.json.")
KEY_REUSED = Kind(
    422, "key-reused", "The Idempotency-Key belongs to another request.", "Use a new key."
)
BUSY = Kind(429, "busy", "Too many requests wait.", "Try again later.")

_OF_STATUS = {
    kind.status: kind
    for kind in (
        Kind(400, "bad-request", "The request cannot be read."),
        Kind(401, "unauthenticated", "Nobody is logged in.", "Send Authorization: Bearer TOKEN."),
        Kind(403, "forbidden", "This is not allowed.", "Use a token with another role."),
        NOT_FOUND,
        Kind(405, "method-not-allowed", "The method is not allowed.", "Use GET or POST."),
        Kind(408, "timeout", "The request did not arrive in time.", "Send it again."),
        Kind(413, "too-large", "The body is too large.", "Send less in one request."),
        Kind(415, "unsupported-media-type", "The body has another type.", "Send application/json."),
        Kind(421, "wrong-host", "The server has another name."),
        INVALID,
        BUSY,
    )
}
_OF_ERROR: Mapping[type[DuelineError], Kind] = {
    LeaseLost: Kind(409, "lease-lost", "The claim was lost.", "Drop the result; claim again."),
    Duplicate: Kind(409, "duplicate", "Another job holds the unique key."),
    QuotaExceeded: Kind(429, "quota-exceeded", "A quota is exhausted.", "Try again later."),
    Conflict: Kind(409, "conflict", "The state does not allow this.", "Read it again."),
    NotFound: NOT_FOUND,
    ConfigError: Kind(503, "not-configured", "The server's configuration is invalid."),
    BadInput: INVALID,
    Unknown: Kind(
        503, "unknown-outcome", "The write may or may not have happened.",
        "Repeat the request with the same Idempotency-Key.",
    ),
    StoreUnavailable: Kind(503, "unavailable", "The store did not answer.", "Try again later."),
    DuelineError: Kind(500, "error", "The request failed."),
}  # fmt: skip


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What went wrong, and what to do."""

    type: str
    title: str
    status: int
    detail: str
    hint: str = ""
    job_id: str = ""
    unsent: int = 0
    jobs: list[str] = []


def problem(
    kind: Kind,
    detail: str = "",
    *,
    hint: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,  # noqa: ANN401  (fields of Problem)
) -> Response:
    """Return the response of a problem.

    Args:
        kind: Its kind.
        detail: What happened; by default the title.
        hint: What to do; by default that of the kind.
        headers: Headers of the response.
        **more: Other fields of Problem.
    """
    body = Problem(
        type=f"urn:dueline:problem:{kind.name}",
        title=kind.title,
        status=kind.status,
        detail=_text(detail or kind.title),
        hint=_text(hint or kind.hint),
        **more,
    )
    return Response(
        msgspec.json.encode(body), kind.status, headers, media_type="application/problem+json"
    )


def problem_of_status(
    status: int, detail: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response of a status: a request that did not reach an operation."""
    more = dict(headers or {})
    if status == 401:  # noqa: PLR2004
        more["WWW-Authenticate"] = "Bearer"
    if status == 405:  # noqa: PLR2004
        more.setdefault("Allow", "GET, HEAD, POST")
    kind = _OF_STATUS.get(status, Kind(status, "error", "The request failed."))
    return problem(kind, detail, headers=more)


def problem_of(error: DuelineError) -> Response:
    """Return the response of an error."""
    kind = next(kind for error_type, kind in _OF_ERROR.items() if isinstance(error, error_type))
    more: dict[str, Any] = {"unsent": getattr(error, "unsent", 0)}
    headers: dict[str, str] = {}
    if isinstance(error, Duplicate):
        more["job_id"] = error.job_id
    if isinstance(error, EnqueueUnknown):
        more["jobs"] = [row.id.hex() for row in error.jobs]
    if isinstance(error, QuotaExceeded) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if isinstance(error, StoreUnavailable):
        headers["Retry-After"] = str(RETRY_AFTER_S)
        more |= {"hint": kind.hint} if isinstance(error, EnqueueUnknown) else {}
    return problem(kind, error.message, headers=headers, **({"hint": error.hint} | more))


def _text(text: str) -> str:
    """Return a string whose control characters are visible, and that can be encoded."""
    return printable(text).encode("utf-8", "backslashreplace").decode()
