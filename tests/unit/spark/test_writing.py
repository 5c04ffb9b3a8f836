"""Tables enqueued: the writer by hand, then a write on Spark (P4)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, ConfigError, Dueline
from dueline.core.attempt import EnqueuedEvent
from dueline.core.clock import SystemClock
from dueline.core.codec import decode
from dueline.core.errors import Conflict
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Row
from dueline.jobs.history_batch import unbundled
from tests.harness.queues import queues_on
from tests.harness.spark.writers import app, batches_of, dying, living, ran, writer_of
from tests.harness.stepped_store import SteppedMemoryStore

__all__ = ["app", "ran"]


def test_rows_become_jobs_that_run(app: Dueline, ran: list[int]) -> None:
    message = writer_of(app).write(batches_of(range(100)))
    assert (message.done.rows, message.done.added) == (100, 100)
    assert {job.lane.shard for job in app.queues.engine.jobs_of("mail")} == {0, 1, 2}
    app.run_worker(burst=True)
    assert sorted(ran) == list(range(100))


def test_a_write_that_is_repeated_adds_nothing_even_after_its_jobs_have_run(
    app: Dueline, ran: list[int]
) -> None:
    writer_of(app, writeId="monday", chunkRows=30).write(batches_of(range(100)))
    app.run_worker(burst=True)
    message = writer_of(app, writeId="monday", chunkRows=30).write(batches_of(range(100)))
    assert (message.done.rows, message.done.added) == (100, 0)
    assert living(app) == 0
    assert len(ran) == 100
    other = writer_of(app, writeId="tuesday").write(batches_of(range(100)))
    assert other.done.added == 100


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_a_job_that_is_alive_by_another_write_is_left_or_an_error(app: Dueline, mode: str) -> None:
    # P2
    def write(rows: int, **options: Any) -> int:
        writer = writer_of(app, writeMode=mode, chunkRows=10, **options)
        writer.commit([writer.write(batches_of(range(rows)))])
        return living(app)

    assert write(10, writeId="first", onConflict="reject") == 10
    for _ in range(2):
        with pytest.raises(Conflict, match=r"another write: \d+, such as .*onConflict=existing"):
            write(14, onConflict="reject")
    assert living(app) == 10
    assert write(10, writeId="first", onConflict="reject") == 10  # they are its own
    assert write(14) == 14
    with pytest.raises(BadInput, match="Use one of existing, reject, earliest, replace"):
        write(14, onConflict="merge")


def test_a_task_that_runs_twice_at_once_does_not_reject_its_own_jobs(app: Dueline) -> None:
    one = writer_of(app, writeId="both", chunkRows=7, onConflict="reject")

    def halfway() -> Iterator[Any]:
        batches = batches_of(range(21))
        yield next(batches)
        one.write(batches_of(range(21)))  # the other attempt overtakes this one
        yield from batches

    assert one.write(halfway()).done.rows == 21
    assert living(app) == 21


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_enqueue_events_are_recorded_in_a_history_of_everything(app: Dueline, mode: str) -> None:
    # P2
    app.queues.engine.catalog.configure("mail", history="arguments")
    for _ in range(2):
        writer = writer_of(app, writeId="monday", writeMode=mode)
        writer.commit([writer.write(batches_of(range(10)))])
    rows = [row for shard in range(3) for row in tail(app, shard)]
    told = [decode(one.body, EnqueuedEvent) for row in rows for one in unbundled(row)]
    assert {(one.outcome, one.payload) for one in told} == {
        ("enqueued", b"[%d]" % number) for number in range(10)
    }
    assert {one.job for one in told} == {job.id.hex() for job in app.queues.engine.jobs_of("mail")}


def tail(app: Dueline, shard: int) -> Sequence[Row]:
    """Read the history of a shard."""
    return app.store.tail("mail!history", shard, after=None, limit=100).rows


def test_payloads_in_other_codecs_are_taken_as_they_are(app: Dueline, ran: list[int]) -> None:
    import pyarrow as pa

    from dueline.spark.writing.rows_to_jobs import Form, jobs_of, new_jobs

    app.payloads.use("msgpack")
    app.task_named("note").using(after=9).enqueue(70)
    (job,) = app.queues.engine.jobs_of("mail")
    row = {"job_id": "a", "payload": job.body, "codec": job.codec}
    settings = app.queues.engine.catalog.settings
    some = new_jobs(pa.RecordBatch.from_pylist([row]), Form("mail", "note"), now_us=job.due_us)
    app.store.add(jobs_of(some, now_us=job.enqueued_us, settings=settings))
    app.run_worker(burst=True)
    assert ran == [70]


def test_jobs_that_live_are_not_put_by_another_write(app: Dueline) -> None:
    writer_of(app).write(batches_of(range(20)))
    message = writer_of(app).write(batches_of(range(30)))
    assert (message.done.rows, message.done.added) == (30, 10)
    assert living(app) == 30


def test_a_task_that_died_is_run_again_in_another_order_and_doubles_none(
    app: Dueline, ran: list[int]
) -> None:
    first = writer_of(app, chunkRows=4)  # the same writer is sent to each attempt
    with pytest.raises(OSError, match="dies"):
        first.write(dying(range(25)))
    put = living(app)
    assert 10 <= put <= 25
    app.run_worker(burst=True)
    message = first.write(batches_of(list(reversed(range(40)))))
    assert message.done.added == 40 - put
    app.run_worker(burst=True)
    assert Counter(ran) == Counter(range(40))


def test_a_row_that_is_there_twice_is_one_job(app: Dueline) -> None:
    message = writer_of(app, chunkRows=1000).write(batches_of([1, 2, 1, 3, 2] * 4))
    assert message.done.added == living(app) == 3


def test_two_tasks_that_write_the_same_partition_at_once_put_each_job_once(
    app: Dueline, ran: list[int]
) -> None:
    one = writer_of(app, writeId="both", chunkRows=7)
    slow = one.write

    def halfway() -> Iterator[Any]:
        batches = batches_of(range(21))
        yield next(batches)
        yield next(batches)
        one.write(batches_of(range(21)))  # the other attempt overtakes this one
        app.run_worker(burst=True)
        yield from batches

    slow(halfway())
    app.run_worker(burst=True)
    assert Counter(ran) == Counter(range(21))


def test_without_transactions_a_chunk_that_was_begun_is_put_as_it_was_enqueued() -> None:
    from dueline.spark.writing.write_log import Dues, Ledger

    store = SteppedMemoryStore(SystemClock())
    ids = [JobId(bytes([number]) * 16) for number in range(1, 6)]
    late_us = 7000

    def make(some: Sequence[JobId], now_us: int, dues: Dues) -> list[Job]:
        lane = Lane("mail", 0, 0, 0, "")
        said = dues or dict.fromkeys(some, late_us)  # what the data says of it by now
        return [
            Job(lane, said[one], one, 0, said[one], now_us, "t", 0, b"[]", b"", said[one])
            for one in some
        ]

    def dies(some: Sequence[JobId], now_us: int, dues: Dues) -> list[Job]:
        jobs = make(some, now_us, dues or dict.fromkeys(some, now_us))
        store.add(jobs[:1])
        return [*jobs, Job(*[None] * 21)]  # type: ignore[arg-type]  # breaks the add

    def ledger() -> Ledger:
        return Ledger(store, "w", 0, token=Ids().token, expires_us=2**60)

    store.add(make(ids[4:], 500, {ids[4]: 500}))  # alive by another write
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever a broken row is to a store)
        ledger().put([*ids[:3], ids[4]], dies, now_us=1000)
    again = ledger()
    assert again.put(ids, make, now_us=2000).new == 4
    again.close()
    assert [job.pos_us for job in store.find(ids) if job] == [1000, 1000, 1000, late_us, 500]
    queues = queues_on(store, SystemClock())
    assert len(list(queues.engine.jobs_of("mail"))) == len(ids)
    assert ledger().put(ids, make, now_us=3000).new == 0


def test_the_counts_of_a_write_are_kept(app: Dueline) -> None:
    from dueline.spark.writing.enqueue import Written
    from dueline.spark.writing.sink import written

    writer = writer_of(app, writeId="counted")
    messages = [writer.write(batches_of(range(5))), None, writer.write(batches_of(range(8)))]
    writer_of(app).commit(messages)
    assert written(app.store, "counted") == Written(rows=13, added=8)
    assert written(app.store, "countee") == Written()


def test_what_cannot_be_written_is_refused(app: Dueline, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be overwritten.*append"):
        writer_of(app, overwrite=True)
    with pytest.raises(BadInput, match="Did you mean chunkRows"):
        writer_of(app, chunkRow=5)
    with pytest.raises(ConfigError, match="There is no store at"):
        writer_of(app, store=f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.long
def test_a_task_that_fails_on_spark_doubles_nothing_and_counts_are_answered(
    spark: Any, app: Dueline, ran: list[int]
) -> None:
    from pyspark import TaskContext

    from dueline.spark import enqueue

    def breaks(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 2 and TaskContext.get().attemptNumber() == 0:
                raise OSError("the first attempt")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "concat('n', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    frame = frame.mapInArrow(breaks, frame.schema)
    counts = enqueue(frame, app.url, queue="mail", task="note", chunkRows=50)
    assert counts.rows == 1000
    assert living(app) == 1000
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("dueline").mode("overwrite").options(
            store=app.url, queue="mail", task="note"
        ).save()
    app.run_worker(burst=True)
    assert Counter(ran) == Counter(range(1000))


@pytest.mark.long
def test_a_batch_that_is_replayed_after_its_jobs_have_run_adds_nothing(
    spark: Any, app: Dueline, ran: list[int], tmp_path: Path
) -> None:
    app.store.append(
        [Row("orders", 0, 10 + number, b"%08d" % number, b"[%d]" % number) for number in range(60)]
    )
    checkpoint = tmp_path / "checkpoint"

    def drain() -> None:
        frame = spark.readStream.format("dueline").options(
            store=app.url, table="stream", stream="orders", maxRowsPerTrigger=40
        )
        query = (
            frame.load()
            .selectExpr("hex(id) AS job_id", "body AS payload")
            .writeStream.format("dueline")
            .options(store=app.url, queue="mail", task="note", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    drain()
    app.run_worker(burst=True)
    assert sorted(ran) == list(range(60))
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    drain()
    app.run_worker(burst=True)
    assert sorted(ran) == list(range(60))
