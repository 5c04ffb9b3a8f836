"""What kind of server listens at an address that does not answer as expected.

Greetings of several protocols are sent, each on a connection of its own. Only an answer that one
protocol alone gives counts: a server that is silent, starts or closes connections is not named.
"""

import re
import selectors
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

PATIENCE_S: Final = 1.0
"""Maximum duration of a probe, in seconds."""

CASSANDRA: Final = "Cassandra"
POSTGRESQL: Final = "PostgreSQL"
HTTP: Final = "HTTP"
TLS: Final = "TLS"

_SERVERS: Final = {
    POSTGRESQL: "a PostgreSQL server",
    CASSANDRA: "a Cassandra node",
    HTTP: "an HTTP server",
}


def _client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


class _Protocol(NamedTuple):
    """What a client says first, and the begin of an answer that only this protocol gives."""

    greeting: bytes
    answer: re.Pattern[bytes]


_PROTOCOLS: Final[Mapping[str, _Protocol]] = {
    CASSANDRA: _Protocol(  # OPTIONS; ERROR or SUPPORTED in a version from 3 to 6
        b"\x05\x00\x00\x00\x05\x00\x00\x00\x00", re.compile(rb"(?s)[\x83-\x86]...[\x00\x06]")
    ),
    POSTGRESQL: _Protocol(
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f", re.compile(rb"[SN]\Z")
    ),  # SSLRequest
    HTTP: _Protocol(b"GET / HTTP/1.0\r\n\r\n", re.compile(rb"HTTP/")),
    TLS: _Protocol(_client_hello(), re.compile(rb"[\x15\x16]\x03")),  # a handshake, or an alert
}


def servers_at(host: str, port: int) -> frozenset[str]:
    """Return the protocols in which a server answers, of those above; empty for none."""
    answered = set[str]()
    until_s = time.monotonic() + PATIENCE_S
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for name, protocol in _PROTOCOLS.items():
            with suppress(OSError):
                connection = socket.create_connection((host, port), timeout=PATIENCE_S)
                stack.enter_context(connection)
                connection.sendall(protocol.greeting)
                selector.register(connection, selectors.EVENT_READ, name)
        while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                with suppress(OSError):
                    if _PROTOCOLS[key.data].answer.match(key.fileobj.recv(64)):
                        answered.add(key.data)
    return frozenset(answered)


def misplaced(answered: frozenset[str], wanted: str) -> str | None:
    """Return what listens instead of the wanted server; None if that is not known."""
    if wanted in answered:
        return None
    return next((text for name, text in _SERVERS.items() if name in answered), None)
