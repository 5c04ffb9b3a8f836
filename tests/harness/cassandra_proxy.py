"""A server between clients and a Cassandra node that puts faults into the frames.

It listens on a port of its own and passes on what comes, frame by frame.
"""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from tests.harness.cassandra_frames import (
    AUTHENTICATE,
    READY,
    SEGMENT_HEAD_BYTES,
    Frame,
    Frames,
    segments,
)
from tools.cassandra.config import CQL_PORT

RECEIVED_BYTES = 65536
PAUSE_S = 0.02
"""Between two pieces of a cut segment, so that they are received one by one."""

Choice = Callable[[Frame], bool]
"""Whether a request is meant."""


class _Swap:
    """Two requests that are each given the other's answer, once."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = list(choices)
        self.streams: list[int] = []
        self.held: list[Frame] = []

    def ask(self, frame: Frame) -> None:
        for choice in self.choices:
            if choice(frame):
                self.choices.remove(choice)
                self.streams.append(frame.stream)
                return

    def take(self, frame: Frame) -> list[Frame]:
        """Take an answer; give what goes on to the client."""
        if frame.stream not in self.streams:
            return [frame]
        self.streams.remove(frame.stream)
        self.held.append(frame)
        if len(self.held) == 1:
            return []
        first, second = self.held
        self.held = []
        return [first._replace(stream=second.stream), second._replace(stream=first.stream)]


class Proxy:
    """Passes frames on, and some that it makes."""

    def __init__(self, node: str) -> None:
        """Listen on a free port for a node, which is named by its address."""
        self._node = node
        self._server = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._links: list[_Link] = []
        self.cut_bytes = 0
        self.swap: _Swap | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._server.close()
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._server.accept()
                self._links.append(_Link(self, client, self._node))

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames to all clients, as if the node had."""
        for link in self._links:
            link.send(frames)

    def swap_answers(self, *choices: Choice) -> None:
        """Give two requests each other's answers; the first is held until the second is there."""
        self.swap = _Swap(choices)


class _Link:
    """One client's connection, and the one to the node for it."""

    def __init__(self, proxy: Proxy, client: socket.socket, node: str) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.create_connection((node, CQL_PORT))
        for end in (client, self._server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._requests, self._answers = Frames(), Frames()
        self._rest = b""
        for pass_on in (self._pass_requests, self._pass_answers):
            threading.Thread(target=self._run, args=[pass_on], daemon=True).start()

    def close(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames to the client, if its handshake is over."""
        with self._lock, suppress(OSError):
            if self._answers.is_segmented:
                self._send(frames)

    def _run(self, pass_on: Callable[[], None]) -> None:
        with suppress(OSError):
            pass_on()
        self.close()

    def _pass_requests(self) -> None:
        while data := self._client.recv(RECEIVED_BYTES):
            for frame in self._requests.read(data):
                if self._proxy.swap is not None:
                    self._proxy.swap.ask(frame)
            self._server.sendall(data)

    def _pass_answers(self) -> None:
        while data := self._server.recv(RECEIVED_BYTES):
            with self._lock:
                for frame in self._answers.read(data):
                    if not self._answers.is_segmented:
                        if frame.opcode in (READY, AUTHENTICATE):  # before the client goes on
                            self._requests.is_segmented = self._answers.is_segmented = True
                        self._client.sendall(frame.data())
                        continue
                    swap = self._proxy.swap
                    self._send([frame] if swap is None else swap.take(frame))

    def _send(self, frames: Sequence[Frame]) -> None:
        """Send frames, each in segments of its own; a head's beginning may come with the last."""
        for frame in frames:
            cut = self._proxy.cut_bytes
            if not cut:
                self._client.sendall(segments(frame))
                continue
            # A head comes in two pieces, the first of them with a whole segment before it.
            whole = segments(frame._replace(stream=-1, opcode=0x0C, body=_EVENT))
            data = whole + segments(frame)
            end = len(whole) + min(cut, SEGMENT_HEAD_BYTES - 1)
            self._client.sendall(data[:end])
            time.sleep(PAUSE_S)
            self._client.sendall(data[end:])


_EVENT = b"\0\x0dSTATUS_CHANGE\0\2UP\x04\x7f\0\0\1\0\0\x23\x52"
"""An event that no client does anything about: that a node which is up came up."""
