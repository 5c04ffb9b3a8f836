"""Signals that end what runs."""

import signal
import threading

import pytest

from dueline.api.signals import ENDING, passed_on

WAIT_S = 60.0


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_passed_on_while_this_thread_holds_the_lock_it_needs(number: int) -> None:
    """As `Event.set` needs the lock that `Event.clear` and `Event.wait` take."""
    lock, ended = threading.Lock(), threading.Event()

    def end(_count: int) -> None:
        with lock:
            ended.set()

    with passed_on(end) as received:
        with lock:
            signal.raise_signal(number)
        assert ended.wait(WAIT_S)
    assert received == [number]


def test_each_signal_is_passed_on_with_how_many_came() -> None:
    counts: list[int] = []
    with passed_on(counts.append) as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert counts == [1, 2]
    assert received == [signal.SIGTERM, signal.SIGINT]


def test_what_handled_signals_before_does_so_again() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with passed_on(lambda _: None):
        during = [signal.getsignal(number) for number in ENDING]
    assert not set(during) & set(before)
    assert [signal.getsignal(number) for number in ENDING] == before


def test_other_threads_catch_none() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def catch() -> None:
        with passed_on(lambda _: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=catch)
    thread.start()
    thread.join()
    assert seen == [before]
