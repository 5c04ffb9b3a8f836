"""Frames of the protocol of Cassandra, version 5, and connections fed with them."""

import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

ERROR, READY, AUTHENTICATE, RESULT, EXECUTE, BATCH = 0x00, 0x02, 0x03, 0x08, 0x0A, 0x0D
OVERLOADED = 0x1001
HEAD = struct.Struct(">BBhBI")  # version, flags, stream, opcode, length of the body
SEGMENT_HEAD_BYTES = 6
SEGMENT_TAIL_BYTES = 4
_ANSWER_5 = 0x85


class Frame(NamedTuple):
    """One message, of a client or of a server."""

    version: int
    flags: int
    stream: int
    opcode: int
    body: bytes

    def data(self) -> bytes:
        return HEAD.pack(*self[:4], len(self.body)) + self.body


def answer(stream: int, opcode: int = READY, body: bytes = b"") -> Frame:
    """Make what a server answers."""
    return Frame(_ANSWER_5, 0, stream, opcode, body)


def overloaded(stream: int = 0) -> Frame:
    """Make what a server before 5.0.9 answers to a request that waited too long, on stream 0."""
    message = b"Query timed out before it could start"
    return answer(stream, ERROR, struct.pack(">IH", OVERLOADED, len(message)) + message)


def segments(*frames: Frame) -> bytes:
    """Wrap frames as they are sent after the handshake."""
    from cassandra.connection import segment_codec_no_compression  # noqa: PLC0415  (may be absent)

    wrapped = BytesIO()
    for frame in frames:
        segment_codec_no_compression.encode(wrapped, frame.data())
    return wrapped.getvalue()


class Frames:
    """Bytes of one direction of a connection, read as frames."""

    def __init__(self) -> None:
        self.is_segmented = False
        self._data = b""
        self._frames = b""

    def read(self, data: bytes) -> Iterator[Frame]:
        """Take bytes; give the frames that are whole. Segments begin where the caller says so."""
        self._data += data
        while True:
            if self.is_segmented:
                self._unwrap()
            else:
                self._frames, self._data = self._frames + self._data, b""
            if len(self._frames) < HEAD.size:
                return
            *head, length = HEAD.unpack_from(self._frames)
            end = HEAD.size + length
            if len(self._frames) < end:
                return
            body, rest = self._frames[HEAD.size : end], self._frames[end:]
            self._frames = b""
            if self.is_segmented:
                self._frames = rest
            else:
                self._data = rest  # which may be segments
            version, flags, stream, opcode = head
            yield Frame(version, flags, stream, opcode, body)

    def _unwrap(self) -> None:
        while len(self._data) >= SEGMENT_HEAD_BYTES:
            length = int.from_bytes(self._data[:3], "little") & 0x1FFFF
            end = SEGMENT_HEAD_BYTES + length + SEGMENT_TAIL_BYTES
            if len(self._data) < end:
                return
            self._frames += self._data[SEGMENT_HEAD_BYTES : end - SEGMENT_TAIL_BYTES]
            self._data = self._data[end:]


def fed(connection_class: Any) -> Any:  # noqa: ANN401  (the driver's, which has no types)
    """Make a connection without a socket, past its handshake, whose bytes a test feeds."""
    from cassandra.connection import Connection  # noqa: PLC0415  (may be absent)

    class Fed(connection_class):  # type: ignore[misc]
        def __init__(self) -> None:
            Connection.__init__(self, protocol_version=5)
            self._enable_checksumming()

        def close(self) -> None:
            self.is_closed = True

        def push(self, data: bytes) -> None:
            """Send nothing."""

        def receive(self, *pieces: bytes) -> None:
            for piece in pieces:
                self._iobuf.write(piece)
                self.process_io_buffer()

        def ask(self, take: Callable[[object], object]) -> int:
            """Send a request; return its stream."""
            from cassandra.protocol import OptionsMessage  # noqa: PLC0415  (may be absent)

            with self.lock:
                self.in_flight += 1
                stream: int = self.get_request_id()
            self.send_msg(OptionsMessage(), stream, take)
            return stream

    return Fed()
