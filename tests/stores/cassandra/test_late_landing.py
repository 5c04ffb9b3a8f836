"""Requests that land late on a real node, just before their repeats (R13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.store_tests.calls import claim, lane_of, new_jobs, put_in
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node
from tests.harness.late_landing import Late, LateLandingLaws, Silence

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import Call
    from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node() as keyspaces:
        yield keyspaces


@pytest.fixture
def store(keyspaces: Keyspaces) -> Iterator[CassandraStore]:
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(keyspaces.fresh())
    assert isinstance(store, CassandraStore)
    yield store
    store.close()


class TestCassandra(LateLandingLaws):
    @pytest.fixture
    def late(self, store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> Late:
        """Hold the next conditional batches back, and send them just before those that follow."""
        session = store._session
        send = session.decide_many
        held: list[Sequence[Sequence[Call]]] = []
        armed: list[bool] = []

        def decide_many(batches: Sequence[Sequence[Call]]) -> Sequence[object]:
            if armed and batches:
                armed.clear()
                held.append(batches)
                return [Unknown("the answer was lost") for _ in batches]
            while held:
                send(held.pop())
            return send(batches)

        monkeypatch.setattr(session, "decide_many", decide_many)
        return lambda: armed.append(True)

    @pytest.fixture
    def silence(self, store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> Silence:
        def fail(*_: object) -> None:
            raise StoreUnavailable

        def say_nothing() -> Callable[[], None]:
            read_serial = store._session.read_serial
            monkeypatch.setattr(store._session, "read_serial", fail)
            return lambda: monkeypatch.setattr(store._session, "read_serial", read_serial)

        return say_nothing


def test_a_claim_whose_every_answer_is_lost_is_unknown(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(2))

    def lose(batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        return [Unknown("the answer was lost") for _ in batches]

    monkeypatch.setattr(store._session, "decide_many", lose)
    with pytest.raises(Unknown):
        claim(store, lane_of())
