"""Wakes workers on other machines by datagrams.

A worker binds a UDP socket and publishes its address in its registration. A process that stored
jobs sends a wake-up to the workers of their queues. Each message has the time, a random number and
a code that is made with a key from the store, so only clients of the store can send it.

A message may be lost, refused or repeated. An idle worker polls at longer intervals while messages
arrive: if two polls in a row find jobs of which it was not notified, it polls as often as without.
"""

import hmac
import os
import random
import socket
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import DuelineError
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Put, Records
from dueline.core.wakeup import (
    GAP_US_MAX_WITHOUT_WAKEUPS,
    WAKEUPS_MAX,
    NoListener,
    Signal,
    Wakeup,
    WakeupListener,
    read_wakeup,
)

PARTITION: Final = "wakeups"
KEY: Final = "key"

WORKERS_MAX: Final = 8
"""Maximum number of workers that a wake-up is sent to; if there are more, all poll often."""

TRUSTED_US: Final = 3 * SECOND_US
"""Maximum time between polls of an idle worker whose wake-ups arrive, in microseconds."""

MISSES_MAX: Final = 2
"""Number of polls in a row that find jobs without a wake-up, after which a worker polls often."""

DISTRUST_US: Final = 600 * SECOND_US
"""How long it does."""

COUNTED_US: Final = 60 * SECOND_US
"""Maximum age of the number of workers."""

REGISTRY_AGE_US_MAX: Final = 5 * SECOND_US
"""Maximum age of the list of workers; a newer worker polls until then."""

SENT_A_SECOND_MAX: Final = 200
"""Maximum number of wake-ups that a process sends in a second: workers are busy then."""

AGE_US_MAX: Final = 10 * SECOND_US
"""Maximum difference between the time of a message and the receiver's clock."""

NONCES_MAX: Final = 10_000
"""Maximum number of messages that a receiver remembers; it ignores others until some expire."""

MESSAGE_BYTES_MAX: Final = 1200
"""Maximum size of a message, which fits into one packet; a longer one is sent without its lane."""

RECEIVED_MAX: Final = 64
"""Maximum number of messages that are read at once."""

REST_S: Final = 0.02
"""Time for which a worker ignores its socket after messages that were not for it."""

_HEAD: Final = 16  # 8 bytes of time, 8 random ones
_CODE: Final = 16
_BODY_BYTES_MAX: Final = MESSAGE_BYTES_MAX - _HEAD - _CODE


class Address(NamedTuple):
    """Where a worker listens. host: Empty for the address that reaches `route`."""

    host: str
    port: int
    route: str = ""


class RegisteredWorker(NamedTuple):
    """A worker that is registered; `address` is empty if it receives no wake-ups."""

    name: str
    queues: Collection[str]
    address: str


class NetworkWakeups:
    """Sends wake-ups to the registered workers of a store.

    Args:
      records: The records of the store.
      workers: Reads the registered workers.
      address: Where workers of this process listen.
      clock: The machine's clock.
    """

    def __init__(
        self,
        records: Records,
        workers: Callable[[], Iterable[RegisteredWorker]],
        address: Address,
        *,
        clock: Clock,
    ) -> None:
        self._records = records
        self._registered = workers
        self._address = address
        self._clock = clock
        self._key = b""
        self._workers: Sequence[RegisteredWorker] = ()
        self._read_us: int | None = None
        self._second = 0
        self._sent = 0
        self._sockets: dict[int, socket.socket] = {}

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers of these channels; messages that would block are not sent."""
        with suppress(OSError, DuelineError):
            self._read_workers()
            for wakeup in wakeups:
                targets = self._targets(wakeup.channel)
                if targets and self._may_send():
                    body = wakeup.to_bytes(_BODY_BYTES_MAX)
                    message = sealed(self._key, body, self._clock.wall_us())
                    for target in targets:
                        self._send(target, message)

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Bind a socket; if that fails, return a listener that never receives a wake-up."""
        try:
            key = self._stored_key() or self._new_key()
            bound = _bound(self._address)
        except (OSError, DuelineError):
            return NoListener(wakeup)
        return NetworkListener(
            bound, key, frozenset(channels), wakeup, self._clock, is_crowded=self._is_crowded
        )

    def _read_workers(self) -> None:
        now_us = self._clock.monotonic_us()
        if self._read_us is None or now_us - self._read_us > REGISTRY_AGE_US_MAX:
            self._read_us = now_us
            self._key = self._key or self._stored_key()
            self._workers = [worker for worker in self._registered() if worker.address]

    def _targets(self, channel: str) -> list[str]:
        addresses = [
            worker.address
            for worker in (self._workers if self._key else ())
            if channel == worker.name or channel in worker.queues
        ]
        return addresses if len(addresses) <= WORKERS_MAX else random.sample(addresses, WORKERS_MAX)

    def _is_crowded(self, channels: Collection[str]) -> bool:
        """Return whether more workers listen to a channel than a wake-up is sent to."""
        workers = [worker for worker in self._registered() if worker.address]
        return any(
            sum(channel in worker.queues for worker in workers) > WORKERS_MAX
            for channel in channels
        )

    def _may_send(self) -> bool:
        second = self._clock.monotonic_us() // SECOND_US
        if second != self._second:
            self._second, self._sent = second, 0
        self._sent += 1
        return self._sent <= SENT_A_SECOND_MAX

    def _send(self, target: str, message: bytes) -> None:
        host, _, port = target.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if family not in self._sockets:
            sender = self._sockets[family] = socket.socket(family, socket.SOCK_DGRAM)
            weakref.finalize(self, sender.close)
            sender.setblocking(False)  # noqa: FBT003  (its only parameter)
        with suppress(OSError):  # its queue is full, or there is no such machine
            self._sockets[family].sendto(message, (host.strip("[]"), int(port)))

    def _stored_key(self) -> bytes:
        record = record_at(self._records, PARTITION, KEY)
        return b"" if record is None else record.value

    def _new_key(self) -> bytes:
        put = Put(KEY, os.urandom(16), os.urandom(32), NO_VERSION)
        self._records.commit(PARTITION, (put,))
        return self._stored_key()


class NetworkListener(NoListener):
    """A worker's socket, on which the worker itself waits.

    It counts as closed, since datagrams are lost without notice.

    Args:
      bound: The socket.
      key: The key of messages.
      channels: The channels.
      wakeup: The worker's event.
      clock: The machine's clock.
      is_crowded: Returns whether wake-ups of these channels reach only some of their workers.
    """

    def __init__(
        self,
        bound: socket.socket,
        key: bytes,
        channels: frozenset[str],
        wakeup: Signal,
        clock: Clock,
        *,
        is_crowded: Callable[[Collection[str]], bool],
    ) -> None:
        super().__init__(wakeup)
        self._signal = wakeup
        self._is_crowded = is_crowded
        self._misses = 0
        # Until then, some producers do not know this worker.
        self._trusted_from_us = clock.monotonic_us() + 2 * REGISTRY_AGE_US_MAX
        self._counted_us: int | None = None
        self._is_one_of_many = True
        self._socket = bound
        self.address = _text(bound.getsockname())
        self._seal = Seal(key)
        self._channels = channels
        self._clock = clock
        self._heard: list[Wakeup] = []
        self._rests = False

    def wait(self, timeout_s: float) -> None:
        """Wait until a wake-up arrives, the worker's event is set, or the timeout."""
        end_us = self._clock.monotonic_us() + round(timeout_s * SECOND_US)
        while not self._heard and timeout_s >= 0:
            if self._rests:  # so that messages of strangers cost no more than some reads
                self._rests = False
                self._signal.wait(min(timeout_s, REST_S))
            elif not self._signal.wait_or_read(self._socket.fileno(), timeout_s):
                break
            if self._signal.is_set():
                return
            self._receive()
            timeout_s = (end_us - self._clock.monotonic_us()) / SECOND_US
        if self._heard:
            self._signal.set()

    def take(self) -> Sequence[Wakeup]:
        """Return the wake-ups that arrived."""
        self._receive()
        heard, self._heard = self._heard, []
        return heard

    @property
    def gap_us_max(self) -> int:  # type: ignore[override]  # it changes here
        """Maximum time between polls: long while wake-ups arrive, and reach each worker."""
        now_us = self._clock.monotonic_us()
        if now_us < self._trusted_from_us:
            return GAP_US_MAX_WITHOUT_WAKEUPS
        if self._counted_us is None or now_us - self._counted_us > COUNTED_US:
            with suppress(DuelineError):
                self._is_one_of_many = self._is_crowded(self._channels)
                self._counted_us = now_us
        return GAP_US_MAX_WITHOUT_WAKEUPS if self._is_one_of_many else TRUSTED_US

    def missed(self) -> None:
        """Poll often for DISTRUST_US if this was not the only one."""
        self._misses += 1
        if self._misses >= MISSES_MAX:
            self._misses = 0
            self._trusted_from_us = self._clock.monotonic_us() + DISTRUST_US

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self) -> None:
        count, is_useful = 0, False
        with suppress(OSError):  # none is left, or the socket was closed
            while count < RECEIVED_MAX:
                message = self._socket.recv(MESSAGE_BYTES_MAX + 1)
                count += 1
                wakeup = self._read(message)
                if wakeup is not None:
                    is_useful, self._misses = True, 0
                    if wakeup not in self._heard:
                        self._heard.append(wakeup)
        self._rests = count > 0 and not is_useful
        if len(self._heard) > WAKEUPS_MAX:
            self._heard = [Wakeup(channel) for channel in self._channels]

    def _read(self, message: bytes) -> Wakeup | None:
        body = self._seal.opened(message, self._clock.wall_us())
        wakeup = None if body is None else read_wakeup(body)
        if wakeup is None or wakeup.channel not in self._channels:
            return None
        return wakeup


class Seal:
    """Recognizes messages that were made with a key, each once."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: dict[bytes, int] = {}  # in the order of their arrival

    def opened(self, message: bytes, now_us: int) -> bytes | None:
        """Return the body of a message; None if it is not genuine, old, or came before."""
        head, body, code = message[:_HEAD], message[_HEAD:-_CODE], message[-_CODE:]
        if len(message) <= _HEAD + _CODE or len(message) > MESSAGE_BYTES_MAX:
            return None
        if not hmac.compare_digest(_code(self._key, head + body), code):
            return None
        at_us = int.from_bytes(head[:8])
        self._forget(now_us)
        if abs(now_us - at_us) > AGE_US_MAX or head in self._seen:
            return None
        if len(self._seen) >= NONCES_MAX:
            return None
        self._seen[head] = now_us
        return body

    def _forget(self, now_us: int) -> None:
        """Forget messages that are too old to be accepted again."""
        while self._seen:
            head, seen_us = next(iter(self._seen.items()))
            if now_us - seen_us <= 2 * AGE_US_MAX:
                return
            del self._seen[head]


def sealed(key: bytes, body: bytes, now_us: int) -> bytes:
    """Return a message."""
    said = now_us.to_bytes(8) + os.urandom(8) + body
    return said + _code(key, said)


def _code(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:_CODE]


def _bound(address: Address) -> socket.socket:
    """Bind a socket.

    Raises:
      OSError: The address is not of this machine, or taken.
    """
    host = address.host or _own_address(address.route)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)  # noqa: FBT003  (its only parameter)
        bound.bind((host, address.port))
    except BaseException:
        bound.close()
        raise
    return bound


def _own_address(route: str) -> str:
    """Return the address of this machine from which it reaches another; nothing is sent."""
    family, _, _, _, place = socket.getaddrinfo(route, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])


def _text(name: Sequence[object]) -> str:
    host, port = str(name[0]), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
