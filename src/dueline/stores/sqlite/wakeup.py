"""Wakes the workers of a queue file.

Each worker binds a Unix datagram socket in the folder `<file>-wake`. A process that has committed
jobs sends their queue's name to every socket there. The folder is next to the file, so that every
process that opens the file finds it; only the file's owner may use it. The socket of a killed
worker refuses datagrams, and a sender removes it.
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
"""Maximum age of the list of sockets, in microseconds; a new worker polls more often until then."""

SOCKETS_MAX = 128
"""Maximum number of workers that one commit wakes; others poll every few seconds."""

ADDRESS_BYTES_MAX = 100
"""Maximum length of a socket's address; some systems allow 104 bytes."""

DATAGRAMS_MAX = 1024
"""Maximum number of datagrams that are discarded at once; Linux queues 10 by default."""

_DESCRIPTORS = Path("/proc/self/fd")
_NAME_BYTES_MAX = 255
_ATTEMPTS = 3
_JOIN_S = 1.0


class SocketWakeups:
    """Sends datagrams to the workers of one queue file.

    Thread-safe without a lock, which a fork could leave locked: at worst two threads read the
    folder at once.
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
        """Notify the workers; datagrams that would block are not sent."""
        with suppress(OSError, AttributeError):
            for name in self._listeners():
                for queue in queues:
                    self._send(name, queue.encode())

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Bind a socket; if that fails, return a listener that never receives a wake-up."""
        for _ in range(_ATTEMPTS):
            try:
                self._folder.make()
                return SocketListener(self._folder, frozenset(queues), wakeup)
            except FileNotFoundError:  # the last listener removed the folder
                continue
            except (OSError, AttributeError):  # no such sockets on this system
                break
        return NoListener()

    def _listeners(self) -> list[str]:
        now_us = self._clock.monotonic_us()
        if self._read_us is None or now_us - self._read_us > SOCKETS_AGE_US_MAX:
            self._read_us = now_us
            self._names = self._folder.names()
            # A socket that refuses may not be bound yet: it is removed if it still refuses later.
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
        except OSError:  # its queue is full, or it was just removed
            return


class SocketListener:
    """A worker's socket, and the thread that reads it.

    After one datagram the thread waits until the worker polls, so that a busy worker is not
    interrupted. Datagrams sent meanwhile stay in the socket, or are not sent.

    Raises:
      OSError: The socket cannot be bound; nothing is left behind.
    """

    is_open = True

    def __init__(self, folder: "_Folder", queues: frozenset[str], wakeup: threading.Event) -> None:
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
        self._thread = threading.Thread(target=self._loop, name="dueline-wakeups", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Return whether a datagram arrived, and discard up to DATAGRAMS_MAX queued ones."""
        if not self._heard:
            return False
        with suppress(BlockingIOError):
            for _ in range(DATAGRAMS_MAX):
                self._socket.recv(_NAME_BYTES_MAX, socket.MSG_DONTWAIT)
        self._heard = False
        self._goes_on.set()
        return True

    def close(self) -> None:
        """Remove the socket, and the folder if it was the last one."""
        self._is_closing = True
        self._goes_on.set()
        with suppress(OSError), self._folder.address(self._name) as address:
            self._socket.sendto(b"", socket.MSG_DONTWAIT, address)  # wakes the thread
        with suppress(OSError):  # wakes it on Linux even if the folder was removed
            self._socket.shutdown(socket.SHUT_RD)
        self._folder.remove(self._name)
        self._thread.join(_JOIN_S)
        self._socket.close()

    def _loop(self) -> None:
        while not self._is_closing:
            try:
                said = self._socket.recv(_NAME_BYTES_MAX)
            except OSError:  # the socket was closed
                return
            if said in self._queues:
                self._goes_on.clear()
                self._heard = True
                self._wakeup.set()
                if not self._is_closing:
                    self._goes_on.wait()


class _Folder:
    """The folder with the sockets of a queue file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Create the folder.

        Raises:
          OSError: It cannot be created, or belongs to another user.
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
        """Return the sockets' names; none if the folder does not exist or is another user's."""
        try:
            self._check()
            return [place.name for place in self._path.iterdir()]
        except OSError:
            return []

    def remove(self, name: str) -> None:
        """Remove a socket, and the folder if it was the last one."""
        with suppress(OSError):
            (self._path / name).unlink()
        with suppress(OSError):
            self._path.rmdir()

    @contextmanager
    def address(self, name: str) -> Iterator[str]:
        """Yield a socket's address: its path, or one by a descriptor if the path is too long.

        Raises:
          OSError: No address is short enough.
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
