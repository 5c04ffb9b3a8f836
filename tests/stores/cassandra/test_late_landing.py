"""Requests that land late on a real node, just before their repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.store_tests.calls import claim, lane_of, new_jobs, put_in
from tests.harness import late_landing
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node

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


@pytest.fixture
def late(store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> late_landing.Late:
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


def test_a_claim_has_its_rows(store: CassandraStore, late: late_landing.Late) -> None:
    late_landing.a_claim_has_its_rows(store, late)


def test_a_claim_of_another_is_not_taken_for_ones_own(
    store: CassandraStore, late: late_landing.Late
) -> None:
    late_landing.a_claim_of_another_is_not_taken_for_ones_own(store, late)


@pytest.mark.parametrize("verdict", late_landing.VERDICTS)
def test_a_verdict_holds(store: CassandraStore, late: late_landing.Late, verdict: str) -> None:
    late_landing.a_verdict_holds(store, late, verdict)


def test_verdicts_beside_it_hold(store: CassandraStore, late: late_landing.Late) -> None:
    late_landing.verdicts_beside_it_hold(store, late)


def test_a_commit_holds(store: CassandraStore, late: late_landing.Late) -> None:
    late_landing.a_commit_holds(store, late)


def test_an_outcome_is_known_by_whoever_repeats_it(
    store: CassandraStore, late: late_landing.Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silence() -> Callable[[], None]:
        def fail(*_: object) -> None:
            raise StoreUnavailable

        read_serial = store._session.read_serial
        monkeypatch.setattr(store._session, "read_serial", fail)
        return lambda: monkeypatch.setattr(store._session, "read_serial", read_serial)

    late_landing.an_outcome_is_known_by_whoever_repeats_it(store, late, silence)


def test_another_outcome_under_the_same_claim_is_refused(store: CassandraStore) -> None:
    late_landing.another_outcome_under_the_same_claim_is_refused(store)


def test_a_claim_whose_every_answer_is_lost_is_unknown(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(2))

    def lose(batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        return [Unknown("the answer was lost") for _ in batches]

    monkeypatch.setattr(store._session, "decide_many", lose)
    with pytest.raises(Unknown):
        claim(store, lane_of())
