"""Columns that say of a job what a call in Python can: key, expiry, jitter, tags (C21, P2)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Context, Dueline, Unique
from dueline.core.call_options import read_options
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.errors import Duplicate
from dueline.core.option_table import Option, Shape
from dueline.jobs.history import attempts
from tests.harness.carried_options import PASSED, expected, given_for, shown
from tests.harness.queues import queues_on
from tests.harness.spark.writers import new_batch_of, new_jobs_of
from tests.harness.stepped_store import SteppedMemoryStore

KEPT_US = 3600 * SECOND_US
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


@pytest.fixture
def ran() -> list[int]:
    """Note which numbers were run."""
    return []


@pytest.fixture
def app(tmp_path: Path, ran: list[int]) -> Iterator[Dueline]:
    """Make an application that notes what it runs."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")

    @app.task(name="send", queue="mail")
    def send(number: int) -> None:
        ran.append(number)

    app.queues.engine.catalog.configure("mail", shards=1)
    yield app
    app.close()


@pytest.fixture(params=["direct", "staged"])
def mode(request: pytest.FixtureRequest) -> str:
    """Name each way to write."""
    return str(request.param)


def rows_of(numbers: range, **cells: Any) -> list[dict[str, Any]]:
    """Make rows of numbers, all with the same other cells."""
    return [{"job_id": f"n{one}", "payload": f"[{one}]", **cells} for one in numbers]


def write(app: Dueline, rows: list[dict[str, Any]], **options: Any) -> Mapping[str, int]:
    """Write rows; return the counts."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dueline.spark.runtime.options import WRITING, Options
    from dueline.spark.writing.sink import BatchSink, written

    batch = pa.RecordBatch.from_pylist(rows)
    if "headers" in batch.schema.names:
        maps = pa.array([row["headers"] for row in rows], pa.map_(pa.string(), pa.string()))
        place = batch.schema.get_field_index("headers")
        batch = batch.set_column(place, "headers", maps)
    texts = {"store": app.url, "queue": "mail", "task": "send", "writeId": "w"} | options
    schema = StructType()
    for name in batch.schema.names:
        schema = schema.add(name, "string")
    sink = BatchSink(Options(texts, WRITING), schema, overwrite=False)
    sink.commit([sink.write(iter([batch]))])
    return written(app.store, texts["writeId"])._asdict()


def test_a_key_is_held_by_one_job_and_other_rows_are_left_out(
    app: Dueline, mode: str, ran: list[int]
) -> None:
    app.task_named("send").using(unique="eve").enqueue(100)
    rows = [
        *rows_of(range(2), unique_key="ann"),  # the first by id gets it
        *rows_of(range(2, 4), unique_key="eve"),
        *rows_of(range(4, 6), unique_key=None),
    ]
    assert write(app, rows, writeMode=mode) == {"rows": 6, "added": 3, "elsewhere": 0, "held": 3}
    with pytest.raises(Duplicate):
        app.task_named("send").using(unique="ann").enqueue(7)
    app.run_worker(burst=True)
    assert Counter(ran) in (Counter([100, 4, 5, 0]), Counter([100, 4, 5, 1]))
    write(app, rows, writeMode=mode)
    app.run_worker(burst=True)
    assert len(ran) == 4
    app.task_named("send").using(unique="ann").enqueue(8)  # is free again
    assert write(app, rows, writeMode=mode, writeId="x")["held"] == 3


def test_a_key_that_is_held_can_be_an_error(app: Dueline, mode: str) -> None:
    app.task_named("send").using(unique="eve").enqueue(100)
    rows = [*rows_of(range(3), unique_key=None), *rows_of(range(9, 10), unique_key="eve")]
    with pytest.raises(Duplicate, match="eve"):
        write(app, rows, writeMode=mode, onUnique="reject")
    assert len(list(app.queues.engine.jobs_of("mail"))) == 1


@pytest.mark.parametrize("on_unique", ["existing", "reject"])
def test_an_expired_job_that_waits_holds_its_key_no_longer(
    app: Dueline, mode: str, on_unique: str, ran: list[int]
) -> None:
    # C12, C15: as for single calls
    past = datetime.now(UTC) - timedelta(seconds=5)
    app.queue("mail", shards=1, history="all")
    write(app, rows_of(range(1), unique_key="ann", expires=past), writeMode=mode)
    (expired,) = app.queues.engine.jobs_of("mail")
    rows = [*rows_of(range(1, 2), unique_key="ann"), *rows_of(range(2, 4), unique_key=None)]
    counts = write(app, rows, writeMode=mode, writeId="x", onUnique=on_unique)
    assert counts == {"rows": 3, "added": 3, "elsewhere": 0, "held": 0}
    past_of = Counter(
        one.outcome for one in attempts(app.store, "mail", 1, everything=True)
        if one.job == expired.id.hex()
    )  # fmt: skip
    assert past_of == Counter(["enqueued", "expired"])
    app.run_worker(burst=True)
    assert Counter(ran) == Counter([1, 2, 3])


def test_the_error_names_the_job_that_got_the_key(app: Dueline, mode: str) -> None:
    past = datetime.now(UTC) - timedelta(seconds=5)
    write(app, rows_of(range(1), unique_key="ann", expires=past), writeMode=mode)
    (expired,) = app.queues.engine.jobs_of("mail")
    with pytest.raises(Duplicate) as raised:
        write(
            app, rows_of(range(1, 3), unique_key="ann"),
            writeMode=mode, writeId="x", onUnique="reject",
        )  # fmt: skip
    assert raised.value.job_id != expired.id.hex()
    assert list(app.queues.engine.jobs_of("mail")) == [expired]


def test_a_key_can_be_held_for_a_time(app: Dueline, ran: list[int]) -> None:
    write(app, rows_of(range(1), unique_key="ann"), uniqueWithin="1h")
    app.run_worker(burst=True)
    assert write(app, rows_of(range(5, 6), unique_key="ann"), writeId="x")["held"] == 1
    with pytest.raises(Duplicate):
        app.task_named("send").using(unique=Unique("ann")).enqueue(1)
    assert ran == [0]


def test_without_transactions_a_key_is_held_by_one_job_and_a_repeat_adds_none() -> None:
    from dueline.spark.writing.enqueue import put_all
    from dueline.spark.writing.rows_to_jobs import in_order

    store = SteppedMemoryStore(SystemClock())
    engine = queues_on(store, SystemClock()).engine
    rows = [*rows_of(range(3), unique_key="ann"), *rows_of(range(3, 5), unique_key=None)]

    def put(write: str) -> tuple[int, ...]:
        some = in_order(new_batch_of(rows))
        return put_all(engine, [some], write, 0, keep_us=KEPT_US)

    assert put("w") == (5, 3, 0, 2)
    assert put("w") == (5, 0, 0, 0)
    rows = rows_of(range(7, 9), unique_key="ann")
    assert put("x") == (2, 0, 0, 2)
    assert len(list(engine.jobs_of("mail"))) == 3


@pytest.mark.parametrize("on_unique", ["existing", "reject"])
def test_without_transactions_an_expired_job_holds_its_key_no_longer(on_unique: Any) -> None:
    from dueline.spark.writing.enqueue import put_all
    from dueline.spark.writing.rows_to_jobs import Form, in_order, new_jobs

    engine = queues_on(SteppedMemoryStore(SystemClock()), SystemClock()).engine
    past = datetime.now(UTC) - timedelta(seconds=5)

    def put(write: str, rows: list[dict[str, Any]]) -> tuple[int, ...]:
        import pyarrow as pa

        form = Form("mail", "send", mode=on_unique)
        made = new_jobs(pa.RecordBatch.from_pylist(rows), form, now_us=engine.time.earliest_us())
        return put_all(engine, [in_order(made)], write, 0, keep_us=KEPT_US)

    assert put("w", rows_of(range(1), unique_key="ann", expires=past)) == (1, 1, 0, 0)
    assert put("x", rows_of(range(1, 2), unique_key="ann")) == (1, 1, 0, 0)
    assert len(list(engine.jobs_of("mail"))) == 1


def test_jobs_expire_are_spread_and_have_tags(app: Dueline, mode: str, ran: list[int]) -> None:
    past = datetime.now(UTC) - timedelta(seconds=5)
    write(app, rows_of(range(1), expires=past), writeMode=mode)  # a repeated task may be late
    app.run_worker(burst=True)
    assert ran == []
    later = SOON + timedelta(hours=2)
    cells = {"due": SOON, "expires": later, "jitter": 3600, "tags": ["b", "a", "b"]}
    write(app, rows_of(range(20, 60), **cells), writeMode=mode, writeId="x")
    jobs = list(app.queues.engine.jobs_of("mail"))
    options = read_options(jobs[0].opts)
    assert (options.expires_us, options.tags) == (later.timestamp() * SECOND_US, ("a", "b"))
    starts = [job.at_us / SECOND_US - SOON.timestamp() for job in jobs]
    assert len(set(starts)) == 40
    assert min(starts) >= 0
    assert 2000 < max(starts) <= 3600
    assert {job.due_us / SECOND_US for job in jobs} == {SOON.timestamp()}


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"unique_key": ""}, "unique key '' is invalid"),
        ({"due": SOON, "expires": SOON}, "expires before it is due"),
        ({"due": SOON, "jitter": 9, "expires": SOON + timedelta(seconds=5)}, "expires before"),
        ({"jitter": -1.0}, r"jitter.* window .* 0 seconds to ten years \(got -1.0 s\)"),
        ({"tags": ["a" * 65]}, "A tag must be"),
    ],
)
def test_what_no_call_takes_is_refused(cells: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        new_jobs_of(rows_of(range(1), **cells))


def test_jitter_can_be_an_interval() -> None:
    rows = rows_of(range(2), jitter=timedelta(milliseconds=1500))
    assert [one.window_us for one in new_jobs_of(rows)] == [1_500_000] * 2
    assert [one.window_us for one in new_jobs_of(rows_of(range(1), jitter=None))] == [0]


def test_headers_travel_with_the_job(app: Dueline, mode: str, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    other = Dueline(app.url)

    @other.task(name="send", queue="mail")
    def send(ctx: Context, number: int) -> None:
        seen.append(ctx.headers)

    headers = [("trace", "7f3a"), ("ö", "ß")]
    write(app, rows_of(range(2), headers=headers), writeMode=mode)
    write(app, rows_of(range(2, 3), headers=None), writeMode=mode, writeId="none")
    other.run_worker(burst=True)
    assert sorted(seen, key=len) == [{}, dict(headers), dict(headers)]
    with pytest.raises(BadInput, match="A header must have"):
        write(app, rows_of(range(9, 10), headers=[("", "x")]), writeMode=mode, writeId="bad")


@pytest.mark.parametrize("option", PASSED, ids=[option.name for option in PASSED])
def test_a_row_has_a_column_for_each_option_that_a_job_carries(option: Option) -> None:
    import pyarrow as pa

    from dueline.spark.writing.rows_to_jobs import Form, check_columns, new_jobs

    value = given_for(option)
    is_map = option.shape is Shape.PAIRS
    kind = pa.map_(pa.string(), pa.string()) if is_map else pa.list_(pa.string())
    cells = pa.array([list(value.items()) if is_map else value, None, []], kind)
    columns = {"job_id": ["a", "b", "c"], "payload": ["[1]"] * 3, option.column: cells}
    form = Form("default", "echo")
    check_columns(list(columns), form)
    with_it, *others = new_jobs(
        pa.RecordBatch.from_pydict(columns), form, now_us=SystemClock().wall_us()
    ).to_pylist()
    assert shown(read_options(with_it["opts"]), option) == expected(option)
    assert [row["opts"] for row in others] == [b"", b""]
