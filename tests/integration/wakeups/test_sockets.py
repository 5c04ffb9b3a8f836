"""Datagrams to the workers of a queue file."""

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.lane import Lane
from dueline.core.wakeup import Signal, Wakeup
from dueline.stores.sqlite.wakeup import (
    DATAGRAM_BYTES_MAX,
    DATAGRAMS_MAX,
    DATAGRAMS_SURE,
    SOCKETS_AGE_US_MAX,
    SocketListener,
    SocketWakeups,
)
from tests.harness.clocks import HandClock

ROUNDS = 20

WAIT_S = 60.0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def wakeups(file: Path, clock: HandClock) -> SocketWakeups:
    return SocketWakeups(file, clock=clock)


@pytest.fixture
def wakeup() -> Signal:
    return Signal()


@pytest.fixture
def listener(wakeups: SocketWakeups, wakeup: Signal) -> Iterator[SocketListener]:
    listener = wakeups.listen(["default", "mail"], wakeup)
    assert isinstance(listener, SocketListener)
    yield listener
    listener.close()


def folder_of(file: Path) -> Path:
    return file.with_name("jobs.db-wake")


def test_who_serves_the_queue_hears_it(
    wakeups: SocketWakeups, listener: SocketListener, wakeup: Signal
) -> None:
    # O1
    wakeups.wake([Wakeup("mail")])
    listener.wait(WAIT_S)
    assert wakeup.is_set()
    assert listener.take() == [Wakeup("mail")]
    assert not listener.take()


def test_it_can_be_woken_again_and_again(
    wakeups: SocketWakeups, listener: SocketListener, wakeup: Signal
) -> None:
    for _ in range(50):
        wakeups.wake([Wakeup("default"), Wakeup("mail")])
        listener.wait(WAIT_S)
        wakeup.clear()
        assert set(listener.take()) == {Wakeup("default"), Wakeup("mail")}


class Flooded(socket.socket):
    """A socket in which a datagram always waits."""

    received = 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        assert size
        assert not flags
        self.received += 1
        assert self.received < 100_000, "the worker is kept by what is sent"
        return b"mail"


def test_a_flood_of_wakeups_keeps_no_worker(
    wakeups: SocketWakeups, listener: SocketListener, wakeup: Signal
) -> None:
    wakeups.wake([Wakeup("mail")])
    flooded = Flooded(fileno=os.dup(listener._socket.fileno()))
    with flooded:
        calm, listener._socket = listener._socket, flooded
        assert listener.take()
        listener._socket = calm
    assert flooded.received <= DATAGRAMS_MAX


LANE = Lane("mail", 3, 20_000, -5, "tenant")


def test_a_wake_up_names_the_lane_of_the_jobs(
    wakeups: SocketWakeups, listener: SocketListener
) -> None:
    wakeups.wake([Wakeup("mail", 17, LANE)])
    assert listener.take() == [Wakeup("mail", 17, LANE)]


def test_a_lane_that_is_too_long_for_a_datagram_is_left_out(
    wakeups: SocketWakeups, listener: SocketListener
) -> None:
    wakeups.wake([Wakeup("mail", 17, LANE._replace(tenant="t" * DATAGRAM_BYTES_MAX))])
    assert listener.take() == [Wakeup("mail")]


def test_where_one_may_be_lost_the_lane_lists_are_read(wakeups: SocketWakeups) -> None:
    """Send more wake-ups than a socket surely holds: the lane lists must be read."""
    # T3: a more urgent lane may be among those that were dropped
    listener = wakeups.listen(["mail"], Signal())
    try:
        for count in (1, DATAGRAMS_SURE, DATAGRAMS_SURE + 1, 40):
            for shard in range(count):
                wakeups.wake([Wakeup("mail", 17, LANE._replace(shard=shard))])
            names_all = all(one.lane for one in listener.take())
            assert names_all == (count <= DATAGRAMS_SURE)
    finally:
        listener.close()


@pytest.mark.parametrize("said", [b"mail", b"\xff", b"[", b'["mail", 1, ["mail"]]', b""])
def test_a_datagram_of_another_version_is_no_harm(
    file: Path, listener: SocketListener, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = folder_of(file).iterdir()
    monkeypatch.chdir(place.parent)  # whose own path may be too long for a socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(said, place.name)
    assert listener.take() == ([Wakeup("mail")] if said == b"mail" else [])


def test_a_worker_of_an_earlier_version_gets_the_name_of_the_queue(
    wakeups: SocketWakeups, file: Path
) -> None:
    with bound(file, "0123456789abcdef") as worker:
        wakeups.wake([Wakeup("mail", 17, LANE)])
        assert worker.recv(255) == b"mail"


def test_several_threads_wait_and_all_are_woken(wakeups: SocketWakeups) -> None:
    """Let several threads wait: one wake-up ends all waits.

    If all of them see the datagram before one takes it, all wake up in any case: so, many rounds.
    """
    # O1
    signal = Signal()
    listener = wakeups.listen(["mail"], signal)
    try:
        for _ in range(ROUNDS):
            signal.clear()
            threads = [
                threading.Thread(target=listener.wait, args=(60.0,), daemon=True) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            wakeups.wake([Wakeup("post")])
            wakeups.wake([Wakeup("mail")])
            for thread in threads:
                thread.join(10.0)
                assert not thread.is_alive()
            listener.take()
    finally:
        listener.close()


def test_its_event_ends_a_wait(listener: SocketListener, wakeup: Signal) -> None:
    waiting = threading.Thread(target=listener.wait, args=(WAIT_S,))
    waiting.start()
    wakeup.set()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    assert not listener.take()


def test_a_wait_ends_at_its_time(wakeups: SocketWakeups, listener: SocketListener) -> None:
    wakeups.wake([Wakeup("post")])
    listener.wait(0.01)
    assert not listener.take()


def test_what_is_said_of_other_queues_is_not_for_it(
    wakeups: SocketWakeups, listener: SocketListener, wakeup: Signal
) -> None:
    wakeups.wake([Wakeup("post")])
    wakeups.wake([Wakeup("mail")])  # comes later
    assert listener.take()


def test_a_worker_that_does_not_look_holds_up_no_sender(
    wakeups: SocketWakeups, listener: SocketListener, wakeup: Signal
) -> None:
    for _ in range(2_000):
        wakeups.wake([Wakeup("default")])
    listener.wait(WAIT_S)
    assert listener.take()


def test_other_processes_are_heard(file: Path, listener: SocketListener, wakeup: Signal) -> None:
    # O1
    script = (
        "import sys; from pathlib import Path; from dueline.core.clock import SystemClock\n"
        "from dueline.core.wakeup import Wakeup\n"
        "from dueline.stores.sqlite.wakeup import SocketWakeups\n"
        "SocketWakeups(Path(sys.argv[1]), clock=SystemClock()).wake([Wakeup('default')])"
    )
    subprocess.run([sys.executable, "-c", script, str(file)], check=True)
    listener.wait(WAIT_S)
    assert listener.take()


def test_it_is_for_the_owner_alone(file: Path, listener: SocketListener) -> None:
    assert stat.S_IMODE(folder_of(file).stat().st_mode) == 0o700


def test_the_last_worker_takes_the_folder_along(wakeups: SocketWakeups, file: Path) -> None:
    first = wakeups.listen(["default"], Signal())
    second = wakeups.listen(["default"], Signal())
    assert len(list(folder_of(file).iterdir())) == 2
    first.close()
    assert len(list(folder_of(file).iterdir())) == 1
    second.close()
    assert not folder_of(file).exists()


def test_it_closes_whether_or_not_it_was_heard(wakeups: SocketWakeups, file: Path) -> None:
    wakeup = Signal()
    listener = wakeups.listen(["default"], wakeup)
    assert isinstance(listener, SocketListener)
    wakeups.wake([Wakeup("default")])
    listener.wait(WAIT_S)
    listener.close()
    wakeups.wake([Wakeup("default")])  # to one that has gone


def test_it_closes_even_if_its_folder_was_removed(wakeups: SocketWakeups, file: Path) -> None:
    listener = wakeups.listen(["default"], Signal())
    assert isinstance(listener, SocketListener)
    for place in folder_of(file).iterdir():
        place.unlink()
    folder_of(file).rmdir()
    wakeups.wake([Wakeup("default")])
    listener.close()


def bound(file: Path, name: str) -> socket.socket:
    """Bind a socket in the folder."""
    folder_of(file).mkdir(mode=0o700, exist_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    descriptor = os.open(folder_of(file), os.O_RDONLY)
    made.bind(f"/proc/self/fd/{descriptor}/{name}")
    os.close(descriptor)
    return made


def killed_worker(file: Path, name: str = "dead") -> Path:
    """Leave a socket behind as a killed worker does."""
    bound(file, name).close()
    return folder_of(file) / name


def test_what_a_killed_worker_left_is_removed_by_a_sender(
    wakeups: SocketWakeups, file: Path, clock: HandClock
) -> None:
    dead = killed_worker(file)
    for _ in range(2):
        wakeups.wake([Wakeup("default")])
        assert dead.exists()  # it may be about to be bound
    clock.advance(us=SOCKETS_AGE_US_MAX + 1)
    wakeups.wake([Wakeup("default")])
    assert not dead.exists()
    assert not folder_of(file).exists()


def test_one_that_was_late_to_listen_is_not_removed(
    wakeups: SocketWakeups, file: Path, clock: HandClock
) -> None:
    late = killed_worker(file, "late")
    wakeups.wake([Wakeup("default")])
    late.unlink()
    worker = bound(file, "late")
    for _ in range(5):
        clock.advance(us=SOCKETS_AGE_US_MAX + 1)
        wakeups.wake([Wakeup("default")])
    assert late.exists()
    worker.close()


def test_a_worker_that_comes_later_is_known_within_a_second(
    wakeups: SocketWakeups, clock: HandClock, wakeup: Signal
) -> None:
    wakeups.wake([Wakeup("default")])  # reads the folder, which is not there yet
    listener = wakeups.listen(["default"], wakeup)
    clock.advance(us=SOCKETS_AGE_US_MAX + 1)
    wakeups.wake([Wakeup("default")])
    assert listener.take()
    listener.close()


def test_a_path_that_is_too_long_for_an_address_will_do(tmp_path: Path, clock: HandClock) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    wakeups, wakeup = SocketWakeups(folder / "jobs.db", clock=clock), Signal()
    listener = wakeups.listen(["default"], wakeup)
    assert listener.is_open
    wakeups.wake([Wakeup("default")])
    assert listener.take()
    listener.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "open", "link", "foreign"])
def test_a_folder_that_others_may_write_to_is_not_used(
    wakeups: SocketWakeups,
    file: Path,
    wakeup: Signal,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = folder_of(file)
    if kind == "file":
        place.touch()
    elif kind == "link":
        (file.parent / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(file.parent / "elsewhere")
    else:
        place.mkdir(mode=0o700)
        if kind == "open":
            place.chmod(0o777)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    listener = wakeups.listen(["default"], wakeup)
    assert not listener.is_open
    assert not listener.take()
    wakeups.wake([Wakeup("default")])
    listener.close()
    assert place.exists()


def test_where_there_are_no_such_sockets_nothing_is_heard(
    wakeups: SocketWakeups, wakeup: Signal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    assert not wakeups.listen(["default"], wakeup).is_open
    wakeups.wake([Wakeup("default")])
