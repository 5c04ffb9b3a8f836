"""Wakes the workers of a queue file.

Each worker binds a Unix datagram socket in the folder `<file>-wake`. A process that has committed
jobs sends a wake-up to every socket there. The folder is next to the file, so that every process
that opens the file finds it; only those who may use the file may use it. The socket of a killed
worker refuses datagrams, and a sender removes it.
"""

import os
import socket
import stat
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dueline.core.clock import SECOND_US, Clock
from dueline.core.wakeup import FALLBACK_US, NoListener, Signal, Wakeup, WakeupListener, read_wakeup
from dueline.stores.sqlite.file import GROUP_TOO, OWNER_ONLY, is_of_us

SOCKETS_AGE_US_MAX = SECOND_US
"""Maximum age of the list of sockets, in microseconds; a new worker polls more often until then."""

SOCKETS_MAX = 128
"""Maximum number of workers that one commit wakes; others poll every few seconds."""

ADDRESS_BYTES_MAX = 100
"""Maximum length of a socket's address; some systems allow 104 bytes."""

DATAGRAMS_MAX = 1024
"""Maximum number of datagrams that are received at once."""

DATAGRAMS_SURE = 3
"""Number of datagrams received at once of which none was lost: every system queues more. Linux
queues 10 by default and drops what comes then."""

DATAGRAM_BYTES_MAX = 600
"""Maximum size of a datagram, so that queues of 4 KiB hold more than DATAGRAMS_SURE; a wake-up
that is longer is sent without its lane."""

READS_LANES = "-lane"
"""End of the names of sockets whose workers read wake-ups; others read the name of a channel."""

_DESCRIPTORS = Path("/proc/self/fd")
_ATTEMPTS = 3


class SocketWakeups:
    """Sends datagrams to the workers of one queue file.

    Thread-safe without a lock, which a fork could leave locked: at worst two threads read the
    folder at once.
    """

    def __init__(self, file: Path, *, clock: Clock, mode: int = OWNER_ONLY) -> None:
        self._folder = _Folder(file.with_name(f"{file.name}-wake"), mode)
        self._clock = clock
        self._sender: socket.socket | None = None
        self._names: list[str] = []
        self._list_again_us = 0
        self._suspects: set[str] = set()
        self._refused: set[str] = set()

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers; datagrams that would block are not sent."""
        try:
            if self._clock.monotonic_us() >= self._list_again_us:
                self._list()
            for name in self._names:
                reads_lanes = name.endswith(READS_LANES)
                for wakeup in wakeups:
                    if reads_lanes:
                        self._send(name, wakeup.to_bytes(DATAGRAM_BYTES_MAX))
                    else:
                        self._send(name, wakeup.channel.encode())
        except (OSError, AttributeError):  # no such sockets on this system
            return

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Bind a socket; if that fails, return a listener that never receives a wake-up."""
        for _ in range(_ATTEMPTS if hasattr(socket, "AF_UNIX") else 0):
            try:
                self._folder.make()
                return SocketListener(self._folder, frozenset(channels), wakeup, self._clock)
            except FileNotFoundError:  # the last listener removed the folder
                continue
            except OSError:
                break
        return NoListener(wakeup)

    def _list(self) -> None:
        """List the sockets of listeners."""
        self._list_again_us = self._clock.monotonic_us() + SOCKETS_AGE_US_MAX
        self._names = self._folder.names()[:SOCKETS_MAX]
        # A socket that refuses may not be bound yet: it is removed if it still refuses later.
        self._suspects, self._refused = self._refused, set()

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
        except OSError:  # the socket's queue is full, or the socket was just removed
            return


class SocketListener:
    """A worker's socket, on which the worker itself waits.

    A busy worker does not read it: datagrams stay in the socket, or are not sent.

    Raises:
      OSError: The socket cannot be bound; nothing is left behind.
    """

    is_open = True
    address = ""
    gap_us_max = FALLBACK_US

    def __init__(
        self, folder: "_Folder", channels: frozenset[str], wakeup: Signal, clock: Clock
    ) -> None:
        self._folder = folder
        self._name = os.urandom(8).hex() + READS_LANES
        self._channels = channels
        self._wakeup = wakeup
        self._clock = clock
        self._heard: list[Wakeup] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)  # noqa: FBT003  (its only parameter)
            with folder.address(self._name) as address:
                self._socket.bind(address)
                folder.share(self._name)
        except BaseException:
            self._socket.close()
            raise

    def wait(self, timeout_s: float) -> None:
        """Wait until a wake-up arrives, the worker's event is set, or the timeout.

        Several threads may wait: a wake-up sets the event, which ends all waits.
        """
        end_us = self._clock.monotonic_us() + round(timeout_s * SECOND_US)
        while self._wakeup.wait_or_read(self._socket.fileno(), timeout_s):
            self._receive()
            if self._heard:
                self._wakeup.set()
                return
            timeout_s = max(0, end_us - self._clock.monotonic_us()) / SECOND_US

    def take(self) -> Sequence[Wakeup]:
        """Return the wake-ups that arrived, up to DATAGRAMS_MAX."""
        if not self._heard:  # `wait` has just read them
            self._receive()
        heard, self._heard = self._heard, []
        return heard

    def _receive(self) -> None:
        count = 0
        with suppress(OSError):  # none is left, or the socket was closed
            while count < DATAGRAMS_MAX:
                said = self._socket.recv(DATAGRAM_BYTES_MAX)
                count += 1
                wakeup = read_wakeup(said) or Wakeup(said.decode(errors="replace"))
                if wakeup.channel in self._channels and wakeup not in self._heard:
                    self._heard.append(wakeup)
        if count > DATAGRAMS_SURE:  # others may have been dropped
            self._heard = [Wakeup(channel) for channel in self._channels]

    def missed(self) -> None:
        """Do nothing: wake-ups that are lost are rare."""

    def close(self) -> None:
        """Remove the socket, and the folder if it was the last one."""
        self._folder.remove(self._name)
        self._socket.close()


class _Folder:
    """The folder with the sockets of a queue file."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode

    def make(self) -> None:
        """Create the folder.

        Raises:
          OSError: It cannot be created, or belongs to another user.
        """
        with suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
            if self._mode == GROUP_TOO:
                self._path.chmod(0o770 | self._path.stat().st_mode & stat.S_ISGID)
        self._check()

    def share(self, name: str) -> None:
        """Let the users of the folder's group send to a socket."""
        if self._mode == GROUP_TOO:
            (self._path / name).chmod(GROUP_TOO)

    def _check(self) -> None:
        status = os.lstat(self._path)
        is_own = stat.S_ISDIR(status.st_mode) and is_of_us(status, self._mode)
        others = stat.S_IWOTH if self._mode == GROUP_TOO else stat.S_IWGRP | stat.S_IWOTH
        if not is_own or status.st_mode & others:
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
