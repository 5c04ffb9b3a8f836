"""A product and its job's end are one, or neither is (C10)."""

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueline import BadInput, CommitUnknown, Context, Dueline, LeaseLost, Retry, Snooze, Transaction
from dueline.core.attempt import Attempt, Ended, Settled
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.store import Move, Transactional, TransactionView
from dueline.jobs.history import attempts
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution
from dueline.worker.settler import Settler
from tests.harness.calls import claim_all
from tests.harness.transactions import bills

NOT_AGAIN = Retry(attempts=1)


def told(app: Dueline) -> list[Attempt]:
    """List attempts job by job: their times are read off two clocks."""
    return sorted(attempts(app.store, "default", 1), key=lambda one: (one.job, one.fence))


def words(app: Dueline) -> list[str]:
    return [one.outcome for one in told(app)]


def work(app: Dueline) -> None:
    app.run_worker(["default"], burst=True, concurrency=2)


def insert(tx: Transaction, number: int) -> None:
    tx.execute("insert into bills values (?, ?)", (number, number * 100))


def snatch(app: Dueline, ctx: Context) -> None:
    """Take the job away from whoever runs it, and leave it for later, as its next claimer may."""
    (row,) = app.store.find([ctx.job_id])
    assert row is not None
    at_us = row.at_us + 3600 * SECOND_US
    move = Move(row, at_us, app.queues.engine.ids.token(), row.lane.bucket, 0, 0)
    assert app.store.settle([move]) == [True]


def test_a_product_is_committed_with_its_jobs_end(shop: Dueline) -> None:
    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> str:
        time.sleep(0.01)
        with shop.transaction() as tx:
            insert(tx, number)
            return ctx.finish(tx, f"bill {number}")

    job = bill.enqueue(7)
    work(shop)
    assert bills(shop) == [(7, 700)]
    assert (job.status, job.result(timeout=0)) == ("done", "bill 7")
    assert list(shop.queues.engine.jobs_of("default")) == []
    (attempt,) = told(shop)
    assert (attempt.outcome, attempt.error, attempt.fence) == ("done", "", 1)
    assert attempt.claimed_us <= attempt.started_us <= attempt.ended_us - 10_000
    assert attempt.ended_us <= shop.queues.engine.time.latest_us()
    assert attempt.worker.count(":") == 2


def test_it_works_in_memory_too(app: Dueline) -> None:
    @app.task(name="chain")
    def chain(ctx: Context, number: int) -> int:
        with app.transaction() as tx:
            if number:
                chain.using(tx=tx).enqueue(number - 1)
            return ctx.finish(tx, number)

    job = chain.enqueue(3)
    work(app)
    assert job.result(timeout=0) == 3
    assert words(app) == ["done"] * 4


def test_nothing_is_kept_of_it_where_the_queue_keeps_nothing(shop: Dueline) -> None:
    shop.queue("default", keep=0, history="off")

    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> object:
        with shop.transaction() as tx:
            insert(tx, number)
            return ctx.finish(tx, object())

    bill.enqueue(1)
    work(shop)
    assert bills(shop) == [(1, 100)]
    assert (told(shop), list(shop.queues.engine.jobs_of("default"))) == ([], [])
    assert shop.store.read("results", after=None, limit=9) == []


def test_a_handler_that_fails_inside_leaves_no_product_and_is_tried_again(shop: Dueline) -> None:
    @shop.task(name="bill", retry=Retry(attempts=3, base=0))
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            insert(tx, number)
            value = ctx.finish(tx, number)
            if ctx.attempt < 3:
                raise OSError(ctx.attempt)
        return value

    job = bill.enqueue(1)
    work(shop)
    assert (bills(shop), job.result(timeout=0)) == ([(1, 100)], 1)
    assert words(shop) == ["retried", "retried", "done"]


def test_what_happens_after_the_commit_changes_nothing(
    shop: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dueline.worker")

    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            insert(tx, number)
            ctx.finish(tx, number)
        if number == 1:
            raise OSError("too late")
        if number == 2:
            raise Snooze(minutes=1)
        return 99

    jobs = bill.enqueue_many([(1,), (2,), (3,)])
    rows = claim_all(shop.queues)
    execution = Execution(shop.tasks)
    ended = [
        Ended(row, execution.run(Assignment(row, keep=True), row.claimed_us), row.claimed_us, 1)
        for row in rows
    ]
    assert [one.ending for one in ended] == [Settled()] * 3
    settler = Settler(shop.queues.engine, shop.tasks, random.Random(1))
    assert settler.settle(ended, []) == []
    assert [job.result(timeout=0) for job in jobs] == [1, 2, 3]
    assert len(bills(shop)) == 3
    assert words(shop) == ["done"] * 3
    assert caplog.text.count("raised after it was done") == 1
    assert "too late" in caplog.text
    assert "lost its claim" not in caplog.text
    assert caplog.text.count(" done after ") == 3


def test_a_lost_claim_takes_the_product_along(shop: Dueline) -> None:
    seen: list[BaseException] = []

    @shop.task(name="bill", retry=NOT_AGAIN)
    def bill(ctx: Context, number: int) -> int:
        snatch(shop, ctx)
        try:
            with shop.transaction() as tx:
                insert(tx, number)
                return ctx.finish(tx, number)
        except BaseException as error:
            seen.append(error)
            raise

    job = bill.enqueue(1)
    work(shop)
    assert [type(error) for error in seen] == [LeaseLost]
    assert bills(shop) == []
    assert (job.status, told(shop)) == ("scheduled", [])


def test_a_commit_of_unknown_outcome_is_decided_by_the_row(
    shop: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shop.store
    assert isinstance(store, Transactional)
    begin = store.transaction
    happens = {1: True, 2: False}

    @contextmanager
    def unsure() -> Iterator[TransactionView]:
        is_asked = ran[-1:] == [1] or ran[-1:] == [2]
        if not is_asked:
            with begin() as inside:
                yield inside
            return
        if happens[ran[-1]]:
            with begin() as inside:
                yield inside
            raise Unknown
        with pytest.raises(Unknown), begin() as inside:  # noqa: PT012
            yield inside
            raise Unknown
        raise Unknown

    ran: list[int] = []

    @shop.task(name="bill", retry=Retry(base=0))
    def bill(ctx: Context, number: int) -> int:
        ran.append(number if ctx.attempt == 1 else 0)
        with shop.transaction() as tx:
            insert(tx, number)
            return ctx.finish(tx, number)

    monkeypatch.setattr(store, "transaction", unsure)
    for number in (1, 2):
        job = bill.enqueue(number)
        work(shop)
        assert job.result(timeout=0) == number
    monkeypatch.undo()
    assert bills(shop) == [(1, 100), (2, 200)]
    assert ran == [1, 2, 0]
    assert words(shop) == ["done", "retried", "done"]
    assert told(shop)[1].error.startswith(CommitUnknown.__name__)


def test_a_transaction_that_was_rolled_back_settles_nothing(shop: Dueline) -> None:
    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> int:
        with pytest.raises(ValueError, match="no"), shop.transaction() as tx:  # noqa: PT012
            insert(tx, number)
            ctx.finish(tx, number)
            raise ValueError("no")
        with shop.transaction() as tx:
            insert(tx, number + 1)
            return ctx.finish(tx, number + 1)

    job = bill.enqueue(1)
    work(shop)
    assert (bills(shop), job.result(timeout=0), words(shop)) == ([(2, 200)], 2, ["done"])


def test_a_job_is_finished_once(shop: Dueline) -> None:
    @shop.task(name="bill", retry=NOT_AGAIN)
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            ctx.finish(tx, number)
            with pytest.raises(BadInput, match="was finished before"):
                ctx.finish(tx, number)
        with pytest.raises(BadInput, match="was finished before"), shop.transaction() as tx:
            ctx.finish(tx, number)
        return number

    job = bill.enqueue(1)
    work(shop)
    assert (job.status, words(shop)) == ("done", ["done"])


def test_the_transaction_of_another_application_ends_no_job(shop: Dueline, url: str) -> None:
    other = Dueline(url.replace("jobs.db", "others.db"))
    other.queues.engine.catalog.settings("default")

    @other.task(name="bill")
    def namesake(number: int) -> int:
        return number

    @shop.task(name="bill", retry=NOT_AGAIN)
    def bill(ctx: Context, number: int) -> int:
        with other.transaction() as tx:
            tx.execute("create table bills (number)")
            return ctx.finish(tx, number)

    job = bill.enqueue(1)
    work(shop)
    assert job.status == "dead"
    with other.transaction() as tx:
        assert tx.execute("select name from sqlite_schema where name = 'bills'") == []
    other.close()


def test_a_plain_call_writes_the_product_and_ends_nothing(shop: Dueline) -> None:
    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            insert(tx, number)
            return ctx.finish(tx, number)

    assert bill(3) == 3
    assert bills(shop) == [(3, 300)]


def test_a_handler_may_go_on_when_its_job_is_gone(
    shop: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    shop.queue("default", lease=6)  # its beat comes every two seconds
    told_so = threading.Event()

    @shop.task(name="bill", retry=NOT_AGAIN)
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            insert(tx, number)
            ctx.finish(tx, number)
        while True:  # the beat finds no row to extend, and says so
            try:
                ctx.check_cancelled()
            except LeaseLost:
                told_so.set()
                raise
            time.sleep(0.01)

    job = bill.enqueue(1)
    work(shop)
    assert told_so.wait(60)
    assert (job.result(timeout=0), words(shop)) == (1, ["done"])
    assert "lost its claim" not in caplog.text


def test_products_of_many_threads_are_each_there_once(shop: Dueline) -> None:
    @shop.task(name="bill")
    def bill(ctx: Context, number: int) -> int:
        with shop.transaction() as tx:
            insert(tx, number)
            return ctx.finish(tx, number)

    bill.enqueue_many([(number,) for number in range(200)])
    shop.run_worker(["default"], burst=True, concurrency=8)
    assert sorted(bills(shop)) == [(number, number * 100) for number in range(200)]
    # A busy machine may release jobs that wait for a slot for too long.
    assert [word for word in words(shop) if word != "given_back"] == ["done"] * 200
