"""The dashboard as a server of its own."""

import ipaddress
import socket

import uvicorn
from starlette.types import ASGIApp

from dueline.core.errors import ConfigError

CONNECTIONS_MAX = 200
KEEP_ALIVE_S = 5
HEADER_BYTES_MAX = 16 * 1024


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
    """Return a listening socket.

    Raises:
        ConfigError: The address is not free, or not one of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[4][:2], family=found[0])
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host:.80}, port {port}: {error.strerror}.", hint="Use --port 8322."
        ) from error


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
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        http="h11",
        ws="none",
    )
    return uvicorn.Server(config)
