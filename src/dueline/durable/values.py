"""How the values of durable functions are stored: with the codec of their arguments."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dueline.core.blobs import BLOB_BYTES_MAX, BY_ADDRESS
from dueline.core.call_options import terms_of
from dueline.core.codec import AS_JSON, DAMAGE, JSON, RESULT_BYTES_MAX, to_plain, with_frames
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.core.user_code import text_of
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.payload_codecs import PLAIN

if TYPE_CHECKING:
    from dueline.core.shared_calls import SharedCalls
    from dueline.jobs.decisions import Decision

_DIGEST_BYTES: Final = 6


class StoredValue(NamedTuple):
    """An encoded value, and its codec."""

    codec: int
    data: bytes


class ValueHandler(Handler):
    """A handler whose function stores values while it runs.

    Attributes:
      engine: Returns the engine of the application.
      queues: Returns its queues.
      shared: Returns what writes the records of its coroutine functions.
      version: Of the code.
    """

    __slots__ = ("engine", "queues", "shared", "version")

    engine: Callable[[], Engine]
    queues: Callable[[], Queues]
    shared: "Callable[[], SharedCalls[Decision, bool]]"
    version: str

    def policy_of(self, job: Job) -> Retry:
        """Return the policy of a job: of its call, or of the function."""
        return self.retry.with_terms(terms_of(job).retry)

    def write_value(
        self,
        value: object,
        name: str,
        kind: Any = Any,  # noqa: ANN401
        *,
        job: Job | None = None,
    ) -> StoredValue:
        """Encode a value with the codec of the function's arguments.

        Args: name: of what has the value, for the error. kind: the annotation that must fit it.
          job: of the function, where the value may be kept as a blob.

        Raises: BadInput: it cannot be encoded, is too large, or does not fit.
        """
        way = self._payloads.way(self._codec)
        form = AS_JSON if way is PLAIN else way.form
        try:
            data = form.write(value)
            form.decoder(kind)(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(
                f"The value of {name} cannot be stored: {text_of(error)}.",
                hint="Return plain values that fit the annotation of the result.",
            ) from error
        if job is not None and (blobs := self._payloads.blobs) and blobs.is_large(data, self.name):
            codec = JSON if way is PLAIN else way.codec
            closed = data if way is PLAIN else way.closed(data, self.name, BLOB_BYTES_MAX)
            return StoredValue(BY_ADDRESS, blobs.kept(closed, codec, "value", job))
        if len(data) > RESULT_BYTES_MAX:
            raise BadInput(
                f"The value of {name} has {len(data)} bytes; {RESULT_BYTES_MAX} are allowed.",
                hint="Keep large values of steps in a folder, Dueline(..., blobs=...), or store "
                "them elsewhere and return their location.",
            )
        if way is PLAIN:
            return StoredValue(JSON, data)
        return StoredValue(way.codec, way.closed(data, self.name, RESULT_BYTES_MAX))

    @property
    def is_sealed(self) -> bool:
        """Whether values are stored in a codec of the application, such as encryption."""
        return self._payloads.way(self._codec) is not PLAIN

    def digest_of(self, *values: object) -> str:
        """Return a digest of arguments; empty if they cannot be encoded, or are encrypted."""
        if self.is_sealed:
            return ""
        try:
            data = msgspec.json.encode(values, enc_hook=to_plain, order="deterministic")
        except (TypeError, ValueError, OverflowError, RecursionError):
            return ""
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()

    def read_value(self, codec: int, data: bytes, kind: Any = Any) -> Any:  # noqa: ANN401
        """Decode a value.

        Raises: ValueError: it does not fit, is damaged, or in an unknown codec.
        """
        form = AS_JSON
        if codec != JSON:
            form, data = self._payloads.opened(codec, data, self.name, RESULT_BYTES_MAX)
        try:
            return with_frames(form.decoder(kind)(data), data)
        except (*DAMAGE, TypeError) as error:
            raise ValueError(text_of(error)) from error
