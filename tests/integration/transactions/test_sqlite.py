"""Rows of the caller's beside jobs, in one queue file."""

import os

import pytest

from dueline import BadInput, Conflict, Dueline, NotFound, StoreUnavailable, Transaction
from dueline.stores.sqlite.connection import Database
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.transactions import bills, numbered, status


class Stop(Exception):
    """Raised by a block that changed its mind."""


def test_rows_and_jobs_share_one_fate(shop: Dueline) -> None:
    send = numbered(shop)
    with shop.transaction() as tx:
        tx.execute("insert into bills values (?, ?)", (1, 100))
        send.using(tx=tx).enqueue(1)
        tx.execute("insert into bills values (:number, :cents)", {"number": 2, "cents": 200})
        assert tx.execute("select sum(cents), 'x', x'01', null from bills") == [
            (300, "x", b"\1", None)
        ]
    with pytest.raises(Stop), shop.transaction() as tx:  # noqa: PT012
        tx.execute("insert into bills values (3, 300)")
        send.using(tx=tx).enqueue(3)
        raise Stop
    assert bills(shop) == [(1, 100), (2, 200)]
    assert len(list(shop.queues.engine.jobs_of("default"))) == 1


def test_nothing_is_seen_from_outside_before_the_commit(shop: Dueline, url: str) -> None:
    send = numbered(shop)
    other = Dueline(url)
    assert other.queues.peek("default", 9) == []
    with shop.transaction() as tx:
        tx.execute("insert into bills values (1, 1)")
        job = send.using(tx=tx).enqueue(1)
        assert job.status == "ready"  # this thread sees what it wrote
        with pytest.raises(NotFound):
            _ = other.job(job.id).status
        assert other.queues.peek("default", 9) == []
    assert other.job(job.id).status == "ready"
    other.close()


def test_another_writer_waits_its_time_and_then_gives_up(
    shop: Dueline, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.stores.sqlite.connection.LOCK_WAIT_S", 0.05)
    other = Dueline(url)
    send = numbered(other)
    numbered(shop).enqueue(0)
    with shop.transaction():
        with pytest.raises(StoreUnavailable, match="kept the queue file"):
            send.enqueue(1)
        with pytest.raises(StoreUnavailable, match="kept the queue file"), other.transaction():
            raise AssertionError("it was let in")
    assert status(send.enqueue(2)) == "ready"
    other.close()


STATEMENTS_REFUSED = [
    "commit",
    "rollback",
    "begin",
    "savepoint mine",
    "attach ':memory:' as other",
    "pragma synchronous = off",
    "delete from jobs",
    "insert into lanes (queue) values ('q')",
    "update records set version = x''",
    "drop table rows",
    "alter table Marks add column mine",
    "create index mine on JOBS (task)",
    "create trigger mine after delete on jobs begin select 1; end",
    "create temp table jobs (id)",
    "create view dueline_view as select 1",
    "insert into bills values (9, 9); delete from bodies",
    "analyze",
]


@pytest.mark.parametrize("statement", STATEMENTS_REFUSED)
def test_what_would_harm_the_queue_is_refused(shop: Dueline, statement: str) -> None:
    send = numbered(shop)
    send.enqueue(0)
    with shop.transaction() as tx:
        with pytest.raises(BadInput, match="would end the transaction"):
            tx.execute(statement)
        send.using(tx=tx).enqueue(1)
    assert len(list(shop.queues.engine.jobs_of("default"))) == 2
    assert status(send.enqueue(2)) == "ready"


def test_a_trigger_of_yours_cannot_write_to_the_queue_either(shop: Dueline) -> None:
    with shop.transaction() as tx:
        tx.execute("create trigger sly after insert on bills begin delete from jobs; end")
        with pytest.raises(BadInput, match="change a table of the queue"):
            tx.execute("insert into bills values (1, 1)")


def test_the_queue_can_be_read(shop: Dueline) -> None:
    send = numbered(shop)
    with shop.transaction() as tx:
        send.using(tx=tx).enqueue(1)
        assert tx.execute("select task from jobs") == [("send",)]
        tx.execute("create table notes (jobs, rows)")  # columns may be called what they like
        tx.execute("insert into notes (jobs) values (1)")
        tx.execute("update notes set jobs = 2, rows = 3")


@pytest.mark.parametrize(
    ("statement", "bindings"),
    [
        ("selec", ()),
        ("select * from nowhere", ()),
        ("select ?", ()),
        ("select ?", (object(),)),
        ("select :a", {"b": 1}),
        ("select ?", 5),
        ("select ?", (2**70,)),
        (3, ()),
    ],
)
def test_a_wrong_statement_is_bad_input_and_the_transaction_goes_on(
    shop: Dueline, statement: str, bindings: tuple[object, ...]
) -> None:
    with shop.transaction() as tx:
        with pytest.raises(BadInput):
            tx.execute(statement, bindings)
        tx.execute("insert into bills values (1, 1)")
    assert bills(shop) == [(1, 1)]


def test_a_broken_constraint_is_a_conflict_and_undoes_its_statement_alone(shop: Dueline) -> None:
    with shop.transaction() as tx:
        tx.execute("insert into bills values (1, 1)")
        with pytest.raises(Conflict, match=r"UNIQUE constraint failed: bills\.number"):
            tx.execute("insert into bills values (2, 2), (1, 1)")
    assert bills(shop) == [(1, 1)]


def test_a_statement_that_rolls_all_back_ends_the_transaction_for_good(shop: Dueline) -> None:
    send = numbered(shop)
    send.enqueue(0)

    def swallow(tx: Transaction) -> None:
        tx.execute("insert into bills values (1, 1)")
        send.using(tx=tx).enqueue(1)
        with pytest.raises(Exception, match="constraint"):
            tx.execute("insert or rollback into bills values (1, null)")
        with pytest.raises(StoreUnavailable, match="rolled back before its end"):
            tx.execute("insert into bills values (2, 2)")
        with pytest.raises(StoreUnavailable, match="rolled back before its end"):
            send.using(tx=tx).enqueue(2)

    with (
        pytest.raises(StoreUnavailable, match="rolled back before its end"),
        shop.transaction() as tx,
    ):
        swallow(tx)
    assert bills(shop) == []
    assert len(list(shop.queues.engine.jobs_of("default"))) == 1


def test_a_full_disk_inside_is_unavailable_and_changes_nothing(shop: Dueline) -> None:
    send = numbered(shop)
    kept = send.enqueue(0)
    assert isinstance(shop.store, SqliteStore)
    database = shop.store._file._database
    assert database is not None
    database.execute(f"pragma max_page_count = {database.pragma('page_count')}")
    with pytest.raises(StoreUnavailable, match="is full"), shop.transaction() as tx:  # noqa: PT012
        gone = send.using(tx=tx).enqueue(1)
        tx.execute("insert into bills values (1, zeroblob(1000000))")
    assert (status(kept), status(gone)) == ("ready", "unknown")
    with pytest.raises(StoreUnavailable, match="is full"), shop.transaction() as tx:
        send.using(tx=tx).enqueue_many([(1,)] * 10_000, chunk=5000)
    database.execute("pragma max_page_count = 1000000")
    with shop.transaction() as tx:
        again = send.using(tx=tx).enqueue(1)
    assert (status(again), bills(shop)) == ("ready", [])


def test_a_call_of_the_store_inside_happens_as_a_whole_or_not_at_all(shop: Dueline) -> None:
    send = numbered(shop)
    kept = send.enqueue(0)

    def fail(database: Database) -> None:
        database.execute("delete from jobs")
        raise Stop

    with shop.transaction() as tx:
        store = tx.queues_of(shop).engine.store
        assert isinstance(store, SqliteStore)
        added = send.using(tx=tx).enqueue(1)
        with pytest.raises(Stop):
            store._connection.write(fail)
    assert (status(kept), status(added)) == ("ready", "ready")


def test_a_fork_inside_rolls_it_back_on_both_sides(shop: Dueline) -> None:
    send = numbered(shop)
    kept = send.enqueue(0)
    pid = 0
    with pytest.raises(StoreUnavailable, match="rolled back"), shop.transaction() as tx:  # noqa: PT012
        gone = send.using(tx=tx).enqueue(1)
        pid = os.fork()
        if pid == 0:
            try:
                tx.execute("insert into bills values (1, 1)")
            except StoreUnavailable:
                os._exit(7)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (status(kept), status(gone)) == ("ready", "unknown")
    assert status(send.enqueue(2)) == "ready"


def test_a_wait_for_a_result_inside_does_not_wait_for_its_own_transaction(shop: Dueline) -> None:
    job = numbered(shop).enqueue(1)
    with shop.transaction(), pytest.raises(TimeoutError, match="is still ready"):
        job.result(timeout=0)
    assert job.status == "ready"
