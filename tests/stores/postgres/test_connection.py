"""Connections to PostgreSQL, whatever the server answers, and when."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError, StoreUnavailable
from tests.harness.clocks import HandClock
from tests.harness.postgres import expect_server

expect_server()

import psycopg  # noqa: E402
from psycopg.errors import (  # noqa: E402
    DeadlockDetected,
    InvalidParameterValue,
    SerializationFailure,
)
from psycopg.pq import TransactionStatus  # noqa: E402

from dueline.stores.postgres.address import TIMEOUT_US, Address, address_of  # noqa: E402
from dueline.stores.postgres.connection import (  # noqa: E402
    ATTEMPTS,
    IDLE_MAX,
    RESOLVE_US,
    RESTED_US,
    SCHEMA_VERSION,
    Connections,
)
from dueline.stores.postgres.trips import QuickConnection  # noqa: E402

ADDRESS = address_of("postgresql://host/database", {})
RECOVERY = 7
ASKED_MAX = 2000
"""Number of questions that no caller with pauses gets to."""


class Connection:
    """A connection to a server that gives each answer in turn, and the last one for ever."""

    def __init__(self, answers: Sequence[object]) -> None:
        self.closed = self.is_awaited = self.is_mute = self.is_quick = False
        self.recovery = self.used_us = 0
        self.timeout_s: float | None = None
        self.session = (0, 0)
        self.info = self
        self.transaction_status = TransactionStatus.IDLE
        self.answers = answers
        self.asked: list[str] = []

    def close(self) -> None:
        """Note that it is closed."""
        self.closed = True

    def execute(self, statement: str, *_: object, **__: object) -> "Connection":
        """Note a statement."""
        self.asked.append(statement)
        assert len(self.asked) < ASKED_MAX, "it asks again and again without a pause"
        return self

    def fetchone(self) -> Any:  # noqa: ANN401
        """Return the answer, or raise it."""
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def fetch(self, statement: str, _bound: object = ()) -> list[Any]:
        """Return the answer as rows."""
        return [self.execute(statement).fetchone()]

    def first(self, statement: str, _bound: object = ()) -> None:
        """Note a statement whose answer is not needed."""
        self.asked.append(statement)


class Served(Connections):
    """Connections to such a server, at a time that only pauses move."""

    def __init__(self, *answers: object, address: Address = ADDRESS) -> None:
        self.clock = HandClock()
        super().__init__(address, self.clock)
        self.connection: Any = Connection(answers)

    def connect(self) -> QuickConnection:
        """Return the connection."""
        self.connection.closed = False
        self.connection.transaction_status = TransactionStatus.IDLE
        connection: QuickConnection = self.connection
        return connection

    def _check(self, connection: object) -> None:
        pass

    def _database(self, connection: Any) -> Any:  # noqa: ANN401
        return connection

    def waited_us(self) -> int:
        """Return the sum of the pauses."""
        return round(sum(self.clock.slept) * SECOND_US)


LOST, REFUSED = psycopg.OperationalError("lost"), ConfigError("refused")
OPEN = ("in progress", RECOVERY)


@pytest.mark.parametrize(
    ("answer", "recovery", "is_committed"),
    [
        (("committed", RECOVERY), RECOVERY, True),
        (("committed", RECOVERY + 1), RECOVERY, None),  # of another transaction, perhaps
        (("committed", 0), 0, None),
        (("aborted", RECOVERY), RECOVERY, False),
        (("aborted", RECOVERY + 1), RECOVERY, False),
        ((None, RECOVERY), RECOVERY, None),
        (None, RECOVERY, None),
        (InvalidParameterValue("in the future"), RECOVERY, False),
        (OPEN, RECOVERY, None),
        (LOST, RECOVERY, None),
    ],
)
@pytest.mark.parametrize("before", [(), (OPEN,), (LOST, StoreUnavailable("down"), REFUSED, OPEN)])
def test_the_outcome_of_a_lost_commit_is_asked_for_until_the_server_says_it(
    before: tuple[object, ...], answer: object, recovery: int, *, is_committed: bool | None
) -> None:
    connections = Served(*before, answer)
    assert connections._is_committed("42", recovery) is is_committed
    pauses = len(connections.clock.slept)
    if answer in (OPEN, LOST):
        assert connections.waited_us() == RESOLVE_US
        assert len(connections.connection.asked) == pauses
    else:
        assert len(connections.connection.asked) == 1 + pauses == 1 + len(before)
    assert list(connections._idle) == [connections.connection]


@pytest.mark.parametrize("is_mute", [False, True])
def test_idle_connections_are_closed_when_a_commit_is_lost(*, is_mute: bool) -> None:
    """Those beside one that gave no answer may be mute, too."""
    connections, idle = Served(("committed", RECOVERY)), Connection(())
    idle.is_quick, idle.session = True, (4, 2)
    lost: Any = Connection(())
    lost.is_mute, lost.is_quick, lost.session = is_mute, True, (1, 2)
    connections._give_back(idle)  # type: ignore[arg-type]
    connections.lose(lost)
    assert connections._is_committed("42", RECOVERY) is True
    assert (idle.closed, lost.closed) == (True, True)
    assert list(connections._mute._sessions) == [(1, 2), (4, 2)] * is_mute


@pytest.mark.parametrize("questions", [0, 1, 5])
@pytest.mark.parametrize("outcome", ["committed", "aborted"])
def test_a_session_that_is_open_is_ended_until_its_outcome_is_known(
    outcome: str, questions: int
) -> None:
    connections = Served(*[OPEN] * 2 * questions, (outcome, RECOVERY))
    assert connections.ended("42", 99, RECOVERY) == (outcome == "committed")
    assert len(connections.connection.asked) == 1 + 2 * questions
    assert len(connections.clock.slept) == questions


def test_a_session_that_does_not_end_is_reported_in_time() -> None:
    connections = Served(OPEN)
    with pytest.raises(StoreUnavailable, match="does not end"):
        connections.ended("42", 99, RECOVERY)
    assert connections.waited_us() == RESOLVE_US + SECOND_US // 100


@pytest.mark.parametrize("error", [SerializationFailure, DeadlockDetected])
@pytest.mark.parametrize("failures", [0, 1, ATTEMPTS - 1, ATTEMPTS])
def test_a_transaction_that_others_roll_back_is_repeated_after_growing_pauses(
    error: type[psycopg.Error], failures: int
) -> None:
    connections, tries = Served(), 0

    def work(_connection: object) -> int:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise error
        return tries

    if failures == ATTEMPTS:
        with pytest.raises(StoreUnavailable):
            connections._patiently(work)
    else:
        assert connections._patiently(work) == failures + 1
    slept = connections.clock.slept
    assert len(slept) == min(failures, ATTEMPTS - 1)
    for number, seconds in enumerate(slept, 1):
        assert 0.0005 * number <= seconds <= 0.0015 * number
    assert not connections.connection.closed


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_a_connection_that_is_lost_is_replaced_once(losses: int) -> None:
    connections, tries = Served(), 0

    def work(connection: Any) -> int:  # noqa: ANN401
        nonlocal tries
        tries += 1
        if tries <= losses:
            connection.closed = True
            connection.transaction_status = TransactionStatus.UNKNOWN
            raise psycopg.OperationalError
        return tries

    if losses > 1:
        with pytest.raises(StoreUnavailable):
            connections._patiently(work)
    else:
        assert connections._patiently(work) == losses + 1
    assert tries == min(losses, 1) + 1
    assert list(connections._idle) == [connections.connection] * (losses <= 1)


@pytest.mark.parametrize("error", [None, ValueError(), StoreUnavailable("no"), LOST])
def test_a_connection_is_given_back_whatever_its_work_raises(error: Exception | None) -> None:
    connections = Served()

    def work(_connection: object) -> None:
        if error is not None:
            raise error

    with suppress(ValueError, StoreUnavailable):
        connections._patiently(work)
    assert list(connections._idle) == [connections.connection]


def test_a_connection_that_is_kept_is_not_given_back() -> None:
    connections = Served()
    assert connections._patiently(lambda kept: kept, keeps=True) is connections.connection
    assert not connections._idle


def test_the_idle_connections_are_few_and_closed_when_they_have_rested() -> None:
    connections = Served()
    made: list[Any] = [Connection(()) for _ in range(IDLE_MAX + 1)]
    for connection in made:
        connections._give_back(connection)
    assert [connection.closed for connection in made] == [False] * IDLE_MAX + [True]
    connections.clock.advance(us=RESTED_US)
    last = connections._take()
    assert last is made[IDLE_MAX - 1]  # the last one that was used
    connections._give_back(last)
    assert not made[0].closed
    connections.clock.advance(us=1)
    connections._give_back(connections._take())
    assert [connection.closed for connection in made] == [
        *[True] * (IDLE_MAX - 1), False, True
    ]  # fmt: skip
    connections.close()
    assert last.closed


@pytest.mark.parametrize("status", [TransactionStatus.INTRANS, TransactionStatus.INERROR])
def test_a_connection_that_is_not_idle_is_closed(status: TransactionStatus) -> None:
    connections = Served()
    connection: Any = Connection(())
    connection.transaction_status = status
    connections._give_back(connection)
    assert connection.closed


@pytest.mark.parametrize(
    ("lease_s", "timeout_s"), [(1, 1), (3, 1), (6, 2), (29.999997, 9.999999), (30, 10), (90, 10)]
)
def test_a_trip_takes_a_third_of_a_lease_at_most_within_bounds(
    lease_s: float, timeout_s: float
) -> None:
    connections = Served()
    assert connections.timeout_s == TIMEOUT_US / SECOND_US
    connections.follow_lease(round(lease_s * SECOND_US))
    assert connections.timeout_s == timeout_s
    own = Served(address=ADDRESS._replace(timeout_us=2_500_000))
    own.follow_lease(round(lease_s * SECOND_US))
    assert own.timeout_s == 2.5


@pytest.mark.parametrize("has_opened", [False, True])
def test_a_database_that_vanishes_is_an_outage_and_one_that_never_was_a_wrong_address(
    monkeypatch: pytest.MonkeyPatch, *, has_opened: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError('database "database" does not exist')

    monkeypatch.setattr(QuickConnection, "connect", refuse)
    connections = Connections(ADDRESS, HandClock())
    if has_opened:
        answer: Any = Connection([(str(SCHEMA_VERSION),)])
        connections._check(answer)
    with pytest.raises(StoreUnavailable if has_opened else ConfigError):
        connections._take()
