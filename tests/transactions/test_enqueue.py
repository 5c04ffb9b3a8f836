"""Commit leaves the jobs, rollback leaves none."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueline import (
    BadInput,
    CommitUnknown,
    ConfigError,
    Conflict,
    Dueline,
    EnqueueUnknown,
    Job,
    NotFound,
    StoreUnavailable,
    Task,
    Transaction,
)
from dueline.errors import Unknown
from dueline.store import Inside, Transactional
from tests.transactions.conftest import bills, numbered

Send = Task[[int], int]


class Stop(Exception):
    """Raised by a block that changed its mind."""


def names(app: Dueline) -> list[str]:
    return app.queues.catalog.names()


def status(job: Job[int]) -> str:
    try:
        return job.status
    except NotFound:
        return "unknown"


# --- both stores -----------------------------------------------------------------------------


def test_a_commit_leaves_the_jobs_and_their_handles_are_good(app: Dueline, send: Send) -> None:
    with app.transaction() as tx:
        one = send.using(tx=tx, priority=5).enqueue(1)
        more = send.using(tx=tx).enqueue_many([(2,), (3,)], chunk=1)
    assert [status(job) for job in (one, *more)] == ["ready"] * 3
    assert tx.is_committed
    app.run_worker(["default"], burst=True)
    assert [job.result(timeout=0) for job in (one, *more)] == [1, 2, 3]


def test_an_exception_leaves_no_job_and_goes_on(app: Dueline, send: Send) -> None:
    kept = send.enqueue(1)
    with pytest.raises(Stop), app.transaction() as tx:  # noqa: PT012
        gone = [send.using(tx=tx).enqueue(2), *send.using(tx=tx).enqueue_many([(3,), (4,)])]
        raise Stop
    assert (status(kept), [status(job) for job in gone]) == ("ready", ["unknown"] * 3)
    assert not tx.is_committed
    assert [row.id.hex() for row in app.queues.jobs_of("default")] == [kept.id]


def test_a_queue_that_a_rolled_back_transaction_made_is_made_again(
    app: Dueline, send: Send
) -> None:
    with pytest.raises(Stop), app.transaction() as tx:  # noqa: PT012
        send.using(tx=tx, queue="new").enqueue(1)
        raise Stop
    assert names(app) == []
    job = send.using(queue="new").enqueue(1)
    assert (names(app), status(job)) == (["new"], "ready")


def test_a_part_that_fails_and_is_caught_leaves_the_rest(app: Dueline, send: Send) -> None:
    with app.transaction() as tx:
        first = send.using(tx=tx).enqueue(1)
        with pytest.raises(BadInput):
            send.using(tx=tx).enqueue("one")  # type: ignore[arg-type]
        second = send.using(tx=tx).enqueue(2)
    assert (status(first), status(second)) == ("ready", "ready")


def test_the_next_transaction_begins_with_nothing_of_the_last(app: Dueline, send: Send) -> None:
    with pytest.raises(Stop), app.transaction() as tx:  # noqa: PT012
        send.using(tx=tx).enqueue(1)
        raise Stop
    with app.transaction() as tx:
        send.using(tx=tx).enqueue(2)
    assert len(list(app.queues.jobs_of("default"))) == 1


def test_a_second_transaction_in_the_thread_is_refused_and_the_first_goes_on(
    app: Dueline, send: Send
) -> None:
    with app.transaction() as tx:
        with pytest.raises(BadInput, match="has a transaction open"), app.transaction():
            pass
        job = send.using(tx=tx).enqueue(1)
    assert status(job) == "ready"


def test_a_write_beside_the_open_transaction_is_refused_at_once(app: Dueline, send: Send) -> None:
    asleep = send.using(after=60).enqueue(0)
    with app.transaction() as tx:
        for beside in (lambda: send.enqueue(1), asleep.cancel, lambda: app.queue("q", shards=2)):
            with pytest.raises(BadInput, match="not part of it"):
                beside()
        job = send.using(tx=tx).enqueue(2)
    assert (status(asleep), status(job)) == ("scheduled", "ready")


def test_a_transaction_that_is_over_is_refused(app: Dueline, send: Send) -> None:
    with app.transaction() as tx:
        pass
    for use in (lambda: send.using(tx=tx).enqueue(1), lambda: tx.execute("select 1")):
        with pytest.raises(BadInput, match="is over"):
            use()
    assert names(app) == []


def test_another_thread_cannot_use_it(app: Dueline, send: Send) -> None:
    with app.transaction() as tx:
        assert (
            in_thread(lambda: send.using(tx=tx).enqueue(1))
            .args[0]
            .startswith("The transaction belongs to another thread.")
        )
        assert isinstance(in_thread(lambda: tx.execute("select 1")), BadInput)
    assert names(app) == []


def in_thread(use: object) -> BaseException:
    """Call in another thread what fails there."""
    assert callable(use)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            use()
        except BaseException as error:  # noqa: BLE001  (it is looked at below)
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    return errors[0]


def test_another_thread_waits_and_then_sees_it_all(app: Dueline, send: Send) -> None:
    inside, others = threading.Event(), []
    job: list[Job[int]] = []

    def write() -> None:
        assert inside.wait(30)
        others.append(send.enqueue(2))
        others.append(app.queues.store.find([bytes.fromhex(job[0].id)])[0])  # type: ignore[list-item, arg-type]

    thread = threading.Thread(target=write)
    thread.start()
    with app.transaction() as tx:
        job.append(send.using(tx=tx).enqueue(1))
        inside.set()
        thread.join(0.05)
        assert others == []
    thread.join(30)
    assert len(others) == 2
    assert others[1] is not None


@pytest.mark.parametrize("other", [3, "tx", object()])
def test_only_a_transaction_is_one(app: Dueline, send: Send, other: object) -> None:
    with pytest.raises(BadInput, match="not a transaction"):
        send.using(tx=other)  # type: ignore[arg-type]
    assert names(app) == []


def test_a_connection_of_the_standard_library_is_refused_with_the_reason(send: Send) -> None:
    import sqlite3  # noqa: PLC0415  (never on a queue file)

    connection = sqlite3.connect(":memory:")
    with pytest.raises(BadInput, match=r"no sqlite3\.Connection: POSIX locks.*app\.transaction"):
        send.using(tx=connection)  # type: ignore[arg-type]
    connection.close()


def test_the_transaction_of_another_application_is_refused(app: Dueline, url: str) -> None:
    other = Dueline(url.replace("jobs.db", "others.db"))
    send = numbered(other)
    with app.transaction() as tx, pytest.raises(BadInput, match="another application"):
        send.using(tx=tx).enqueue(1)
    other.close()


def test_a_store_without_transactions_says_so() -> None:
    app = Dueline("memory://?transactional=off")
    with pytest.raises(ConfigError, match=r"no transactions that you could join.*sqlite://"):
        app.transaction().__enter__()
    app.close()


# --- when the store does not do as it is told ------------------------------------------------


class Unsure:
    """A store whose commits answer nothing."""

    def __init__(self, store: Transactional) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[Inside]:
        with self._store.transaction() as inside:
            yield inside
        raise Unknown


def test_a_commit_of_unknown_outcome_says_so(app: Dueline, send: Send) -> None:
    store = app.store
    assert isinstance(store, Transactional)
    app.__dict__["store"] = Unsure(store)
    with pytest.raises(CommitUnknown) as raised, app.transaction() as tx:
        job = send.using(tx=tx).enqueue(1)
    assert "all there, or none" in raised.value.hint
    assert not isinstance(raised.value, EnqueueUnknown)
    assert not tx.is_committed
    assert status(job) == "ready"


def test_an_unknown_that_the_block_raises_is_left_as_it_is(app: Dueline) -> None:
    error = EnqueueUnknown()
    with pytest.raises(EnqueueUnknown) as raised, app.transaction():
        raise error
    assert raised.value is error


# --- SQLite ----------------------------------------------------------------------------------


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
    assert len(list(shop.queues.jobs_of("default"))) == 1


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
    monkeypatch.setattr("dueline.stores.sqlite_connection.LOCK_WAIT_S", 0.05)
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
    assert len(list(shop.queues.jobs_of("default"))) == 2
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
    assert len(list(shop.queues.jobs_of("default"))) == 1


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
