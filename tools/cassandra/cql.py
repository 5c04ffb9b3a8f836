"""Two questions to a node, in CQL's own bytes.

Enough of the native protocol, version 4, to ask a node whether it is there without a driver.

Source: doc/native_protocol_v4.spec of Apache Cassandra, sections 2 to 4.
"""

import socket
import struct

from tools.cassandra.config import CQL_PORT

ANSWER_TIMEOUT_S = 2.0

_HEADER = struct.Struct(">BBhBI")  # version, flags, stream, opcode, length of the body
_REQUEST_VERSION = 4
_STARTUP, _READY, _OPTIONS, _SUPPORTED, _QUERY, _RESULT = 0x01, 0x02, 0x05, 0x06, 0x07, 0x08
_CONSISTENCY_ALL = 5

# Every node of a ring of three holds every row of this keyspace.
_READ = (
    b"SELECT * FROM system_distributed.view_build_status WHERE keyspace_name='' AND view_name=''"
)


def answers(host: str) -> bool:
    """Tell whether the node answers; an open port is not enough, it may be paused."""
    return _ask(host, (_OPTIONS, b"", _SUPPORTED))


def reaches_all(host: str) -> bool:
    """Tell whether the node holds all nodes to be up and reads from every one of them."""
    version = struct.pack(">H", 1) + _string(b"CQL_VERSION") + _string(b"3.0.0")
    read = struct.pack(">I", len(_READ)) + _READ + struct.pack(">HB", _CONSISTENCY_ALL, 0)
    return _ask(host, (_STARTUP, version, _READY), (_QUERY, read, _RESULT))


def _ask(host: str, *steps: tuple[int, bytes, int]) -> bool:
    """Send each request and compare the answer's opcode; stop at the first that differs."""
    try:
        with socket.create_connection((host, CQL_PORT), timeout=ANSWER_TIMEOUT_S) as connection:
            return all(_exchange(connection, *step) for step in steps)
    except OSError:
        return False


def _exchange(connection: socket.socket, opcode: int, body: bytes, expected: int) -> bool:
    connection.sendall(_HEADER.pack(_REQUEST_VERSION, 0, 0, opcode, len(body)) + body)
    _, _, _, answered, length = _HEADER.unpack(_read(connection, _HEADER.size))
    _read(connection, length)
    return bool(answered == expected)


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        part = connection.recv(size_bytes - len(data))
        if not part:
            raise ConnectionError("The node closed the connection.")
        data += part
    return data


def _string(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text
