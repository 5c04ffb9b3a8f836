"""What keeps claims alive, in a thread of its own."""

import logging
import threading

import pytest

from dueline.coordination.worker_registry import BEATS_A_LEASE
from dueline.core.errors import StoreUnavailable
from dueline.worker.heartbeat import HeartbeatThread

WAIT_S = 60


class Hearts:
    """Beats as its list says; the last entry goes on for ever."""

    def __init__(self, *beats: int | Exception) -> None:
        self.beats = list(beats)
        self.count = threading.Semaphore(0)

    def __call__(self) -> int:
        beat = self.beats.pop(0) if len(self.beats) > 1 else self.beats[0]
        self.count.release()
        if isinstance(beat, Exception):
            raise beat
        return beat

    def heard(self, times: int) -> bool:
        """Wait for so many beats."""
        return all(self.count.acquire(timeout=WAIT_S) for _ in range(times))


def test_it_beats_at_once_and_several_times_a_lease() -> None:
    # C6
    hearts = Hearts(3_000)
    beat = HeartbeatThread(hearts, wakeup=threading.Event())
    beat.start()
    assert hearts.heard(5)
    beat.stop()
    beat.check()
    assert BEATS_A_LEASE == 3


def test_it_stops_without_waiting_for_the_next_beat() -> None:
    hearts = Hearts(10**12)
    beat = HeartbeatThread(hearts, wakeup=threading.Event())
    beat.start()
    assert hearts.heard(1)
    beat.stop()
    assert not beat._thread.is_alive()


def test_a_beat_that_fails_is_told_and_made_again_soon(caplog: pytest.LogCaptureFixture) -> None:
    hearts = Hearts(StoreUnavailable("away"), StoreUnavailable("away"), 10**12)
    beat = HeartbeatThread(hearts, wakeup=threading.Event())
    with caplog.at_level(logging.WARNING, "dueline.worker"):
        beat.start()
        assert hearts.heard(3)
        beat.stop()
    beat.check()
    assert [record.getMessage() for record in caplog.records] == ["a heartbeat failed: away"] * 2


def test_what_ends_the_beat_ends_the_worker() -> None:
    # a worker that does not beat would lose every claim
    hearts, wakeup = Hearts(ZeroDivisionError("bug")), threading.Event()
    beat = HeartbeatThread(hearts, wakeup=wakeup)
    beat.start()
    assert hearts.heard(1)
    beat.stop()
    assert wakeup.is_set()
    with pytest.raises(ZeroDivisionError, match="bug"):
        beat.check()


def test_what_fails_between_beats_ends_the_worker_too() -> None:
    hearts, wakeup = Hearts(10**12), threading.Event()

    def between() -> None:
        raise ZeroDivisionError("bug")

    beat = HeartbeatThread(hearts, between, wakeup=wakeup)
    beat.start()
    assert wakeup.wait(WAIT_S)
    beat.stop()
    with pytest.raises(ZeroDivisionError, match="bug"):
        beat.check()
