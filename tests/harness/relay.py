"""A relay between clients and a server, which swallows, delays or cuts what passes."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Final
from urllib.parse import urlsplit

RECEIVED_BYTES: Final = 65536


class Link:
    """One client's connection, and the one to the server for it."""

    def __init__(self, relay: "Relay", client: socket.socket) -> None:
        self.swallows_requests = self.swallows_answers = False
        self._relay = relay
        self._client = client
        self._server = socket.create_connection(relay.target)
        for end in (client, self._server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        threading.Thread(target=self._hold_answers, daemon=True).start()
        for run in (self._pass_requests, self._pass_answers):
            threading.Thread(target=self._run, args=[run], daemon=True).start()

    def cut(self) -> None:
        """Close both connections."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _run(self, run: Callable[[], None]) -> None:
        with suppress(OSError):
            run()
        # A swallowed end of a connection keeps the other one open, as a hung machine between does.
        while self.swallows_requests and not self._relay.is_closed:
            time.sleep(0.01)
        self.cut()

    def _pass_requests(self) -> None:
        while data := self._client.recv(RECEIVED_BYTES):
            if not self.swallows_requests:
                self._server.sendall(data)

    def _hold_answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(RECEIVED_BYTES):
                self._held.put((time.monotonic() + self._relay.delay_s, data))
        self._held.put((time.monotonic() + self._relay.delay_s, b""))

    def _pass_answers(self) -> None:
        while True:
            until_s, data = self._held.get()
            time.sleep(max(0.0, until_s - time.monotonic()))
            if not data:
                return
            if self._relay.cuts(data):
                self.cut()
                return
            if not self.swallows_answers:
                self._client.sendall(data)


class Relay:
    """Passes bytes on between clients and a server.

    Attributes:
      target: Host and port of the server.
      port: Where clients connect, on 127.0.0.1; by default any free one.
      delay_s: Time for which each answer is held.
    """

    def __init__(self, host: str, port: int, *, own_port: int = 0) -> None:
        self.target = (host, port)
        self.delay_s = 0.0
        self.is_closed = False
        self._links: list[Link] = []
        self._mutes_new: tuple[bool, bool] = (False, False)
        self._mark: bytes = b""
        self._listener = socket.create_server(("127.0.0.1", own_port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the URL of a store behind this relay."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}").geturl()

    def mute(self, *, requests: bool = True, answers: bool = True, new: bool = False) -> int:
        """Swallow what comes on the present connections, and with `new` on later ones too.

        Returns the number of present connections.
        """
        if new:
            self._mutes_new = (requests, answers)
        for link in list(self._links):
            link.swallows_requests, link.swallows_answers = requests, answers
        return len(self._links)

    def heal(self) -> None:
        """Cut the connections that were muted, and pass everything on."""
        self._mutes_new, self.delay_s = (False, False), 0.0
        for link in list(self._links):
            if link.swallows_requests or link.swallows_answers:
                link.swallows_requests = False
                link.cut()
                self._links.remove(link)

    def cut_after(self, mark: bytes) -> None:
        """Cut the next connection on which the server sends these bytes, in place of them."""
        self._mark = mark

    def cuts(self, data: bytes) -> bool:
        """Return whether the connection of an answer is cut now."""
        if self._mark and self._mark in data:
            self._mark = b""
            return True
        return False

    def close(self) -> None:
        """Cut everything."""
        self.is_closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the thread's wait
        self._listener.close()
        for link in self._links:
            link.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                link = Link(self, client)
            except OSError:  # the server is down
                client.close()
                continue
            link.swallows_requests, link.swallows_answers = self._mutes_new
            self._links.append(link)


def free_port() -> int:
    """Return a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def relay_to(url: str, port: int, *, own_port: int = 0) -> Iterator[Relay]:
    """Run a relay to the server of a URL; `port` is its default port."""
    parts = urlsplit(url)
    relay = Relay(parts.hostname or "127.0.0.1", parts.port or port, own_port=own_port)
    try:
        yield relay
    finally:
        relay.close()
