"""Commit leaves the jobs, rollback leaves none (C11)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueline import (
    BadInput,
    CommitUnknown,
    ConfigError,
    Dueline,
    EnqueueUnknown,
    Job,
    Task,
)
from dueline.core.errors import Unknown
from dueline.core.store import Transactional, TransactionView
from dueline.core.wakeup import LocalWakeups, Signal
from tests.harness.swaps import swap
from tests.harness.transactions import numbered, status

Send = Task[[int], int]


class Stop(Exception):
    """Raised by a block that changed its mind."""


def names(app: Dueline) -> list[str]:
    return app.queues.engine.catalog.names()


# --- both stores -----------------------------------------------------------------------------


def test_a_commit_leaves_the_jobs_and_their_handles_are_good(app: Dueline, send: Send) -> None:
    with app.transaction() as tx:
        one = send.using(tx=tx, priority=5).enqueue(1)
        more = send.using(tx=tx).enqueue_many([(2,), (3,)], chunk=1)
    assert [status(job) for job in (one, *more)] == ["ready"] * 3
    assert tx.is_committed
    app.run_worker(["default"], burst=True)
    assert [job.result(timeout=0) for job in (one, *more)] == [1, 2, 3]


def test_an_exception_leaves_no_job_and_is_raised(app: Dueline, send: Send) -> None:
    kept = send.enqueue(1)
    with pytest.raises(Stop), app.transaction() as tx:  # noqa: PT012
        gone = [send.using(tx=tx).enqueue(2), *send.using(tx=tx).enqueue_many([(3,), (4,)])]
        raise Stop
    assert (status(kept), [status(job) for job in gone]) == ("ready", ["unknown"] * 3)
    assert not tx.is_committed
    assert [row.id.hex() for row in app.queues.engine.jobs_of("default")] == [kept.id]


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
    assert len(list(app.queues.engine.jobs_of("default"))) == 1


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
        with pytest.raises(BadInput, match="has ended"):
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
    thread.join()
    return errors[0]


def test_another_thread_waits_and_then_sees_it_all(app: Dueline, send: Send) -> None:
    inside, others = Signal(), []
    job: list[Job[int]] = []

    def write() -> None:
        assert inside.wait(60)
        others.append(send.enqueue(2))
        others.append(app.queues.engine.store.find([bytes.fromhex(job[0].id)])[0])  # type: ignore[list-item, arg-type]

    thread = threading.Thread(target=write)
    thread.start()
    with app.transaction() as tx:
        job.append(send.using(tx=tx).enqueue(1))
        inside.set()
        thread.join(0.05)
        assert others == []
    thread.join()
    assert len(others) == 2
    assert others[1] is not None


@pytest.mark.parametrize("other", [3, "tx", object()])
def test_only_a_transaction_is_one(app: Dueline, send: Send, other: object) -> None:
    with pytest.raises(BadInput, match="must be a transaction"):
        send.using(tx=other)
    assert names(app) == []


def test_a_connection_of_the_standard_library_is_refused_with_the_reason(send: Send) -> None:
    import sqlite3  # noqa: PLC0415  (never on a queue file)

    connection = sqlite3.connect(":memory:")
    with pytest.raises(
        BadInput, match=r"must not be a sqlite3\.Connection: POSIX locks.*app\.transaction"
    ):
        send.using(tx=connection)
    connection.close()


def test_the_transaction_of_another_application_is_refused(app: Dueline, url: str) -> None:
    other = Dueline(url.replace("jobs.db", "others.db"))
    send = numbered(other)
    with app.transaction() as tx, pytest.raises(BadInput, match="another application"):
        send.using(tx=tx).enqueue(1)
    other.close()


def test_a_store_without_transactions_says_so() -> None:
    app = Dueline("memory://?transactional=off")
    with pytest.raises(
        ConfigError, match=r"does not support transactions.*postgresql:// or sqlite://"
    ):
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
    def transaction(self) -> Iterator[TransactionView]:
        with self._store.transaction() as inside:
            yield inside
        raise Unknown


def test_a_commit_of_unknown_outcome_says_so(app: Dueline, send: Send) -> None:
    store = app.store
    assert isinstance(store, Transactional)
    app.__dict__["store"] = Unsure(store)
    with pytest.raises(CommitUnknown) as raised, app.transaction() as tx:
        job = send.using(tx=tx).enqueue(1)
    assert "all of them are stored, or none" in raised.value.hint
    assert not isinstance(raised.value, EnqueueUnknown)
    assert not tx.is_committed
    assert status(job) == "ready"


def test_an_unknown_that_the_block_raises_is_left_as_it_is(app: Dueline) -> None:
    error = EnqueueUnknown()
    with pytest.raises(EnqueueUnknown) as raised, app.transaction():
        raise error
    assert raised.value is error


def test_workers_are_woken_by_a_commit_and_not_before(app: Dueline, send: Send) -> None:
    # O1: who looked before would see nothing, and not look again for a while
    swap(app.queues, wakeups=LocalWakeups())
    listener = app.queues.engine.wakeups.listen(["default"], Signal())
    with app.transaction() as tx:
        send.using(tx=tx).enqueue(1)
        assert not listener.take()
    assert listener.take()
    with pytest.raises(Stop), app.transaction() as tx:  # noqa: PT012
        send.using(tx=tx).enqueue(2)
        raise Stop
    assert not listener.take()
