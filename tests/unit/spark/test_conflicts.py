"""Rows whose jobs are alive by another write."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Conflict, Dueline
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.store import Lease, Want
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore

COLUMNS = {"job_id": "string", "payload": "string", "due": "timestamp", "priority": "int"}
NAMES = ("a", "b")
TODAY = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Make an application with an empty queue."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queues.engine.catalog.configure("mail", shards=1)
    yield app
    app.close()


@pytest.fixture(params=["direct", "staged"])
def mode(request: pytest.FixtureRequest) -> str:
    """Name each way to write."""
    return str(request.param)


def day(number: int) -> datetime:
    """Name an instant so many days ahead."""
    return TODAY + timedelta(days=number)


def write(app: Dueline, due: datetime | None, priority: int = 0, **options: Any) -> int:
    """Write two rows; answer how many jobs were new."""
    import pyarrow as pa

    from dueline.spark.reading import schemas
    from pyspark_dueline import DefaultSource

    cells = {"payload": "[]", "due": due, "priority": priority}
    batch = pa.RecordBatch.from_pylist(
        [{"job_id": name, **cells} for name in NAMES],
        schema=pa.schema(
            [("job_id", pa.string()), ("payload", pa.string()),
             ("due", pa.timestamp("us", "UTC")), ("priority", pa.int32())]
        ),
    )  # fmt: skip
    texts = {"writeId": Ids().token().hex()} | {key: str(text) for key, text in options.items()}
    source = DefaultSource({"store": app.url, "queue": "mail", "task": "note"} | texts)
    writer: Any = source.writer(schemas.struct_of(COLUMNS), overwrite=False)
    writer.commit([writer.write(iter([batch]))])
    return counts(app, texts["writeId"])[1]


def counts(app: Dueline, write_id: str) -> tuple[int, ...]:
    """Read what a write came to: rows, added, elsewhere."""
    from dueline.spark.writing.sink import written

    return written(app.store, write_id)[:3]


def rows(app: Dueline) -> Sequence[Job]:
    """Read the jobs of the queue, by their ids."""
    return sorted(app.queues.engine.jobs_of("mail"), key=lambda job: job.id)


def dues(app: Dueline) -> list[datetime]:
    """Tell when the jobs are due."""
    return [datetime.fromtimestamp(job.at_us / SECOND_US, UTC) for job in rows(app)]


def claim(app: Dueline, job: Job) -> Job:
    """Take a job as a worker does."""
    claimed = app.store.claim(
        [Want(job.lane, 1)], limit=1, lease=Lease(job.at_us, 3600 * SECOND_US, "w", Ids().token())
    )
    return claimed.jobs[0]


def test_the_earlier_of_two_times_holds(app: Dueline, mode: str) -> None:
    # P2
    assert write(app, day(5)) == 2
    assert write(app, day(7), 9, onConflict="earliest", writeMode=mode) == 0
    assert dues(app) == [day(5), day(5)]
    assert write(app, day(3), 9, onConflict="earliest", writeMode=mode) == 0
    assert dues(app) == [day(3), day(3)]
    assert {job.lane.priority for job in rows(app)} == {0}
    assert write(app, day(2), writeMode=mode) == 0
    assert dues(app) == [day(3), day(3)]  # by default it is left as it is
    write(app, None, onConflict="earliest", writeMode=mode)
    assert all(job.at_us <= app.store.clock_us() for job in rows(app))


def test_a_row_replaces_time_and_priority(app: Dueline, mode: str) -> None:
    # P2
    write(app, day(5))
    assert write(app, day(7), 9, onConflict="replace", writeMode=mode) == 0
    assert dues(app) == [day(7), day(7)]
    assert {job.lane.priority for job in rows(app)} == {9}
    assert {job.due_us for job in rows(app)} == {round(day(7).timestamp()) * SECOND_US}


def test_what_somebody_claimed_is_left_as_it_is(app: Dueline, mode: str) -> None:
    write(app, day(5))
    held = claim(app, rows(app)[0])
    write(app, day(3), 9, onConflict="replace", writeMode=mode)
    found = {job.id: job for job in rows(app)}
    assert found.pop(held.id) == held
    (other,) = found.values()
    assert (other.lane.priority, other.fence) == (9, 0)


def test_what_is_claimed_meanwhile_is_left_and_the_rest_is_changed(
    app: Dueline, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.writing import enqueue as putting
    from dueline.spark.writing import staging

    write(app, day(5))
    taken: list[Job] = []
    module: Any = staging if mode == "staged" else putting
    make = module.moves

    def too_late(living: Sequence[Job], *args: Any, **terms: Any) -> Any:
        found = make(living, *args, **terms)
        if not taken:
            taken.append(claim(app, living[0]))
        return found

    monkeypatch.setattr(module, "moves", too_late)
    write(app, day(3), onConflict="earliest", writeMode=mode)
    left = [job for job in rows(app) if job.id != taken[0].id]
    assert [job.at_us for job in left] == [round(day(3).timestamp()) * SECOND_US]
    assert taken[0] in rows(app)


def test_without_transactions_a_change_that_is_refused_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyarrow as pa

    from dueline.spark.writing.enqueue import Written, put_all
    from dueline.spark.writing.rows_to_jobs import NEW_JOBS

    putting: Any = import_module("dueline.spark.writing.enqueue")
    store = SteppedMemoryStore(SystemClock())
    queues = queues_on(store, SystemClock())
    ids = queues.engine.ids.many(3, queues.engine.time.earliest_us())
    late_us = queues.engine.time.latest_us() + 3600 * SECOND_US

    def put(name: str, due_us: int, on_conflict: str) -> Written:
        cells = ["mail", "note", 0, b"[]", due_us, 0, "", b"", 0]
        rows = [dict(zip(NEW_JOBS.names, [one, *cells], strict=True)) for one in ids]
        some = pa.RecordBatch.from_pylist(rows, NEW_JOBS)
        return put_all(
            queues.engine, [some], name, 0, keep_us=SECOND_US * 60, on_conflict=on_conflict
        )

    assert put("first", late_us, "existing") == (3, 3, 0, 0)
    make = putting.moves

    def stale(living: Sequence[Job], *args: Any, **terms: Any) -> Any:
        found = make(living, *args, **terms)
        first = found[0]
        return [first._replace(job=first.job._replace(token=queues.engine.ids.token())), *found[1:]]

    monkeypatch.setattr(putting, "moves", stale)
    assert put("second", late_us - SECOND_US, "earliest") == (3, 0, 0, 0)
    times = sorted(job.at_us for job in store.find(ids) if job)
    assert times == [late_us - SECOND_US, late_us - SECOND_US, late_us]


def test_an_id_that_lives_in_another_queue_is_an_error_by_default(app: Dueline, mode: str) -> None:
    write(app, day(3), queue="charge", writeMode=mode)
    before = list(app.queues.engine.jobs_of("charge"))
    for on_conflict in ("existing", "replace"):
        with pytest.raises(
            Conflict, match=r"ids of jobs in another queue: 2, such as \w+ in charge"
        ):
            write(app, day(1), queue="ship", writeMode=mode, onConflict=on_conflict)
        terms: dict[str, Any] = {
            "writeMode": mode,
            "onConflict": on_conflict,
            "onOtherQueue": "existing",
        }
        assert write(app, day(1), 0, queue="ship", writeId=on_conflict, **terms) == 0
        assert counts(app, on_conflict) == (2, 0, 2)
    assert list(app.queues.engine.jobs_of("ship")) == []
    assert list(app.queues.engine.jobs_of("charge")) == before
    assert write(app, day(3), queue="charge", writeMode=mode) == 0  # its own queue's: as ever


@pytest.mark.parametrize("chunk", ["1", "100"])
def test_rows_of_one_table_that_give_an_id_to_two_queues_are_an_error(
    app: Dueline, mode: str, chunk: str
) -> None:
    import pyarrow as pa

    from dueline.spark.reading import schemas
    from pyspark_dueline import DefaultSource

    some = [{"job_id": "a", "payload": "[]", "queue": queue} for queue in ("charge", "ship")]

    def put(**options: str) -> tuple[int, ...]:
        texts = {"task": "note", "writeId": "two", "writeMode": mode, "chunkRows": chunk} | options
        source = DefaultSource({"store": app.url} | texts)
        kinds = dict.fromkeys(some[0], "string")
        writer: Any = source.writer(schemas.struct_of(kinds), overwrite=False)
        writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(some)]))])
        return counts(app, "two")

    with pytest.raises(Conflict, match="in another queue: 1"):
        put()
    assert put(onOtherQueue="existing") == (2, int((mode, chunk) != ("direct", "1")), 1)
    with pytest.raises(BadInput, match="Use one of reject, existing"):
        put(onOtherQueue="replace")
