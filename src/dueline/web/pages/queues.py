"""Queues: depth, age, rate, pause and settings."""

from functools import partial
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import SPANS, DeadInOrder, History, chosen_shards
from dueline.web.rendering import render
from dueline.web.site import back, form_of, operations, site_of

CHOICES = {"history": get_args(History), "dead_in_order": get_args(DeadInOrder)}
"""Settings that are one of some values."""


def list_queues(request: Request) -> Response:
    """Show all queues."""
    return render(request, "queues.html", queues=site_of(request).admin.queues())


def show_queue(request: Request) -> Response:
    """Show one queue, its settings, shards and workers."""
    admin, name = site_of(request).admin, request.path_params["name"]
    queue = next((queue for queue in admin.queues() if queue.name == name), None)
    if queue is None:
        raise NotFound(f"There is no queue {name:.80}.", hint="The first job creates one.")
    return render(
        request,
        "queue.html",
        queue=queue,
        shards=admin.shards(name),
        circuits=admin.circuits(name),
        workers=[worker for worker in admin.workers() if name in worker.queues],
        choices=CHOICES,
        spans={word: getattr(queue.settings, SPANS[word]) for word in SPANS if word != "bucket"},
    )


def change_queue(request: Request, *, what: str) -> Response:
    """Pause or resume a queue, or change its settings."""
    name = request.path_params["name"]
    change = operations(request, "admin" if what == "settings" else "operator")
    site_of(request).admin.engine.catalog.chosen(name)
    if what == "settings":
        change.configure(name, **_changes(form_of(request)))
        return back(request, f"/queues/{name}", "saved")
    (change.pause if what == "pause" else change.resume)(name)
    return back(request, f"/queues/{name}", f"{what}d")


def _changes(form: dict[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {
        SPANS[word]: parse_span(form[word]) for word in SPANS if form.get(word)
    }
    changes |= {name: form[name] for name in CHOICES if form.get(name)}
    if shards := form.get("shards"):
        if not shards.isdecimal():
            raise BadInput(f"{shards!r:.80} is not a number of shards.", hint="Use 8, for example.")
        changes |= chosen_shards(int(shards))
    if not changes:
        raise BadInput("No setting is given.")
    return changes


ROUTES = [
    Route("/queues", list_queues),
    Route("/queues/{name}", show_queue),
    *(
        Route(f"/queues/{{name}}/{what}", partial(change_queue, what=what), methods=["POST"])
        for what in ("pause", "resume", "settings")
    ),
]
