"""Answers of a real node that belong to another question, as far as they show it (C1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.store import Commit, Put
from dueline.store_tests.calls import claim, lane_of, new_job, new_jobs, put_in, rows_in
from dueline.stores.cursor_cache import END, PAGE_MAX, START, Page
from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node

if find_spec("cassandra") is None:
    pytest.skip("cassandra is absent: the driver is not installed", allow_module_level=True)

from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import PARTITIONS, Answer, MixedUpError, answer_of
from dueline.stores.cassandra.session import Call
from dueline.stores.cassandra.settlement import index_batches
from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra

OTHERS = "SELECT key FROM system.local"


@pytest.fixture(scope="module")
def store() -> Iterator[CassandraStore]:
    with keyspaces_on_a_node() as keyspaces:
        store = open_store(keyspaces.fresh())
        assert isinstance(store, CassandraStore)
        yield store
        store.close()


def answered_with(store: CassandraStore, patch: pytest.MonkeyPatch, statement: object) -> None:
    """Have the node answer each request with what it answers to one statement."""
    driver: Any = store._session._connected()
    execute_async = driver.execute_async
    patch.setattr(driver, "execute_async", lambda _, **how: execute_async(statement, **how))


def version_where(key: str, part: str = "/other") -> Call:
    """Make a conditional write that is refused."""
    return (
        "UPDATE {keyspace}.records SET version = ? WHERE part = ? AND key = ? IF version = ?",
        (b"v", part, key, b"nobody's"),
    )


def test_rows_of_other_columns_are_no_answer(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = new_jobs(1)
    store.add([job])
    assert store.find([job.id]) == [job]
    answered_with(store, monkeypatch, OTHERS)
    with pytest.raises(StoreUnavailable, match="answered a read with the columns key in place of"):
        store.find([job.id])
    monkeypatch.undo()
    assert store.find([job.id]) == [job]


def test_a_clock_is_not_read_off_another_answer(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered_with(store, monkeypatch, "SELECT host_id FROM system.local")
    with pytest.raises(StoreUnavailable, match="the columns host_id in place of"):
        store.clock_us()
    monkeypatch.undo()
    assert store.clock_us() > 0


def test_rows_of_another_partition_are_no_answer(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the columns that were asked for."""
    mine, others = (new_job(number, lane=lane_of(tenant=f"t{number}")) for number in (501, 502))
    store.add([mine, others])
    page = Page(START, 10)
    for read, call in (
        (
            lambda: rows_in(store, mine.lane),
            rows.whole_each([others.lane], page.limit, START, END, None),
        ),
        (
            lambda: store.scan(mine.lane, after=None, until_us=None, limit=5, skip=1),
            rows.thin_page(others.lane, page),
        ),
        (lambda: claim(store, mine.lane), rows.whole_page(others.lane, page)),
        (lambda: store.find([mine.id]), rows.places(others.id)),
        (
            lambda: store._session.read_serial(*rows.whole_page(mine.lane, page)),
            rows.whole_page(others.lane, page),
        ),
    ):
        statement = store._session._asked(*call).statement
        with monkeypatch.context() as patch:
            answered_with(store, patch, statement)
            with pytest.raises(StoreUnavailable, match="rows of another partition"):
                read()
    assert rows_in(store, mine.lane) == [mine]


@pytest.mark.parametrize("what", ["rows", "a decision"])
def test_jobs_are_not_taken_for_stored_by_anothers_answer(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (job,) = new_jobs(1, first=510 + len(what))
    statement: object = OTHERS
    if what == "a decision":
        statement = store._session._batch([version_where("k")])
    write_many = store._session.write_many

    def mixed_up(batches: Sequence[Sequence[Call]]) -> object:
        with monkeypatch.context() as patch:
            answered_with(store, patch, statement)
            return write_many(batches)

    monkeypatch.setattr(store._session, "write_many", mixed_up)
    try:
        answered = list(store.add([job]))
    except Unknown:  # its index was written first
        answered = [False]
    monkeypatch.undo()
    assert answered == [False]
    assert store.find([job.id]) == [None]
    assert list(store.add([job])) == [True]
    assert store.find([job.id]) == [job]


def test_a_claim_is_not_taken_for_made_by_the_answer_to_a_plain_write(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = new_jobs(1, first=620, lane=lane_of(tenant="plain"))
    store.add([job])
    plain = store._session._batch(index_batches([job])[0])
    decide_many = store._session.decide_many

    def mixed_up(batches: Sequence[Sequence[Call]]) -> object:
        with monkeypatch.context() as patch:
            answered_with(store, patch, plain)
            return decide_many(batches)

    monkeypatch.setattr(store._session, "decide_many", mixed_up)
    with pytest.raises(Unknown, match="no columns in place of"):
        claim(store, job.lane)
    monkeypatch.undo()
    assert store.find([job.id]) == [job]


def test_a_refusal_that_shows_rows_of_another_partition_is_no_answer(store: CassandraStore) -> None:
    partition = {"part": "/mine"}
    names = ("[applied]", "part", "key", "version")
    assert answer_of(names, [(False, "/mine", "k", b"v")], partition=partition).rows
    assert answer_of(("[applied]",), [(True,)], partition=partition).is_applied
    others: list[tuple[tuple[str, ...], list[tuple[object, ...]]]] = [
        (names, [(False, "/other", "k", b"v")]),
        (("key",), [("local",)]),
        ((), []),
    ]
    for columns, told in others:
        with pytest.raises(MixedUpError):
            answer_of(columns, told, partition=partition)
    (answer,) = store._session.decide_many([[version_where("k")]])
    assert isinstance(answer, Answer)
    assert not answer.is_applied


def test_what_is_refused_shows_its_partition(store: CassandraStore) -> None:
    """Else nothing could be compared."""
    store.commit("shown", [Put("k", b"1", b"{}")])
    (answer,) = store._session.decide_many([[version_where("k", "/shown")]])
    assert isinstance(answer, Answer)
    assert [row["part"] for row in answer.rows] == ["/shown"]


def test_each_table_is_read_with_the_token_of_its_partition_key(store: CassandraStore) -> None:
    keyspace = store._session.place.keyspace
    columns = store._session.ask(
        "SELECT table_name, column_name, position FROM system_schema.columns"  # noqa: S608
        f" WHERE keyspace_name = '{keyspace}' AND kind = 'partition_key' ALLOW FILTERING"
    )
    keys: dict[str, list[tuple[int, str]]] = {}
    for table, column, position in columns:
        keys.setdefault(table, []).append((position, column))
    assert {
        table: ", ".join(column for _, column in sorted(columns)) for table, columns in keys.items()
    } == PARTITIONS


def test_many_rows_are_read_in_one_answer(store: CassandraStore) -> None:
    """A page after the first would have no time limit."""
    put_in(store, *new_jobs(2100, first=3000, lane=lane_of(tenant="many")))
    asked = store._session._asked(*rows.thin_page(lane_of(tenant="many"), Page(START, PAGE_MAX)))
    result = store._session._connected().execute(asked.statement)
    assert len(result.current_rows) == PAGE_MAX
    assert not result.has_more_pages


def test_records_that_were_refused_without_a_condition_are_of_unknown_fate(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request's refusal: nothing is expected that could be otherwise."""
    monkeypatch.setattr(
        store._session,
        "decide_many",
        lambda batches: [Answer(is_applied=False, rows=())] * len(batches),
    )
    with pytest.raises(Unknown, match="records of mine may have been written or not"):
        store._records.put_all([Commit("mine", [Put("k", b"1", b"{}")])])
