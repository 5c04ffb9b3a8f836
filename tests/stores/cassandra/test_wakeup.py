"""Wake-ups between machines: who is told, and what a message must be to be heard (O1)."""

import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import Registration
from dueline.core.clock import SystemClock
from dueline.core.lane import Lane
from dueline.core.pagination import record_at
from dueline.core.wakeup import GAP_US_MAX_WITHOUT_WAKEUPS, Signal, Wakeup
from dueline.stores.cassandra import wakeup
from dueline.stores.cassandra.wakeup import (
    AGE_US_MAX,
    COUNTED_US,
    DISTRUST_US,
    KEY,
    MESSAGE_BYTES_MAX,
    NONCES_MAX,
    PARTITION,
    REGISTRY_AGE_US_MAX,
    SENT_A_SECOND_MAX,
    TRUSTED_US,
    WORKERS_MAX,
    Address,
    NetworkListener,
    NetworkWakeups,
    RegisteredWorker,
    Seal,
    sealed,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock

HERE = Address("127.0.0.1", 0)
LANE = Lane("mail", 3, 7, 0, "")
KEY_BYTES = b"k" * 32
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemClock())


@pytest.fixture
def listener(store: MemoryStore) -> Iterator[NetworkListener]:
    """A worker that listens, and is registered."""
    listener = listening(store, "w1", "mail")
    yield listener
    listener.close()


def listening(store: MemoryStore, worker: str, queue: str) -> NetworkListener:
    """Listen as a worker of a queue."""
    listener = wakeups_of(store).listen([queue, worker], Signal())
    assert isinstance(listener, NetworkListener)
    registration = Registration(worker, (queue,), address=listener.address)
    worker_registry.register(store, registration, version=b"v")
    return listener


def wakeups_of(store: MemoryStore, address: Address = HERE) -> NetworkWakeups:
    """Return the wake-ups of the workers that a store has registered."""

    def workers() -> list[RegisteredWorker]:
        registrations = [stored.registration for stored in worker_registry.registrations(store)]
        return [
            RegisteredWorker(registered.worker, registered.queues, registered.address)
            for registered in registrations
        ]

    return NetworkWakeups(store, workers, address, clock=SystemClock())


def heard(listener: NetworkListener) -> list[Wakeup]:
    listener.wait(0.2)
    return list(listener.take())


def test_a_worker_hears_which_lane_has_jobs(store: MemoryStore, listener: NetworkListener) -> None:
    wakeups_of(store).wake([Wakeup("mail", 5, LANE), Wakeup("other", 5)])
    began_s = time.monotonic()
    listener.wait(5.0)
    assert time.monotonic() - began_s < 4
    assert listener._signal.is_set()
    assert list(listener.take()) == [Wakeup("mail", 5, LANE)]
    assert list(listener.take()) == []


def test_one_worker_is_told_by_its_name(store: MemoryStore, listener: NetworkListener) -> None:
    other = listening(store, "w2", "mail")
    wakeups_of(store).wake([Wakeup("w2")])
    assert heard(other) == [Wakeup("w2")]
    assert heard(listener) == []
    other.close()


def waiting(clock: HandClock, crowded: Sequence[bool] = (False,)) -> NetworkListener:
    """Return the listener of a worker; crowded: whether there are many, each time it asks."""
    answers = iter(crowded)
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    bound.setblocking(False)  # noqa: FBT003  (its only parameter)
    names = frozenset({"mail"})
    return NetworkListener(
        bound, KEY_BYTES, names, Signal(), clock, is_crowded=lambda _: next(answers)
    )


def test_a_worker_polls_seldom_once_producers_know_it() -> None:
    clock = HandClock(NOW_US)
    listener = waiting(clock)
    assert not listener.is_open
    assert listener.gap_us_max == GAP_US_MAX_WITHOUT_WAKEUPS
    clock.advance(2 * REGISTRY_AGE_US_MAX)
    assert listener.gap_us_max == TRUSTED_US
    listener.close()


def test_a_worker_whose_wakeups_are_lost_polls_often() -> None:
    clock = HandClock(NOW_US)
    listener = waiting(clock, [False] * 9)
    clock.advance(2 * REGISTRY_AGE_US_MAX)
    listener.missed()
    assert listener.gap_us_max == TRUSTED_US
    listener.missed()
    assert listener.gap_us_max == GAP_US_MAX_WITHOUT_WAKEUPS
    clock.advance(DISTRUST_US)
    assert listener.gap_us_max == TRUSTED_US
    listener.close()


def test_a_wakeup_between_two_misses_restores_trust() -> None:
    clock = HandClock(NOW_US)
    listener = waiting(clock)
    clock.advance(2 * REGISTRY_AGE_US_MAX)
    listener.missed()
    host, _, port = listener.address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        message = sealed(KEY_BYTES, Wakeup("mail").to_bytes(600), clock.wall_us())
        sender.sendto(message, (host, int(port)))
    assert heard(listener) == [Wakeup("mail")]
    listener.missed()
    assert listener.gap_us_max == TRUSTED_US
    listener.close()


def test_workers_that_are_too_many_to_be_woken_poll_often() -> None:
    clock = HandClock(NOW_US)
    listener = waiting(clock, [True, False])
    clock.advance(2 * REGISTRY_AGE_US_MAX)
    assert listener.gap_us_max == GAP_US_MAX_WITHOUT_WAKEUPS
    clock.advance(COUNTED_US + 1)
    assert listener.gap_us_max == TRUSTED_US
    listener.close()


def test_strangers_are_not_heard(store: MemoryStore, listener: NetworkListener) -> None:
    record = record_at(store, PARTITION, KEY)
    assert record is not None
    host, _, port = listener.address.partition(":")
    body = Wakeup("mail", 0, LANE).to_bytes(MESSAGE_BYTES_MAX)
    now_us = SystemClock().wall_us()
    genuine = sealed(record.value, body, now_us)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for message in (
            b"",
            b"x",
            body,
            b"x" * 2000,
            sealed(b"another", body, now_us),
            genuine[:-1] + bytes([genuine[-1] ^ 1]),
            sealed(record.value, b"no wake-up", now_us),
            sealed(record.value, Wakeup("other").to_bytes(MESSAGE_BYTES_MAX), now_us),
            sealed(record.value, body, now_us - 2 * AGE_US_MAX),
        ):
            stranger.sendto(message, (host, int(port)))
        assert heard(listener) == []
        for _ in range(2):  # a repeated one is heard once
            stranger.sendto(genuine, (host, int(port)))
        assert heard(listener) == [Wakeup("mail", 0, LANE)]
        stranger.sendto(genuine, (host, int(port)))
        assert heard(listener) == []


def test_messages_of_strangers_do_not_keep_a_worker_busy(
    listener: NetworkListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bytes] = []
    monkeypatch.setattr(listener, "_read", reads.append)
    host, _, port = listener.address.partition(":")
    receive = listener._receive
    calls: list[int] = []

    def flooded() -> None:
        calls.append(1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"junk", (host, int(port)))
        receive()

    monkeypatch.setattr(listener, "_receive", flooded)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"junk", (host, int(port)))
    listener.wait(0.3)
    assert 1 < len(calls) <= 2 + 2 * 0.3 / wakeup.REST_S


def test_a_seal_forgets_what_it_would_refuse_anyway() -> None:
    seal = Seal(KEY_BYTES)
    messages = [sealed(KEY_BYTES, b"body", NOW_US) for _ in range(NONCES_MAX + 1)]
    assert all(seal.opened(message, NOW_US) == b"body" for message in messages[:-1])
    assert seal.opened(messages[-1], NOW_US) is None
    later_us = NOW_US + 2 * AGE_US_MAX + 1
    assert seal.opened(messages[0], later_us) is None
    assert seal.opened(sealed(KEY_BYTES, b"new", later_us), later_us) == b"new"
    assert len(seal._seen) == 1


def test_a_producer_sends_no_more_than_a_bounded_number(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = wakeups_of(store).listen(["mail"], Signal())
    for number in range(3 * WORKERS_MAX):
        registration = Registration(f"w{number}", ("mail",), address=f"127.0.0.1:{number + 1}")
        worker_registry.register(store, registration, version=b"v")
    sent: list[str] = []
    wakeups = wakeups_of(store)
    monkeypatch.setattr(wakeups, "_send", lambda target, _: sent.append(target))
    monkeypatch.setattr(wakeups._clock, "monotonic_us", lambda: 0)
    wakeups.wake([Wakeup("mail")])
    assert len(set(sent)) == len(sent) == WORKERS_MAX
    for _ in range(2 * SENT_A_SECOND_MAX):
        wakeups.wake([Wakeup("mail")])
    assert len(sent) == WORKERS_MAX * SENT_A_SECOND_MAX
    record.close()


def test_without_workers_nothing_is_sent_or_stored(store: MemoryStore) -> None:
    wakeups_of(store).wake([Wakeup("mail")])
    assert record_at(store, PARTITION, KEY) is None


def test_all_workers_use_one_key(store: MemoryStore) -> None:
    listeners = [listening(store, f"w{number}", "mail") for number in range(3)]
    wakeups_of(store).wake([Wakeup("mail", 5, LANE)])
    assert [heard(listener) for listener in listeners] == [[Wakeup("mail", 5, LANE)]] * 3
    for listener in listeners:
        listener.close()


def test_an_address_that_cannot_be_bound_is_polled(store: MemoryStore) -> None:
    wakeups = wakeups_of(store, Address("192.0.2.1", 0))
    listener = wakeups.listen(["mail"], Signal())
    assert (listener.is_open, listener.address) == (False, "")


def test_the_address_that_reaches_the_nodes_is_found(store: MemoryStore) -> None:
    wakeups = wakeups_of(store, Address("", 0, "127.0.0.1"))
    listener = wakeups.listen(["mail"], Signal())
    assert listener.address.startswith("127.0.0.1:")
    listener.close()
