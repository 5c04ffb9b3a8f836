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


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_the_end_of_the_terminal_stops_what_runs_unless_it_is_ignored(
    handler: signal.Handlers,
) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with passed_on(lambda _: None) as received:
            during = signal.getsignal(signal.SIGHUP)
            if during is not signal.SIG_DFL:  # which would end this process
                signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
    is_ignored = handler is signal.SIG_IGN
    assert list(received) == ([] if is_ignored else [signal.SIGHUP])


def test_a_system_without_hang_ups_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    with passed_on(lambda _: None) as received:
        signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]
