"""Wakes the workers of a queue file.

Each worker binds a Unix datagram socket in a folder beside the file, `<file>-wake`; whoever has
committed jobs sends the name of their queue to every socket there. The folder stands where the
file does, so that all who can open the one find the other, whatever their environment says; it
is for the file's owner alone, as the file is. What a killed worker leaves behind refuses what
is sent, and is removed by the sender.
"""

import os
import socket
import stat
import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dueline.core.clock import SECOND_US, Clock
from dueline.core.wakeup import NoListener, WakeupListener

SOCKETS_AGE_US_MAX = SECOND_US
"""Who listens is read again this often. A worker that starts looks more often for so long."""

SOCKETS_MAX = 128
"""No more workers are told of one commit; those beyond look every few seconds anyway."""

ADDRESS_BYTES_MAX = 100
"""A socket's address has 104 bytes on some systems."""

DATAGRAMS_MAX = 1024
"""Maximum number of datagrams that are discarded at once; Linux queues 10 unless it is told to."""

_DESCRIPTORS = Path("/proc/self/fd")
_NAME_BYTES_MAX = 255
_ATTEMPTS = 3
_JOIN_S = 1.0


class SocketWakeups:
    """Sends datagrams to the workers of one queue file.

    Threads share it without a lock, which a fork could leave locked: at worst two of them read
    the folder at once.
    """

    def __init__(self, file: Path, *, clock: Clock) -> None:
        self._folder = _Folder(file.with_name(f"{file.name}-wake"))
        self._clock = clock
        self._sender: socket.socket | None = None
        self._names: list[str] = []
        self._read_us: int | None = None
        self._suspects: set[str] = set()
        self._refused: set[str] = set()

    def wake(self, queues: Collection[str]) -> None:
        """Tell the workers to look; what cannot be sent at once is not sent."""
        with suppress(OSError, AttributeError):
            for name in self._listeners():
                for queue in queues:
                    self._send(name, queue.encode())

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Bind a socket; where there can be none, return a listener that hears nothing."""
        for _ in range(_ATTEMPTS):
            try:
                self._folder.make()
                return SocketListener(self._folder, frozenset(queues), wakeup)
            except FileNotFoundError:  # the last one who left took the folder along
                continue
            except (OSError, AttributeError):  # no such sockets on this system
                break
        return NoListener()

    def _listeners(self) -> list[str]:
        now_us = self._clock.monotonic_us()
        if self._read_us is None or now_us - self._read_us > SOCKETS_AGE_US_MAX:
            self._read_us = now_us
            self._names = self._folder.names()
            # One that refuses may be about to be bound: it is removed if it still does later.
            self._suspects, self._refused = self._refused, set()
        return self._names[:SOCKETS_MAX]

    def _send(self, name: str, said: bytes) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            weakref.finalize(self, self._sender.close)
            self._sender.setblocking(False)  # noqa: FBT003  (its only parameter)
        try:
            with self._folder.address(name) as address:
                self._sender.sendto(said, address)
        except ConnectionRefusedError:
            self._refused.add(name)
            if name in self._suspects:
                self._folder.remove(name)
        except OSError:  # it has much to hear already, or has just gone
            return


class SocketListener:
    """A worker's socket, and the thread that hears it.

    After one datagram the thread waits until the worker looks: a busy worker is not disturbed
    by more of them, and what is sent meanwhile stays in the socket, or is not sent.
    """

    is_open = True

    def __init__(self, folder: "_Folder", queues: frozenset[str], wakeup: threading.Event) -> None:
        """Bind the socket.

        Raises: OSError: it cannot be; nothing is left behind.
        """
        self._folder = folder
        self._name = os.urandom(8).hex()
        self._queues = frozenset(queue.encode() for queue in queues)
        self._wakeup = wakeup
        self._heard = False
        self._goes_on = threading.Event()
        self._is_closing = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with folder.address(self._name) as address:
                self._socket.bind(address)
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._loop, name="dueline-ear", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Return whether a datagram came, and discard those that are queued behind it.

        What is sent faster than it is read must not keep the worker here.
        """
        if not self._heard:
            return False
        with suppress(BlockingIOError):
            for _ in range(DATAGRAMS_MAX):
                self._socket.recv(_NAME_BYTES_MAX, socket.MSG_DONTWAIT)
        self._heard = False
        self._goes_on.set()
        return True

    def close(self) -> None:
        """Take the socket away, and the folder with it if it was the last."""
        self._is_closing = True
        self._goes_on.set()
        with suppress(OSError), self._folder.address(self._name) as address:
            self._socket.sendto(b"", socket.MSG_DONTWAIT, address)  # ends the thread's waiting
        with suppress(OSError):  # so does this, on Linux, if somebody removed the folder
            self._socket.shutdown(socket.SHUT_RD)
        self._folder.remove(self._name)
        self._thread.join(_JOIN_S)
        self._socket.close()

    def _loop(self) -> None:
        while not self._is_closing:
            try:
                said = self._socket.recv(_NAME_BYTES_MAX)
            except OSError:  # it was closed: this thread took long to hear of it
                return
            if said in self._queues:
                self._goes_on.clear()
                self._heard = True
                self._wakeup.set()
                if not self._is_closing:
                    self._goes_on.wait()


class _Folder:
    """Where the sockets of a queue file stand."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Make the folder.

        Raises: OSError: it cannot be made, or is somebody else's.
        """
        with suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
        self._check()

    def _check(self) -> None:
        found = os.lstat(self._path)
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not is_own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(1, "not a folder of this user alone", str(self._path))

    def names(self) -> list[str]:
        """List the sockets, in no order; none where the folder is missing or a stranger's."""
        try:
            self._check()
            return [place.name for place in self._path.iterdir()]
        except OSError:
            return []

    def remove(self, name: str) -> None:
        """Remove a socket, and the folder if it was the last."""
        with suppress(OSError):
            (self._path / name).unlink()
        with suppress(OSError):
            self._path.rmdir()

    @contextmanager
    def address(self, name: str) -> Iterator[str]:
        """Give a socket's address: its path, or one through a descriptor where that is too long.

        Raises: OSError: no address is short enough.
        """
        path = str(self._path / name)
        if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
            yield path
            return
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield str(_DESCRIPTORS / str(folder) / name)
        finally:
            os.close(folder)
