"""How the arguments and results of a handler are encoded."""

from collections.abc import Mapping, Sequence
from typing import Any

from dueline.core.blobs import BLOB_BYTES_MAX, whole_given
from dueline.core.codec import AS_JSON, JSON, PAYLOAD_BYTES_MAX, encode_result
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.tasks.arguments import Arguments
from dueline.tasks.payload_codecs import PLAIN, Payloads


class HandlerCodec:
    """Encodes and decodes the arguments of a task, and encodes its results."""

    __slots__ = ("_codec", "_payloads", "arguments", "large", "name")

    _codec: str | None
    _payloads: Payloads
    arguments: Arguments
    large: int | None
    name: str

    def write(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[int, bytes]:
        """Encode the arguments of a call; return the codec and the bytes.

        Raises: BadInput: as `Arguments.encode`, or a codec of the application failed.
        """
        way = self._payloads.ways.get(self._codec) or self._payloads.way(self._codec)
        most = self._payloads.bytes_max
        if way is PLAIN:
            return JSON, self.arguments.encode(args, kwargs, AS_JSON, most)
        body = self.arguments.encode(args, kwargs, way.form, most)
        return way.codec, way.closed(body, self.name, most)

    def write_small(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[int, bytes]:
        """Encode as `write`, for what keeps arguments without a job.

        Raises: BadInput: as `write`, and for large arguments.
        """
        codec, body = self.write(args, kwargs)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise BadInput(
                f"The arguments of {self.name} have {len(body)} bytes; {PAYLOAD_BYTES_MAX} are "
                "allowed here.",
                hint="Only those of jobs are kept as blobs.",
            )
        return codec, body

    @property
    def has_blobs(self) -> bool:
        """Whether its arguments and results may be blobs."""
        return self._payloads.blobs is not None

    def write_result(self, value: object, job: Job) -> bytes:
        """Encode the result of a job; a large one becomes a blob.

        Raises: BadInput: as `encode_result`. StoreUnavailable: the blob cannot be written.
        """
        blobs = self._payloads.blobs
        if blobs is None:
            return encode_result(value, self.name)
        data = encode_result(value, self.name, BLOB_BYTES_MAX)
        if not blobs.is_large(data, self.name):
            return data
        codec, data = self._payloads.sealed_result(data, self.name, self._codec)
        return blobs.kept(data, codec, "result", job)

    def write_many(
        self, calls: Sequence[tuple[Sequence[object], Mapping[str, object]]]
    ) -> tuple[int, list[bytes]]:
        """Encode the arguments of many calls, as `write` does for one."""
        way, most = self._payloads.way(self._codec), self._payloads.bytes_max
        bodies = [self.arguments.encode(*call, way.form, most) for call in calls]
        return way.codec, [way.closed(body, self.name, most) for body in bodies]

    def write_positional(self, calls: Sequence[Sequence[object]]) -> tuple[int, list[bytes]]:
        """Encode as `write_many`, for calls without keyword arguments."""
        if self._payloads.way(self._codec) is PLAIN:
            return JSON, self.arguments.encode_many(calls, self._payloads.bytes_max)
        return self.write_many([(call, {}) for call in calls])

    def reads(self, codec: int) -> bool:
        """Return whether arguments in this codec can be decoded here."""
        return self._payloads.knows(codec)

    def write_rest(
        self, args: Sequence[object], kwargs: Mapping[str, object], given: int
    ) -> tuple[int, bytes]:
        """Encode as `write`, for a call whose first `given` arguments are not known yet."""
        way, most = self._payloads.way(self._codec), self._payloads.bytes_max
        body = self.arguments.encode_rest(args, kwargs, given, way.form, most)
        return way.codec, way.closed(body, self.name, most)

    def read(
        self, codec: int, body: bytes, given: bytes = b""
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Decode arguments as the annotated types.

        Args: given: the first arguments, which are not in the body, as a JSON array; may be empty.

        Raises: Misfit: they do not fit the function. BadInput: they are damaged.
        """
        form = AS_JSON
        if codec != JSON:
            form, body = self._payloads.opened(codec, body, self.name)
        if given:
            given = whole_given(self._payloads.blobs, given)
            return self.arguments.decode_rest(given, body, form)
        return self.arguments.decode(body, form)
