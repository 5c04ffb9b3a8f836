"""What the driver is told and what it answers, on a real node."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.store_tests.calls import new_jobs
from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def store() -> Iterator[CassandraStore]:
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    with keyspaces_on_a_node() as keyspaces:
        store = open_store(keyspaces.fresh())
        assert isinstance(store, CassandraStore)
        yield store
        store.close()


def test_what_is_sent_does_not_wait_for_more(store: CassandraStore) -> None:
    store.clock_us()
    assert store._session._cluster is not None
    assert any(option[1:] == (1, 1) for option in store._session._cluster.sockopts)


def test_what_else_the_driver_raises_is_no_answer(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.stores.cassandra.settlement import index_batches  # noqa: PLC0415  (needs the driver)

    (job,) = new_jobs(1)
    store.add([job])
    driver: Any = store._session._connected()
    execute_async = driver.execute_async

    def unsent(_: object) -> None:
        raise KeyError("a token that nobody owns")

    def undecoded(statement: object) -> Any:  # noqa: ANN401  (the driver's future)
        future = execute_async(statement)
        monkeypatch.setattr(future, "result", lambda: struct.unpack(">q", b""))
        return future

    for send in (unsent, undecoded):
        with monkeypatch.context() as driver_fails:
            driver_fails.setattr(driver, "execute_async", send)
            with pytest.raises(StoreUnavailable, match="the driver failed with"):
                store.find([job.id])
            (became,) = store._session.write_many(index_batches([job]))
        assert isinstance(became, Unknown), "it may have been written"
    with monkeypatch.context() as driver_fails:
        driver_fails.setattr(driver, "execute_async", lambda *_, **__: unsent(None))
        with pytest.raises(StoreUnavailable, match="the driver failed with"):
            store.clock_us()
    assert store.find([job.id]) == [job]


def test_a_node_that_hangs_is_given_up_within_the_time_of_a_request(store: CassandraStore) -> None:
    session = store._session
    session.ask("SELECT key FROM system.local")
    assert session._cluster is not None
    every_s = session._cluster.idle_heartbeat_interval
    waits_s = session._cluster.idle_heartbeat_timeout
    # twice, since what came in the first round counts as a sign of life
    assert 2 * every_s + waits_s <= session.place.timeout_us / 1e6


class Answer:
    """A future of the driver; an answer of None never comes."""

    def __init__(self, answer: list[tuple[int]] | Exception | None) -> None:
        self._answer = answer

    def add_callbacks(self, good: Any, bad: Any) -> None:  # noqa: ANN401  (the driver's)
        if self._answer is not None:
            (bad if isinstance(self._answer, Exception) else good)(self._answer)

    def result(self) -> Any:  # noqa: ANN401  (the driver's)
        if isinstance(self._answer, Exception):
            raise self._answer
        return Found(self._answer or [])


class Found(list[tuple[int]]):
    """Rows that have the column of the question."""

    column_names = ("now",)


class Nodes:
    """A session to some nodes; no more of it than reading their clocks needs."""

    def __init__(self, answers: dict[str, list[tuple[int]] | Exception | None]) -> None:
        self._answers = answers

    def execute_async(self, _: str, *, host: Any) -> Answer:  # noqa: ANN401  (the driver's)
        return Answer(self._answers[host.address])


def test_a_node_that_hangs_keeps_nobody_from_the_others_clocks(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store._session
    hosts = [SimpleNamespace(address=name, is_up=True) for name in "abc"]
    hosts.append(SimpleNamespace(address="d", is_up=False))
    monkeypatch.setattr(session, "_near", lambda: hosts)
    answers: dict[str, list[tuple[int]] | Exception | None]
    answers = {"a": [(1,)], "b": None, "c": OSError("gone")}
    monkeypatch.setattr(session, "_connected", lambda: Nodes(answers))
    assert [rows for rows, _ in session.ask_near("now", SystemClock(), columns=("now",))] == [
        [(1,)]
    ]
    del answers["b"]
    answers |= {"a": OSError("gone"), "b": OSError("gone")}
    with pytest.raises(StoreUnavailable):
        session.ask_near("now", SystemClock(), columns=("now",))


def test_the_middle_clock_of_the_nodes_is_the_stores(store: CassandraStore) -> None:
    assert abs(store.clock_us() - SystemClock().wall_us()) < SECOND_US
