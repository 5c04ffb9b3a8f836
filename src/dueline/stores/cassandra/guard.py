"""Connections that never give one request's answer to another.

A frame carries the number of its stream, and the driver pairs answers with requests by it. Servers
before 5.0.9 answer a request that waited too long in their queue on stream 0, whatever its own
was (CASSANDRA-21508), and the driver (3.30) makes the number of any frame that no request waits for
free for use: 0 is then free twice, and the first answer on it goes to the second request.
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
"""The stream of answers to requests that the server does not name; no request uses it."""

_PROTOCOL: Final = 5
_ANSWER: Final = 0x80  # set in the first byte of what a server sends
_TRIED: Final = 1000


class StrayAnswers:
    """Numbers of answers that no request waited for, in all connections of this process.

    Attributes:
      dropped: answers on stream 0, each to a request that is never answered on its own.
      closed: connections that were closed since an answer came on another stream.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.dropped = 0
        self.closed = 0

    def drop(self) -> int:
        """Count an answer on stream 0, and return how many there were."""
        with self._lock:
            self.dropped += 1
            return self.dropped

    def close(self) -> None:
        """Count a connection that is closed."""
        with self._lock:
            self.closed += 1


STRAY_ANSWERS: Final = StrayAnswers()


class GuardedConnection(DefaultConnection):  # type: ignore[misc]  # the driver has no types
    """The driver's connection; an answer reaches the request that it belongs to, or none."""

    stray_answers = STRAY_ANSWERS

    def get_request_id(self) -> int:
        """Return a free stream; after the handshake never 0."""
        number: int = super().get_request_id()
        while number == _SHARED_STREAM and self._is_checksumming_enabled:
            number = super().get_request_id()
        return number

    def process_msg(self, header: Any, body: bytes) -> None:  # noqa: ANN401  (the driver's frame)
        """Pass an answer on to its request.

        An answer on stream 0 is dropped where none waits for it. On any other stream the numbers of
        this connection are no longer to be trusted, so that all of its requests end as unknown.
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
        """Log the first answer that is dropped, and then fewer and fewer of them."""
        if count & (count - 1) == 0:
            log.warning(
                "%s answered on stream 0, which no request uses (%d so far in this process). "
                "The answer was dropped. Upgrade the server to Cassandra 5.0.9 or later.",
                self.endpoint,
                count,
            )

    def _is_awaited(self, stream: int) -> bool:
        """Return whether a request waits on a stream, or was given up and is answered late."""
        return (
            stream in self._requests
            or stream in self.orphaned_request_ids
            or stream in self._continuous_paging_sessions
        )

    def _process_segment_buffer(self) -> None:
        """Read a segment, or wait for more of it; the driver loses the beginning of a head."""
        if self._io_buffer.readable_io_bytes() < self._segment_codec.header_length_with_crc:
            self._io_buffer._segment_consumed = False  # noqa: SLF001  (it is the connection's own)
            self._io_buffer.io_buffer.seek(0)
        else:
            super()._process_segment_buffer()

    @classmethod
    def create_timer(cls, timeout: float, callback: Callable[[], None]) -> Any:  # noqa: ANN401
        """Start a timer; that of a request gives up this request's stream alone."""
        future = _future_of(callback)
        is_limit = getattr(getattr(callback, "func", callback), "__name__", "") == "_on_timeout"
        if future is not None and is_limit:
            callback = partial(_give_up, future, callback)
        return super().create_timer(timeout, callback)


def _give_up(future: Any, give_up: Callable[[], None]) -> None:  # noqa: ANN401
    """Run what the driver does when a request takes too long, on the stream that is its own.

    After a statement was prepared again, the driver remembers the stream of before, where another
    request may wait by now.
    """
    connection = future._connection  # noqa: SLF001
    if connection is not None:
        requests = connection._requests.copy()  # noqa: SLF001
        own = requests.get(future._req_id)  # noqa: SLF001
        if own is None or _future_of(own[0]) is not future:
            own_streams = [one for one, told in requests.items() if _future_of(told[0]) is future]
            future._req_id = own_streams[0] if own_streams else None  # noqa: SLF001
    give_up()


def _future_of(callback: Any) -> Any:  # noqa: ANN401
    """Return the request that a callback belongs to; None where it is no request's."""
    called = getattr(callback, "func", callback)
    for one in (called, *getattr(callback, "args", ())[:1]):
        owner = getattr(one, "__self__", None)
        if isinstance(owner, ResponseFuture):
            return owner
    return None


def is_effective() -> bool:
    """Try the guard on a connection without a socket: another driver may differ inside."""
    answers: list[object] = []
    try:
        trial = _Trial()
        stream = trial.get_request_id()
        trial.send_msg(OptionsMessage(), stream, answers.append)
        for byte in _answer_on(_SHARED_STREAM) + _answer_on(stream):  # cut everywhere
            trial.receive(bytes([byte]))
        streams = {trial.get_request_id() for _ in range(_TRIED)}
    except Exception:
        log.warning("The guard does not work with this driver.", exc_info=True)
        return False
    is_sound = not trial.is_defunct and len(answers) == trial.stray_answers.dropped == 1
    return is_sound and len(streams) == _TRIED and _SHARED_STREAM not in streams


def _answer_on(stream: int) -> bytes:
    """Return the bytes of an answer without content, as they come from a server."""
    frame, segment = BytesIO(), BytesIO()
    frame.write(v3_header_pack(_ANSWER | _PROTOCOL, 0, stream, ReadyMessage.opcode))
    write_int(frame, 0)
    segment_codec_no_compression.encode(segment, frame.getvalue())
    return segment.getvalue()


class _Trial(GuardedConnection):
    """A connection without a socket, past its handshake."""

    def __init__(self) -> None:
        Connection.__init__(self, protocol_version=_PROTOCOL)
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
