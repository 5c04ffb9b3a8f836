"""The request of a webhook: to a public address, signed as Standard Webhooks says."""

import base64
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from dueline.core.errors import DuelineError
from dueline.core.user_code import text_of

_SUCCESS: Final = range(200, 300)


class NotDelivered(Exception):
    """A webhook was not taken: the next attempt may succeed."""


class Refused(DuelineError):
    """The host has a private address."""


def is_private(host: str) -> bool:
    """Return whether a host is written as an address that is not public."""
    try:
        return not _is_public(host)
    except ValueError:  # a name, which is checked when it is called
        return host == "localhost"


def post(
    address: str,
    body: bytes,
    message_id: str,
    keys: Sequence[bytes],
    *,
    may_be_private: bool,
    timeout_s: float,
) -> None:
    """Post a webhook. The name is resolved once, and what was checked is called.

    Redirects are not followed: they are failures.

    Raises:
        Refused: The host has a private address.
        NotDelivered: It was not called, or did not answer 2xx.
    """
    parts = urlsplit(address)
    host, is_https = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_https else 80)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        places = [str(place[0]) for *_, place in answers]
        if not may_be_private and not all(map(_is_public, places)):
            raise Refused(f"The host {host} has a private address.", hint="Name it in `allow`.")
        kind = HTTPSConnection if is_https else HTTPConnection
        connection = kind(host, port, timeout=timeout_s)
        connection.sock = socket.create_connection((places[0], port), timeout_s)
        try:
            if is_https:
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=host)
            headers = signed(body, message_id, keys, time.time())
            with _cut_after(timeout_s, connection.sock):
                connection.request("POST", path, body, headers)
                status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise NotDelivered(f"{host}: {type(error).__name__}: {text_of(error)}") from None
    if status not in _SUCCESS:
        raise NotDelivered(f"{host} answered {status}.")


@contextmanager
def _cut_after(seconds: float, connection: socket.socket) -> Iterator[None]:
    """Shut a connection down after a time, also if each of its reads returns in time.

    Raises:
        TimeoutError: It was shut down.
    """
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        with suppress(OSError):  # closed meanwhile
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of TLS lets reads go on

    timer = threading.Timer(seconds, cut)
    timer.start()
    try:
        yield
    except (OSError, HTTPException):
        if not is_late.is_set():
            raise
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError("no whole answer in time")


def signed(body: bytes, message_id: str, keys: Sequence[bytes], now_s: float) -> dict[str, str]:
    """Return the headers of a request, with a signature for each key."""
    seconds = str(int(now_s))
    content = f"{message_id}.{seconds}.".encode() + body
    digests = [hmac.digest(key, content, "sha256") for key in keys]
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(
            f"v1,{base64.b64encode(digest).decode()}" for digest in digests
        ),
    }


def _is_public(place: str) -> bool:
    """Return whether an address is public; raise ValueError for other text."""
    address = ip_address(place.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast
