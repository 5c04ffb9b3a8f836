"""Streams: lag by group and shard, their newest events, and what became of an event."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.core.errors import BadInput
from dueline.core.queue_settings import StreamPause
from dueline.web.drawing import heat
from dueline.web.rendering import render
from dueline.web.site import back, form_of, operations, site_of

EVENTS: Final = 50
"""Maximum number of events that the page of a stream shows."""


def streams(request: Request) -> Response:
    """Show all streams with their groups, and the lag of each shard."""
    drawn = [(stream, heat(stream)) for stream in site_of(request).admin.streams()]
    return render(request, "streams.html", streams=drawn)


def show_stream(request: Request) -> Response:
    """Show one stream: its subscribers and its newest events."""
    site = site_of(request)
    stream = site.admin.stream(request.path_params["name"], events=EVENTS)
    values = [site.redaction.value(event.value) for event in stream.latest]
    events = list(zip(stream.latest, values, strict=True))
    return render(request, "stream.html", stream=stream, events=events)


def show_event(request: Request) -> Response:
    """Show one event, and what each group does with it."""
    site = site_of(request)
    details = site.admin.explain_event(request.path_params["name"], request.path_params["event"])
    event = details.event
    return render(
        request,
        "event.html",
        details=details,
        event=event,
        headers={} if event is None else site.redaction.value(event.headers),
        value=None if event is None else site.redaction.value(event.value),
    )


def confirm_pause(request: Request) -> Response:
    """Ask whether a group, or a shard, should be paused."""
    operations(request)
    name, values = request.path_params["name"], request.query_params
    return render(
        request,
        "ask.html",
        heading=f"Pause a part of {name}",
        text=StreamPause(*_chosen(values)).text,
        sub="Consumers begin no further batch of it; they keep their shards and positions.",
        action=f"/streams/{name}/pause",
        values={word: values[word] for word in ("group", "shard") if values.get(word)},
        button="Pause",
        back="/streams",
    )


def change_stream(request: Request, *, what: str) -> Response:
    """Pause or resume a group, or a shard."""
    change = operations(request)
    group, shard = _chosen(form_of(request))
    name = request.path_params["name"]
    (change.pause_stream if what == "pause" else change.resume_stream)(
        name, group=group, shard=shard
    )
    return back(request, "/streams", f"{what}d-stream")


def _chosen(values: Mapping[str, str]) -> tuple[str | None, int | None]:
    shard = values.get("shard") or None
    if shard is not None and not (shard.isascii() and shard.isdecimal() and len(shard) < 10):  # noqa: PLR2004
        raise BadInput(f"{shard!r:.80} is not a shard.", hint="Use 3, for example.")
    return values.get("group") or None, None if shard is None else int(shard)


ROUTES = [
    Route("/streams", streams),
    Route("/streams/{name}", show_stream),
    Route("/streams/{name}/events/{event}", show_event),
    Route("/streams/{name}/pause", confirm_pause),
    *(
        Route(f"/streams/{{name}}/{what}", partial(change_stream, what=what), methods=["POST"])
        for what in ("pause", "resume")
    ),
]
