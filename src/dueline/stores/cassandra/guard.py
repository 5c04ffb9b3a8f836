"""Connections that never pass the answer to one request to another.

A frame has a stream number, by which the driver matches answers to requests. Servers before 5.0.9
answer a request that waited too long in their queue on stream 0, whatever its own stream
(CASSANDRA-21508). The driver (3.30) releases the number of any frame that no request waits for: 0
is then free twice, and the first answer on it goes to the second request.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, Final

from cassandra.cluster import DefaultConnection, ResponseFuture
from cassandra.connection import Connection, ConnectionException, segment_codec_no_compression
from cassandra.marshal import v3_header_pack
from cassandra.protocol import OptionsMessage, ReadyMessage, write_int

log = logging.getLogger("dueline.cassandra")

_SHARED_STREAM: Final = 0
"""The stream of answers without a request; no request uses it."""

PROTOCOL: Final = 5
"""Protocol version of every server since 4.0."""

_ANSWER: Final = 0x80  # set in the first byte of what a server sends
_TRIED: Final = 1000


class StrayAnswers:
    """Counters of answers that no request waited for, in all connections of this process.

    Attributes:
      dropped: Number of answers on stream 0; their requests get no other answer.
      closed: Number of connections closed because of an answer on another stream.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.dropped = 0
        self.closed = 0

    def drop(self) -> int:
        """Count an answer on stream 0, and return the total."""
        with self._lock:
            self.dropped += 1
            return self.dropped

    def close(self) -> None:
        """Count a closed connection."""
        with self._lock:
            self.closed += 1


STRAY_ANSWERS: Final = StrayAnswers()


class GuardedConnection(DefaultConnection):  # type: ignore[misc]  # the driver has no types
    """The driver's connection; an answer reaches its own request, or none."""

    stray_answers = STRAY_ANSWERS

    def get_request_id(self) -> int:
        """Return a free stream, after the handshake never 0."""
        number: int = super().get_request_id()
        while number == _SHARED_STREAM and self._is_checksumming_enabled:
            number = super().get_request_id()
        return number

    def process_msg(self, header: Any, body: bytes) -> None:  # noqa: ANN401  (the driver's frame)
        """Pass an answer to its request.

        An answer on stream 0 is dropped if no request waits for it. On another stream it means that
        stream numbers are wrong: the connection is closed and its requests end as unknown.
        """
        stream = header.stream
        if stream < 0 or self._is_awaited(stream):
            super().process_msg(header, body)
        elif self.is_defunct or self.is_closed:
            pass
        elif stream == _SHARED_STREAM:
            self._report(self.stray_answers.drop())
        else:
            self.stray_answers.close()
            error = ConnectionException(
                f"an answer came on stream {stream}, where no request waits", self.endpoint
            )
            log.warning("A connection was closed: %s.", error)
            self.defunct(error)

    def _report(self, count: int) -> None:
        """Log the first dropped answer, then the second, fourth, eighth, ..."""
        if count & (count - 1) == 0:
            log.warning(
                "%s answered on stream 0, which no request uses (%d so far in this process). "
                "The answer was dropped. Upgrade the server to Cassandra 5.0.9 or later.",
                self.endpoint,
                count,
            )

    def _is_awaited(self, stream: int) -> bool:
        """Return whether a request waits on a stream, or timed out and is answered late."""
        return (
            stream in self._requests
            or stream in self.orphaned_request_ids
            or stream in self._continuous_paging_sessions
        )

    def _process_segment_buffer(self) -> None:
        """Read a segment, or wait for more bytes; the driver loses a part of its header."""
        if self._io_buffer.readable_io_bytes() < self._segment_codec.header_length_with_crc:
            self._io_buffer._segment_consumed = False  # noqa: SLF001  (it is the connection's own)
            self._io_buffer.io_buffer.seek(0)
        else:
            super()._process_segment_buffer()

    @classmethod
    def create_timer(cls, timeout: float, callback: Callable[[], None]) -> Any:  # noqa: ANN401
        """Start a timer; a request's timer releases only the stream of this request."""
        future = _future_of(callback)
        is_limit = getattr(getattr(callback, "func", callback), "__name__", "") == "_on_timeout"
        if future is not None and is_limit:
            callback = partial(_give_up, future, callback)
        return super().create_timer(timeout, callback)


def _give_up(future: Any, give_up: Callable[[], None]) -> None:  # noqa: ANN401
    """Run the driver's timeout of a request, on the request's own stream.

    After it prepares a statement again, the driver keeps the old stream, on which another request
    may wait by now.
    """
    connection = future._connection  # noqa: SLF001
    if connection is not None:
        requests = connection._requests.copy()  # noqa: SLF001
        own = requests.get(future._req_id)  # noqa: SLF001
        if own is None or _future_of(own[0]) is not future:
            own_streams = [key for key, entry in requests.items() if _future_of(entry[0]) is future]
            future._req_id = own_streams[0] if own_streams else None  # noqa: SLF001
    give_up()


def _future_of(callback: Any) -> Any:  # noqa: ANN401
    """Return the request of a callback, or None."""
    called = getattr(callback, "func", callback)
    for method in (called, *getattr(callback, "args", ())[:1]):
        owner = getattr(method, "__self__", None)
        if isinstance(owner, ResponseFuture):
            return owner
    return None


def is_effective() -> bool:
    """Test the guard on a connection without a socket: another driver version may differ."""
    answers: list[object] = []
    try:
        trial = _Trial()
        stream = trial.get_request_id()
        trial.send_msg(OptionsMessage(), stream, answers.append)
        for byte in _answer_on(_SHARED_STREAM) + _answer_on(stream):  # split at every byte
            trial.receive(bytes([byte]))
        streams = {trial.get_request_id() for _ in range(_TRIED)}
    except Exception:
        log.warning("The guard does not work with this driver.", exc_info=True)
        return False
    is_sound = not trial.is_defunct and len(answers) == trial.stray_answers.dropped == 1
    return is_sound and len(streams) == _TRIED and _SHARED_STREAM not in streams


def _answer_on(stream: int) -> bytes:
    """Return the bytes of an empty answer from a server."""
    frame, segment = BytesIO(), BytesIO()
    frame.write(v3_header_pack(_ANSWER | PROTOCOL, 0, stream, ReadyMessage.opcode))
    write_int(frame, 0)
    segment_codec_no_compression.encode(segment, frame.getvalue())
    return segment.getvalue()


class _Trial(GuardedConnection):
    """A connection without a socket, past its handshake."""

    def __init__(self) -> None:
        Connection.__init__(self, protocol_version=PROTOCOL)
        self.stray_answers = StrayAnswers()
        self._enable_checksumming()

    def _report(self, count: int) -> None:
        """Log nothing."""

    def close(self) -> None:
        self.is_closed = True

    def push(self, data: bytes) -> None:
        """Send nothing."""

    def receive(self, data: bytes) -> None:
        self._iobuf.write(data)
        self.process_io_buffer()
