"""Batches: the list, and one with what failed."""

from functools import partial
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.api.batch import Batch, glance
from dueline.batches import records
from dueline.core.batch_ids import BatchId
from dueline.core.errors import NotFound
from dueline.web.rendering import render
from dueline.web.site import back, operations, site_of

PAGE = 50
FAILURES_SHOWN = 50


def list_batches(request: Request) -> Response:
    """Show batches by name, with their progress."""
    site = site_of(request)
    name = request.query_params.get("name", "").strip()
    after = request.query_params.get("after") or None
    listed = (
        batch
        for batch in records.listed(site.admin.engine.store, after=after)
        if name in batch.name
    )
    page = list(islice(listed, PAGE))
    more = next(listed, None) is not None
    shown = [(batch, glance(_handle(request, batch))[0]) for batch in page]
    return render(
        request,
        "batches.html",
        batches=shown,
        next=page[-1].name if more else None,
        searched=name,
    )


def show_batch(request: Request) -> Response:
    """Show a batch and its first failed jobs."""
    batch = _found(request)
    counts, failed = glance(_handle(request, batch))
    return render(
        request,
        "batch.html",
        batch=batch,
        counts=counts,
        failures=list(islice(failed, FAILURES_SHOWN)),
        hidden=max(0, counts.failed - FAILURES_SHOWN),
    )


def change_batch(request: Request, *, what: str) -> Response:
    """Retry the dead jobs of a batch, or cancel its jobs."""
    batch, clock = _found(request), site_of(request).app.clock
    path, recorded = f"/batches/{batch.id.hex()}", operations(request).batch
    if what == "retry":
        count = recorded(
            what, batch.name, lambda queues: Batch(batch, queues, clock).retry_failed()
        )
        return back(request, path, "retried", count)
    changed = recorded(what, batch.name, lambda queues: Batch(batch, queues, clock).cancel())
    return back(request, path, "cancelled", changed.done + changed.asked)


def _found(request: Request) -> records.Batch:
    store = site_of(request).admin.engine.store
    text = request.path_params["id"]
    name = ""
    if len(text) == 26 and text.isalnum() and text.isascii():  # noqa: PLR2004  (digits of an id)
        name = records.name_of(store, _id_of(text))
    batch = records.named(store, name) if name else None
    if batch is None or batch.id.hex() != text:
        raise NotFound(f"There is no batch {text!r:.40}.", hint="Look at the list of batches.")
    return batch


def _id_of(text: str) -> BatchId:
    try:
        return BatchId(bytes.fromhex(text))
    except ValueError:
        return BatchId(b"")


def _handle(request: Request, batch: records.Batch) -> Batch[object]:
    app = site_of(request).app
    return Batch(batch, app.queues, app.clock)


ROUTES = [
    Route("/batches", list_batches),
    Route("/batches/{id}", show_batch),
    *(
        Route(f"/batches/{{id}}/{what}", partial(change_batch, what=what), methods=["POST"])
        for what in ("retry", "cancel")
    ),
]
