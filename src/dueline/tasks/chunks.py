"""Partial results: chunks that a handler emits while it runs."""

import threading
from typing import Any, Final, NamedTuple, Protocol

from dueline.core.codec import AS_JSON
from dueline.core.errors import BadInput
from dueline.core.job import Claim, Job
from dueline.core.user_code import text_of

CHUNK_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a chunk, as JSON."""

CHUNKS_MAX: Final = 100_000
"""Maximum number of chunks of an attempt."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of all chunks of an attempt, as JSON."""

_EMITTING: Final = threading.Lock()
"""Held while a handler numbers a chunk: its threads share what it has emitted."""


class Emitted(NamedTuple):
    """A chunk on its way to the store. number: 1 for the first of the claim. data: as JSON."""

    claim: Claim
    attempt: int
    number: int
    data: str


class Sink(Protocol):
    """Takes chunks."""

    def emit(self, emitted: Emitted) -> None:
        """Take a chunk; those of a claim in their order."""
        ...


class Emission:
    """What one attempt has emitted; threads of the handler may share it."""

    def __init__(self, job: Job) -> None:
        self._claim = job.claim()
        self._attempt = job.errors + 1
        self._count = self._bytes = 0

    def add(self, value: object, sink: Sink) -> None:
        """Pass a chunk on.

        Raises: BadInput: the chunk is not JSON or too large, or there are too many.
        """
        data = encoded(value)
        with _EMITTING:
            if self._count >= CHUNKS_MAX or self._bytes + len(data) > BYTES_MAX:
                raise BadInput(
                    f"The attempt has emitted {self._count} chunks of {self._bytes} bytes; "
                    f"{CHUNKS_MAX} chunks of {BYTES_MAX} bytes are allowed. Those are stored.",
                    hint="Emit summaries, or append the data to a stream.",
                )
            self._count += 1
            self._bytes += len(data)
            sink.emit(Emitted(self._claim, self._attempt, self._count, data.decode()))


def emit(context: Any, chunk: object, job: Job, sink: Sink, *, is_finished: bool) -> None:  # noqa: ANN401
    """Pass on a chunk of a handler.

    Args: context: of the handler; has `_emission` once something is emitted. is_finished: the
      handler has finished its job in a transaction.

    Raises: BadInput: as `Context.emit`.
    """
    if is_finished:
        raise BadInput(
            "A job that is finished in a transaction cannot emit chunks.",
            hint="Return the value instead of calling `finish`.",
        )
    with _EMITTING:
        if not hasattr(context, "_emission"):
            context._emission = Emission(job)  # noqa: SLF001  (most contexts have none)
    context._emission.add(chunk, sink)  # noqa: SLF001


def expect_no_chunks(context: object) -> None:
    """Raise BadInput if a handler that finishes its job in a transaction has emitted chunks."""
    if hasattr(context, "_emission"):
        raise BadInput(
            "A handler that emits chunks cannot finish its job in a transaction: the end could be "
            "seen before the last of them.",
            hint="Return the value instead.",
        )


def encoded(value: object) -> bytes:
    """Return a chunk as JSON.

    Raises: BadInput: it is not JSON, or too large.
    """
    try:
        data = AS_JSON.write(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"The chunk cannot be written as JSON: {text_of(error)}.", hint="Emit plain values."
        ) from error
    if len(data) > CHUNK_BYTES_MAX:
        raise BadInput(
            f"The chunk has {len(data)} bytes; {CHUNK_BYTES_MAX} are allowed.",
            hint="Emit it in parts, or store it elsewhere and emit its location.",
        )
    return data
