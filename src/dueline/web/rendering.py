"""HTML from templates; every string from the store is escaped."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dueline.core.clock import SECOND_US
from dueline.core.durations import distance_text, exact_text, span_text
from dueline.core.text import printable
from dueline.core.version import VERSION
from dueline.web.security import Identity
from dueline.web.site import site_of

_NOTICES = {
    "retried": "Retried: {n}.",
    "cancelled": "Cancelled: {n}.",
    "asked": "The job runs; its handler was asked to stop.",
    "asked-function": "Asked to end. Its compensations run first.",
    "signalled": "Sent.",
    "reset": "The function continues after this call.",
    "forked": "Began this one with the records of another.",
    "rescheduled": "Rescheduled: {n}.",
    "moved": "Moved: {n}. Jobs that cannot be moved, such as those that run, stay.",
    "settled": "Done with the result: {n}.",
    "deleted": "Deleted: {n}.",
    "again": "Enqueued again as new jobs: {n}.",
    "paused": "Paused. Workers stop claiming within five seconds.",
    "paused-job": "Paused: no worker claims the job.",
    "resumed": "Resumed.",
    "stopped": "Stopped within seconds. Resume continues with the rest.",
    "paused-stream": "Paused. Consumers begin no further batch within a second.",
    "resumed-stream": "Resumed.",
    "redriving": "Redriving, at its rate; this page shows the progress.",
    "saved": "Saved. Clients and workers apply the change within five seconds.",
    "triggered": "Enqueued one job.",
    "workers-ping": "Asked: {n}. Workers answer within five seconds.",
    "workers-quiet": "Asked: {n}. Workers stop claiming within five seconds.",
    "workers-resume": "Asked: {n}. Workers claim again within five seconds.",
    "workers-stop": "Asked: {n}. Workers begin to stop within five seconds.",
}
"""Texts that a page shows after a change: the address names one, so that nobody else writes it."""

_COUNT_MAX = 10**9


def _finalized(value: object) -> object:
    """Return a value whose control and bidirectional characters are visible."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value)


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("dueline.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "code": _with_code,
        "json": _json,
        "number": _number,
        "query": _query,
        "soft": _soft,
        "span": span_text,
    }
    made.globals |= {"version": VERSION}
    return made


def render(request: Request, name: str, *, status: int = 200, **values: Any) -> Response:  # noqa: ANN401
    """Return a page, or only the part that is replaced when htmx asks for it."""
    is_part = request.headers.get("hx-request") == "true"
    layout = "fragment.html" if is_part else "base.html"
    template = environment().get_template(name)
    return HTMLResponse(template.render(_common(request) | values, layout=layout), status)


def _common(request: Request) -> dict[str, Any]:
    """Return the values of every page."""
    site = site_of(request)
    identity: Identity | None = request.scope.get("dueline.identity")
    now_us = site.now_us() if identity else 0
    number = request.query_params.get("n", "")
    count = min(int(number), _COUNT_MAX) if number.isascii() and number.isdecimal() else 0
    notice = _NOTICES.get(request.query_params.get("notice", ""), "")

    def when(at_us: int) -> Markup:
        """Return a timestamp as its distance from now; the exact time is its title."""
        exact = exact_text(at_us)
        shown = distance_text(at_us, now_us) if abs(at_us - now_us) > SECOND_US else "now"
        return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, shown)

    return {
        "base": request.scope.get("root_path", ""),
        "here": f"{request.scope.get('root_path', '')}{site.path_of(request)}",
        "query": f"?{request.url.query}" if request.url.query else "",
        "title": site.title,
        "csrf": request.scope.get("dueline.csrf", ""),
        "identity": identity,
        "can_operate": identity is not None and identity.may("operator"),
        "can_administer": identity is not None and identity.may("admin"),
        "has_login": bool(request.scope["dueline.access"].tokens),
        "notice": notice.format(n=count),
        "now_us": now_us,
        "clock": datetime.fromtimestamp(now_us / SECOND_US, UTC).strftime("%H:%M:%S UTC"),
        "when": when,
    }


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _with_code(text: str) -> Markup:
    """Return a sentence in which commands between backticks are shown as code."""
    words = printable(text).split("`")
    if len(words) % 2 == 0:  # one has no partner, as in an error of a handler
        return escape(printable(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(word) if n % 2 else word for n, word in enumerate(words))


def _soft(text: str) -> Markup:
    """Return a name that may be broken after dots, underscores and colons, and nowhere else."""
    marked = str(escape(printable(text)))
    for sign in "._:":
        marked = marked.replace(sign, f"{sign}<wbr>")
    return Markup(marked)  # noqa: S704  (escaped before)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _query(values: Mapping[str, str]) -> str:
    return urlencode(values)
