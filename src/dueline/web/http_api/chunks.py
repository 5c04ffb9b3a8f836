"""Partial results: the chunks of a job as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Annotated, Final

from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from dueline.api.chunks import Chunk, ChunkReader
from dueline.api.job_handle import parse_id
from dueline.core.clock import SystemClock
from dueline.core.codec import encode
from dueline.core.errors import DuelineError
from dueline.web.http_api.frame import Call, Input, operation
from dueline.web.http_api.waiting import WAIT_S_MAX, waiting
from dueline.web.security import Refusal

LAST_ID: Final = "Last-Event-ID"
_RETRY_MS: Final = 100


class ChunkQuery(Input):
    """Which chunks. after: the id of the last one that was read; the header Last-Event-ID wins."""

    after: Annotated[str, Meta(max_length=40)] | None = None
    wait: Annotated[float, Meta(ge=0, le=WAIT_S_MAX, description="Maximum time in seconds.")] = (
        WAIT_S_MAX
    )


@operation("GET", "/jobs/{id}/chunks", role="producer", media="text/event-stream")
async def follow_chunks(call: Call, query: ChunkQuery) -> StreamingResponse:
    """Follow the partial results of a job as server-sent events.

    Each event has the id of a chunk, and as its data the object `{"attempt", "value", "at"}`. The
    event `end` follows the last chunk. A response ends after `wait` seconds: send the last id as
    Last-Event-ID, as an EventSource does by itself, and no chunk is missed or sent twice.
    """
    job_id, queues = parse_id(call.path["id"]), call.site.app.queues
    after = call.request.headers.get(LAST_ID) or query.after
    reader = ChunkReader(queues, SystemClock(), job_id, after)
    first = await run_in_threadpool(reader.poll)
    if query.wait and not reader.has_ended:
        with waiting.one_more():  # refused here, before the response begins
            pass
    events = _events(call, reader, first, query.wait)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(
    call: Call, reader: ChunkReader, chunks: list[Chunk], wait_s: float
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    yield b"retry: %d\n\n" % _RETRY_MS
    # Where the store fails, or too many wait, the client goes on after the last id.
    with suppress(DuelineError, Refusal), waiting.one_more() if wait_s else nullcontext():
        while True:
            for chunk in chunks:
                yield _event(chunk)
            if reader.has_ended:
                yield b"event: end\ndata: {}\n\n"
                return
            if not chunks:
                if loop.time() >= end_s or await call.request.is_disconnected():
                    return
                await asyncio.sleep(reader.pause_s)
            chunks = await run_in_threadpool(reader.poll)


def _event(chunk: Chunk) -> bytes:
    data = encode({"attempt": chunk.attempt, "value": chunk.value, "at": chunk.at})
    return b"id: %b\ndata: %b\n\n" % (chunk.id.encode(), data)


OPERATIONS = (follow_chunks,)
