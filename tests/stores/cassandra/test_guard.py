"""Answers that belong to no request, fed to connections without a node.

The driver's own connection is fed with the same, to show what the guard is for.
"""

# ruff: noqa: ANN401  (the driver has no types)
from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.cassandra_frames import RESULT, answer, fed, overloaded, segments

if find_spec("cassandra") is None:
    pytest.skip("cassandra is absent: the driver is not installed", allow_module_level=True)

from cassandra.cluster import DefaultConnection, ResponseFuture

from dueline.stores.cassandra import guard
from dueline.stores.cassandra.guard import GuardedConnection, StrayAnswers, is_effective

GUARDED, PLAIN = GuardedConnection, DefaultConnection
VOID = b"\0\0\0\1"


def uses_of_zero(connection: Any, requests: int = 2000) -> int:
    return [connection.get_request_id() for _ in range(requests)].count(0)


@pytest.fixture
def guarded() -> Any:
    connection = fed(GUARDED)
    connection.stray_answers = StrayAnswers()
    return connection


# --- stream 0 --------------------------------------------------------------------------------


def test_the_driver_alone_gives_one_requests_answer_to_another() -> None:
    connection = fed(PLAIN)
    connection.receive(segments(overloaded()))
    answers: dict[int, list[object]] = {}
    streams = [connection.ask(answers.setdefault(number, []).append) for number in range(301)]
    first, second = (place for place, stream in enumerate(streams) if stream == 0)
    connection.receive(segments(answer(0)))  # that of the first
    assert (len(answers[first]), len(answers[second])) == (0, 1)


def test_an_answer_on_stream_0_frees_no_stream_and_is_counted(guarded: Any) -> None:
    for _ in range(3):
        guarded.receive(segments(overloaded()))
    assert (guarded.stray_answers.dropped, guarded.stray_answers.closed) == (3, 0)
    assert not guarded.is_defunct
    assert uses_of_zero(guarded) == 0
    assert uses_of_zero(fed(PLAIN)) == 1


def test_after_stray_answers_each_request_is_given_its_own(guarded: Any) -> None:
    answers: dict[int, list[Any]] = {}
    for _ in range(2):
        guarded.receive(segments(*[overloaded()] * 400))
        streams = [guarded.ask(answers.setdefault(n, []).append) for n in range(350)]
        assert len(set(streams)) == 350
        guarded.receive(segments(*(answer(stream, RESULT, VOID) for stream in reversed(streams))))
    for number, told in answers.items():
        assert len(told) == 2, number
    assert guarded.stray_answers.dropped == 800


def test_before_the_handshake_ends_stream_0_is_answered() -> None:
    connection = fed(GUARDED)
    connection._is_checksumming_enabled = False
    told: list[object] = []
    assert connection.ask(told.append) == 0
    connection.receive(answer(0).data())
    assert len(told) == 1


# --- other streams ---------------------------------------------------------------------------


def test_an_answer_on_a_stream_where_none_waits_closes_the_connection(guarded: Any) -> None:
    told: list[object] = []
    guarded.ask(told.append)
    guarded.receive(segments(answer(77), answer(78)))
    assert guarded.is_defunct
    assert (guarded.stray_answers.dropped, guarded.stray_answers.closed) == (0, 1)
    (error,) = told
    assert "stream 77, where no request waits" in str(error)


def test_a_late_answer_to_a_request_that_was_given_up_is_let_pass(guarded: Any) -> None:
    told: list[object] = []
    stream = guarded.ask(told.append)
    del guarded._requests[stream]
    guarded.orphaned_request_ids.add(stream)
    guarded.receive(segments(answer(stream)))
    assert not guarded.is_defunct
    assert guarded.stray_answers.closed == 0
    assert stream in guarded.request_ids
    assert not told


def test_an_event_of_the_server_is_let_pass(guarded: Any) -> None:
    told: list[object] = []
    guarded._push_watchers["STATUS_CHANGE"].add(told.append)
    body = b"\0\x0dSTATUS_CHANGE\0\2UP\x04\x7f\0\0\1\0\0\x23\x52"
    guarded.receive(segments(answer(-1, 0x0C, body)))
    assert not guarded.is_defunct
    assert len(told) == 1


# --- cut segments ----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_segment_whose_head_is_cut_is_read(cut: int) -> None:
    for connection, is_read in ((fed(GUARDED), True), (fed(PLAIN), False)):
        told: list[object] = []
        streams = [connection.ask(told.append) for _ in range(2)]
        first, second = (segments(answer(stream, RESULT, VOID)) for stream in streams)
        connection.receive(first + second[:cut], second[cut:])
        assert (len(told) == 2 and not connection.is_defunct) == is_read


def test_segments_are_read_byte_by_byte(guarded: Any) -> None:
    told: list[object] = []
    streams = [guarded.ask(told.append) for _ in range(3)]
    data = segments(overloaded(), *(answer(stream, RESULT, VOID) for stream in streams))
    guarded.receive(*(bytes([byte]) for byte in data))
    assert len(told) == 3
    assert guarded.stray_answers.dropped == 1


# --- requests that are given up ---------------------------------------------------------------


class Asked:
    """Requests on a fed connection, as the driver makes them, with timers that a test rings."""

    def __init__(self, connection_class: Any, patch: pytest.MonkeyPatch) -> None:
        self.timers: list[Any] = []
        patch.setattr(
            DefaultConnection, "create_timer", classmethod(lambda _cls, _s, ring: self._note(ring))
        )
        self.connection = fed(connection_class)
        self._host = type("Host", (), {"endpoint": "a node"})()
        pool = SimpleNamespace(
            is_shutdown=False, return_connection=lambda *_, **__: None, borrow_connection=self._lend
        )
        self._session = SimpleNamespace(
            keyspace=None,
            row_factory=None,
            submit=lambda call, *arguments: call(*arguments),
            _pools={self._host: pool},
            cluster=SimpleNamespace(connection_class=type(self.connection)),
        )

    def _note(self, ring: Any) -> Any:
        self.timers.append(ring)
        return SimpleNamespace(cancel=lambda: None)

    def _lend(self, **_: object) -> tuple[Any, int]:
        return self.connection, self.connection.get_request_id()

    def send(self) -> Any:
        """Send a request; return the driver's future."""
        from cassandra.protocol import OptionsMessage  # noqa: PLC0415  (stands for any message)

        future = ResponseFuture(
            self._session, OptionsMessage(), None, 10.0, host=self._host, load_balancer=object()
        )
        future.send_request()
        return future

    def send_again(self, future: Any) -> int:
        """Send a request once more, as after its statement was prepared again."""
        self.connection.receive(segments(answer(future._req_id, RESULT, VOID)))
        future._event.clear()
        stream: int = future._query(self._host)
        return stream


@pytest.mark.parametrize(("connection_class", "is_sound"), [(GUARDED, True), (PLAIN, False)])
def test_a_request_that_is_given_up_after_it_was_sent_again_takes_no_others_stream(
    connection_class: Any, *, is_sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(connection_class, monkeypatch)
    late = asked.send()
    before = late._req_id
    stream = asked.send_again(late)
    asked.connection.request_ids.remove(before)
    asked.connection.request_ids.appendleft(before)
    other = asked.send()
    assert (other._req_id, stream != before) == (before, True)
    asked.timers[0]()
    assert (before in asked.connection._requests) is is_sound
    assert (stream not in asked.connection._requests) is is_sound
    assert asked.connection.orphaned_request_ids == {stream if is_sound else before}
    asked.connection.receive(segments(answer(before, RESULT, VOID)))
    assert other._event.is_set() is is_sound


def test_a_request_that_is_given_up_between_two_streams_takes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(GUARDED, monkeypatch)
    late = asked.send()
    before = late._req_id
    asked.connection.receive(segments(answer(before, RESULT, VOID)))
    asked.connection.request_ids.remove(before)
    asked.connection.request_ids.appendleft(before)
    other = asked.send()
    asked.timers[0]()
    asked.connection.receive(segments(answer(before, RESULT, VOID)))
    assert other._event.is_set()
    assert not asked.connection.orphaned_request_ids


# --- whether the guard works ------------------------------------------------------------------


def test_the_guard_works_with_this_driver() -> None:
    before = guard.STRAY_ANSWERS.dropped
    assert is_effective()
    assert before == guard.STRAY_ANSWERS.dropped


@pytest.mark.parametrize("name", ["process_msg", "get_request_id", "_process_segment_buffer"])
def test_a_driver_that_goes_round_the_guard_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedConnection, name, getattr(DefaultConnection, name))
    assert not is_effective()
