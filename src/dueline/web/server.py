"""The dashboard as a server of its own."""

import asyncio
import ipaddress
import socket
from collections import Counter

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dueline.core.errors import ConfigError

CONNECTIONS_MAX = 200
"""Maximum number of open connections; then the least useful one is closed for a new one."""

NEW_MAX = 50
"""Number of the newest connections, whose clients may be about to send a request."""

KEEP_ALIVE_S = 5
HEADER_BYTES_MAX = 16 * 1024
REQUEST_S_MAX = 10.0
"""Maximum duration in which the head of a request arrives, or a client reads nothing, in seconds.

The pages and operations bound how long a body takes.
"""


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, *, needs_login: bool) -> None:
    """Check that a dashboard without a login is not reached from other machines.

    Raises:
        ConfigError: It would be.
    """
    if not needs_login and not is_loopback(host):
        raise ConfigError(
            f"The dashboard would be open to other machines on {host:.80}, without a login.",
            hint="Set DUELINE_WEB_TOKENS=operator:TOKEN, or use --host 127.0.0.1.",
        )


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket, whose connections send without delay.

    asyncio would set that for them if `create_server` named TCP as their protocol.

    Raises:
        ConfigError: The address is not free, or not one of this machine.
    """
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[4][:2], family=address[0])
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host:.80}, port {port}: {error.strerror}.", hint="Use --port 8322."
        ) from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit this
    return listening


class BoundedProtocol(H11Protocol):
    """Closes connections whose clients send no request, or read no answer.

    If there are too many, connections of clients without a valid token are closed first, and of
    these the oldest of the peer that has most.
    """

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # None before the first request
    _timer: asyncio.TimerHandle | None = None
    _is_blocked = False
    number = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with the first request."""
        others = [other for other in self.connections if isinstance(other, BoundedProtocol)]
        self.number = max((other.number for other in others), default=0) + 1
        super().connection_made(transport)
        self._expect()
        open_now = [other for other in others if not other.transport.is_closing()]
        if len(open_now) >= CONNECTIONS_MAX:
            _least_useful([*open_now, self]).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._expect(again=False)
        super().connection_lost(exc)

    def rank(self, *, is_new: bool) -> int:
        """Return how useful the connection is; those of the lowest rank are closed first.

        One without a valid token that waits for its client; one that is answered; one with a valid
        token that waits for its client; one that is new; one with a token that is answered.
        """
        cycle = self.cycle
        waits = self._is_blocked or self._awaits_head() or bool(cycle and cycle.more_body)
        if cycle is not None and cycle.scope.get("dueline.identity") is not None:
            return 2 if waits else 4
        if not waits:
            return 1
        return 3 if is_new else 0

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the time of its head is not extended by parts of it."""
        is_new = self._timer is None and self._awaits_head()
        super().data_received(data)
        if not self._awaits_head():
            self._expect(again=False)
        elif is_new:
            self._expect()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._is_blocked = True
        self._expect()

    def resume_writing(self) -> None:
        """Continue."""
        super().resume_writing()
        self._is_blocked = False
        self._expect(again=False)

    def _awaits_head(self) -> bool:
        """Return whether no request has begun, or the last one is answered."""
        return self.cycle is None or self.cycle.response_complete

    def _expect(self, *, again: bool = True) -> None:
        """Start the timer anew, or stop it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(REQUEST_S_MAX, self._abort) if again else None

    def _abort(self) -> None:
        self._timer = None
        if self._is_blocked or self._awaits_head():
            self.transport.abort()


def _least_useful(connections: list[BoundedProtocol]) -> BoundedProtocol:
    """Return the connection to close: the oldest of the peer with most of the lowest rank."""
    oldest_first = sorted(connections, key=lambda connection: connection.number)
    new_from = len(oldest_first) - NEW_MAX
    ranks = [connection.rank(is_new=n >= new_from) for n, connection in enumerate(oldest_first)]
    pairs = zip(oldest_first, ranks, strict=True)
    lowest = [connection for connection, rank in pairs if rank == min(ranks)]  # oldest first
    counts = Counter(connection.client and connection.client[0] for connection in lowest)
    return max(lowest, key=lambda connection: counts[connection.client and connection.client[0]])


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return a server that bounds the size of requests, and how many connections wait."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        http=BoundedProtocol,
        ws="none",
    )
    return uvicorn.Server(config)
