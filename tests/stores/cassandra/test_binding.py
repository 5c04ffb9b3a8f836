"""Batches that are bound without the driver's `bind`."""

from collections.abc import Iterator

import pytest

from dueline.api.connect import open_store
from dueline.core.store import Lease
from dueline.store_tests.calls import new_job, token_of
from dueline.stores.row_updates import claimed
from tests.harness.cassandra_node import Keyspaces, expect_node, node_url

expect_node()

from dueline.stores.cassandra import statements as rows  # noqa: E402  (needs the driver)
from dueline.stores.cassandra.session import batch_of  # noqa: E402
from dueline.stores.cassandra.store import CassandraStore  # noqa: E402

pytestmark = pytest.mark.cassandra

_ALONE = (
    "UPDATE {keyspace}.jobs SET alone = ? WHERE queue = ? AND shard = ? AND bucket = ?"
    " AND priority = ? AND tenant = ? AND pos_us = ? AND id = ? AND hop = ?"
)


@pytest.fixture
def store() -> Iterator[CassandraStore]:
    with node_url() as address:
        keyspaces = Keyspaces(address, "")
        store = open_store(keyspaces.fresh())
        assert isinstance(store, CassandraStore)
        yield store
        store.close()
        keyspaces.close()


def test_a_batch_is_bound_as_the_driver_would_bind_it(store: CassandraStore) -> None:
    session = store._session
    jobs = [new_job(1), new_job(2)]
    calls = [rows.insert(job) for job in jobs]
    for job in jobs:
        after = claimed(job, Lease(1, 2, "ü", token_of(1)))
        calls += [rows.claim(job, after), rows.drop(after)]
    calls.append((_ALONE, (None, *rows.place_of(jobs[0]))))
    bound = batch_of(calls, lambda text: session._prepare(text).statement)
    told = [values for _, _, values in bound._statements_and_parameters]
    assert told == [session._asked(*call).statement.values for call in calls]
    assert bound.routing_key == session._asked(*calls[0]).statement.routing_key
    assert bound.keyspace == session.place.keyspace


def test_a_value_too_few_is_no_batch(store: CassandraStore) -> None:
    text, values = rows.drop(new_job(1))
    with pytest.raises(ValueError, match="zip"):
        batch_of([(text, values[:-1])], lambda text: store._session._prepare(text).statement)
