"""Connections between Spark tasks and the worker on the driver."""

import os
import socket
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Final, NamedTuple

from dueline.core.codec import pack, unpack
from dueline.core.errors import DuelineError

ALIVE_S: Final = (10, 5, 3)
"""Seconds until a silent connection is probed, between probes, and number of failed probes."""

HANDSHAKE_S: Final = 5.0
"""Maximum duration from a connection's arrival until its peer has shown the key."""

ARRIVING_MAX: Final = 64
"""Maximum number of connections whose peers have not shown the key; further ones wait."""

CHECK_S: Final = 0.5
"""Interval between checks for overdue connections and free descriptors."""


class Address(NamedTuple):
    """Address of a worker's gate and its key, which is never shown."""

    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"<Address {self.host}:{self.port}>"


class Line:
    """The worker's end of the connection to one task."""

    def __init__(self) -> None:
        self.error = ""
        self.has_come = False
        self._guard = threading.Lock()
        self._settled = threading.Event()
        self._over = threading.Event()
        self._connection: Connection | None = None

    def connect(self, connection: Connection) -> bool:
        """Accept the first task that connects; return False for others, or after giving up."""
        with self._guard:
            if self._settled.is_set():
                return False
            connection.send_bytes(b"welcome")
            self._connection = connection
            self.has_come = True
            self._settled.set()
            return True

    def give_up(self, error: str) -> None:
        """Stop waiting, unless a task has connected."""
        with self._guard:
            if not self._settled.is_set():
                self.error = error
                self._settled.set()

    def wait_over(self) -> None:
        """Wait until the worker is done with the connected task."""
        self._over.wait()

    def recv_bytes(self) -> bytes:
        """Receive a message.

        Raises:
            EOFError: The task has ended, or did not connect.
            OSError: The connection failed.
        """
        self._settled.wait()
        if self._connection is None:
            raise EOFError
        return self._connection.recv_bytes()

    def send_bytes(self, data: bytes) -> None:
        """Send a message.

        Raises:
            OSError: The task has ended, or is not connected.
        """
        if self._connection is None:
            raise BrokenPipeError
        self._connection.send_bytes(data)

    def hang_up(self) -> None:
        """Shut the connection down, which stops the task at its other end."""
        self.give_up("")
        if self._connection is not None:
            with suppress(OSError), socket.socket(fileno=self._connection.fileno()) as shared:
                try:
                    shared.shutdown(socket.SHUT_RDWR)
                finally:
                    shared.detach()

    def close(self) -> None:
        """Close the connection after the last read."""
        self._over.set()
        if self._connection is not None:
            self._connection.close()


class Gate:
    """Accepts the connections of tasks, each for the line of its number.

    Spark may repeat a task, or run it twice at the same time. The first task that connects gets
    the line. Others are rejected when that line ends, not before: if the second task ended well
    while the first works, Spark would kill the first.
    """

    def __init__(self, host: str, bind: str, *, key: bytes, port: int = 0) -> None:
        self._lines: dict[int, Line] = {}
        self._arriving: set[_Arrival] = set()
        self._closed = threading.Event()
        self._listening = socket.create_server((bind, port), backlog=64)
        self._listening.settimeout(CHECK_S)
        self.address = Address(host, self._listening.getsockname()[1], key)
        threading.Thread(target=self._accept, name="dueline-gate", daemon=True).start()

    def expect(self, number: int) -> Line:
        """Create the line of a task before it starts."""
        line = self._lines[number] = Line()
        return line

    def close(self) -> None:
        """Stop accepting connections."""
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        """Accept connections until closed; end those that do not show the key in time."""
        while not self._closed.is_set():
            for arrival in list(self._arriving):
                arrival.end_if_overdue()
            if len(self._arriving) >= ARRIVING_MAX:
                self._closed.wait(CHECK_S)  # further ones wait in the socket's backlog
                continue
            try:
                arrival = _Arrival(self._listening.accept()[0])
            except TimeoutError:
                continue
            except OSError:  # out of descriptors, for example: retry later
                self._closed.wait(CHECK_S)
                continue
            self._arriving.add(arrival)
            threading.Thread(target=self._admit, args=(arrival,), daemon=True).start()

    def _admit(self, arrival: "_Arrival") -> None:
        connection = arrival.connection
        try:
            try:
                deliver_challenge(connection, self.address.key)
                answer_challenge(connection, self.address.key)
                number, error = unpack(connection.recv_bytes())
            finally:
                self._arriving.discard(arrival)
                arrival.settle()
            line = self._lines.get(number)
            if line is not None and error:
                line.give_up(error)
            if line is not None and line.connect(connection):
                return
            if line is not None and line.has_come:
                line.wait_over()
            connection.close()
        except (OSError, EOFError, AuthenticationError, ValueError, DuelineError):
            connection.close()


class _Arrival:
    """A connection whose peer has not shown the key yet."""

    def __init__(self, taken: socket.socket) -> None:
        self._due_s = time.monotonic() + HANDSHAKE_S
        self._socket = taken
        try:
            keep_alive(taken)
            self.connection = Connection(os.dup(taken.fileno()))
        except OSError:
            taken.close()
            raise

    def settle(self) -> None:
        """Stop the timeout: the peer has shown the key, or is gone."""
        self._socket.close()

    def end_if_overdue(self) -> None:
        """Shut the connection down after its timeout, which ends its thread."""
        if time.monotonic() > self._due_s:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def come(address: Address, number: int, error: str = "") -> Connection | None:
    """Connect to the gate as the task of a number; `error` says why it cannot work.

    Returns:
        The connection; None if another task has connected, or the worker has given up.

    Raises:
        OSError: The gate does not answer.
    """
    connection: Connection = Client((address.host, address.port), authkey=address.key)
    with socket.socket(fileno=connection.fileno()) as shared:
        keep_alive(shared)
        shared.detach()
    connection.send_bytes(pack((number, error)))
    try:
        connection.recv_bytes()
    except (EOFError, OSError):
        connection.close()
        return None
    return connection


def keep_alive(connection: socket.socket) -> None:
    """Detect peers on lost machines, and send small messages at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), ALIVE_S, strict=True):
        if hasattr(socket, name):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
