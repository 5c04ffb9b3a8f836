"""Readers, driven by hand: no Spark is started (P1)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dueline import BadInput, ConfigError, Dueline, NotFound
from dueline.core.job import Job, State
from dueline.core.job_columns import columns_in
from dueline.core.lane import Lane, dead_queue
from dueline.core.store import JobPage, Row, Store
from dueline.jobs.history_batch import size_of
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.spark.readers import WAITING, reader_of, rows_of


def attempts_of(rows: Iterator[Mapping[str, Any]]) -> Counter[tuple[str, int]]:
    """Count the rows of attempts."""
    return Counter((row["job_id"], row["attempt"]) for row in rows)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows be enough to be cut."""
    from dueline.spark.reading import partitions

    monkeypatch.setattr(partitions, "PROBE", 20)


def test_rows_in_many_slices_and_batches_are_the_rows_of_one(shop: Dueline, small: None) -> None:
    one = reader_of(shop, table="attempts", minPartitions="1")
    many = reader_of(shop, table="attempts", minPartitions="40", fetchSize="7")
    assert len(one.partitions()) == 1
    assert len(many.partitions()) > 10  # fewer than jobs: those that end together share rows
    whole = attempts_of(rows_of(one))
    assert max(whole.values()) == 1
    assert len(whole) > 1500
    assert attempts_of(rows_of(many)) == whole


def test_a_long_lane_is_cut_and_no_job_is_lost_or_doubled(shop: Dueline, small: None) -> None:
    many = reader_of(shop, table="jobs", minPartitions="60", fetchSize="9")
    found = Counter(row["job_id"] for row in rows_of(many))
    expected = Counter(
        job.id.hex()
        for queue in ("mail", "bills")
        for name in (queue, dead_queue(queue))
        for job in shop.queues.engine.jobs_of(name)
    )
    assert len(many.partitions()) > 10
    assert found == expected
    assert len(expected) > WAITING


def test_each_batch_has_the_schema_that_was_announced(shop: Dueline, small: None) -> None:
    from dueline.spark.reading import schemas

    shop.store.append(
        [Row("clicks", 0, number + 1, b"%08d" % number, b"{}") for number in range(50)]
    )
    for table in schemas.COLUMNS:
        reader = reader_of(shop, table=table, stream="clicks", fetchSize="11")
        schema = schemas.wanted(table, schemas.struct_of(schemas.COLUMNS[table]))
        batches = [one for part in reader.partitions() for one in reader.read(part)]
        assert len(batches) > 3 or table in ("shards", "workers")  # of one batch
        assert batches
        assert {str(batch.schema) for batch in batches} == {str(schema)}


def test_a_column_that_is_null_for_a_whole_batch_keeps_its_type(shop: Dueline) -> None:
    reader = reader_of(shop, "claimed timestamp, options string", table="jobs", shards="1")
    kinds = {
        str(field.type)
        for part in reader.partitions()
        for one in reader.read(part)
        for field in one.schema
    }
    assert kinds == {"timestamp[us, tz=UTC]", "string"}


def test_only_the_columns_that_are_asked_for_are_made(shop: Dueline) -> None:
    rows = list(rows_of(reader_of(shop, "outcome string, attempt bigint", table="attempts")))
    assert rows[0].keys() == {"outcome", "attempt"}
    with pytest.raises(BadInput, match=r"no column 'outcme'.*Did you mean outcome"):
        reader_of(shop, "outcme string", table="attempts")


def test_queues_and_shards_can_be_chosen(shop: Dueline) -> None:
    rows = list(rows_of(reader_of(shop, table="attempts", queue="mail", shards="1-2")))
    assert {(row["queue"], row["shard"]) for row in rows} == {("mail", 1), ("mail", 2)}
    with pytest.raises(NotFound, match="There is no queue post"):
        reader_of(shop, table="attempts", queue="post").partitions()


def test_conditions_on_keys_spare_reading(shop: Dueline, small: None) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    reader = reader_of(shop, table="attempts", pushdown="true")
    conditions = [EqualTo(("queue",), "mail"), In(("shard",), (0, 3)), GreaterThan(("attempt",), 1)]
    assert list(reader.pushFilters(conditions)) == conditions
    rows = list(rows_of(reader))
    assert {(row["queue"], row["shard"]) for row in rows} == {("mail", 0), ("mail", 3)}
    jobs = reader_of(shop, table="jobs", pushdown="true")
    jobs.pushFilters([EqualTo(("tenant",), "zeta")])
    assert {row["tenant"] for row in rows_of(jobs)} == {"zeta"}


def test_a_reader_that_prunes_stands_apart_for_sessions_that_refuse_one(shop: Dueline) -> None:
    assert "pushFilters" not in vars(type(reader_of(shop)))


def test_rows_at_one_instant_are_cut_nowhere(shop: Dueline, small: None) -> None:
    shop.store.append([Row("ticks", 0, 5, b"%08d" % number, b"{}") for number in range(100)])
    rows = list(rows_of(reader_of(shop, table="stream", stream="ticks", fetchSize="7")))
    assert len(rows) == len({row["id"] for row in rows}) == 100


def test_a_row_that_lies_twice_is_told_once(shop: Dueline) -> None:
    shop.store.append([Row("twice", 0, at_us, b"same", b"{}") for at_us in (5, 6, 9)])
    for page in ("1", "100"):
        reader = reader_of(shop, table="stream", stream="twice", fetchSize=page)
        assert len(list(rows_of(reader))) == 1


def test_a_span_of_time_can_be_asked_for(shop: Dueline) -> None:
    second = 1_000_000
    shop.store.append(
        [Row("span", 0, second * number, b"%08d" % number, b"") for number in range(9)]
    )
    bounds = {
        "startingTimestamp": "1970-01-01T00:00:03Z",
        "endingTimestamp": "1970-01-01T00:00:05Z",
    }
    rows = list(rows_of(reader_of(shop, table="stream", stream="span", **bounds)))
    assert [int(row["id"]) for row in rows] == [3, 4]
    offset = '{"s": {"span/00000": [6000000, "3030303030303036"]}, "v": 1}'
    rows = list(rows_of(reader_of(shop, table="stream", stream="span", startingOffsets=offset)))
    assert [int(row["id"]) for row in rows] == [7, 8]


def test_a_task_that_reads_again_reads_nothing_later_than_the_plan(shop: Dueline) -> None:
    shop.store.append([Row("again", 0, 5, b"a", b"{}")])
    reader = reader_of(shop, table="stream", stream="again")
    part = reader.partitions()[0]
    first = [batch.to_pylist() for batch in reader.read(part)]
    shop.store.append([Row("again", 0, shop.store.clock_us() + 1, b"c", b"{}")])
    assert [batch.to_pylist() for batch in reader.read(part)] == first


def test_reading_once_writes_nothing_to_the_store(shop: Dueline, tmp_path: Path) -> None:
    import sqlite3

    from dueline.spark.reading import schemas

    shop.store.append([Row("still", 0, 5, b"a", b"{}")])
    marks = [shop.store.close_until(name, 0, at_us=-1) for name in ("still", "mail!history")]
    with sqlite3.connect(shop.url.removeprefix("sqlite:///").partition("?")[0]) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        for table in schemas.COLUMNS:
            rows = list(rows_of(reader_of(shop, table=table, stream="still")))
            assert rows or table == "workers"
        assert other.execute("PRAGMA data_version").fetchone() == before
    assert marks == [
        shop.store.close_until(name, 0, at_us=-1) for name in ("still", "mail!history")
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tabel": "jobs"}, "no option 'tabel'.*Did you mean table"),
        ({"table": "job"}, "table='job' is unknown.*Did you mean jobs"),
        ({"table": "stream"}, "No stream is named"),
        ({"shards": "4-"}, "is malformed"),
        ({"fetchSize": "0"}, "must be an integer of at least 1"),
        ({"pushdown": "yes"}, "must be true or false"),
        ({"startingOffsets": "latest"}, "must be earliest or an offset"),
        ({"startingTimestamp": "noon"}, "is not a timestamp"),
        ({"store": ""}, "The option store is missing.*CREATE TEMPORARY VIEW"),
        ({"owner": "me", "provider": "dueline"}, "CREATE TABLE .* does not work.*TEMPORARY VIEW"),
        ({"store": "memory://"}, "exists in one process"),
    ],
)
def test_a_wrong_option_is_refused_in_words(
    shop: Dueline, options: Mapping[str, str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        reader_of(shop, **options).partitions()


def test_reading_makes_no_store(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    with pytest.raises(ConfigError, match="There is no store at"):
        reader_of(Dueline(f"sqlite:///{file}")).partitions()
    assert not file.exists()


def test_a_task_without_a_part_reads_nothing(shop: Dueline) -> None:
    assert list(reader_of(shop).read(None)) == []


def test_a_lane_may_be_cut_at_any_job(shop: Dueline) -> None:
    from dueline.spark.reading import job_columns, schemas
    from dueline.spark.reading.partitions import LaneSlice

    job = next(job for job in shop.queues.engine.jobs_of("mail") if job.at_us > job.enqueued_us)
    place = job.at_us, job.id
    cuts = LaneSlice(job.lane, None, place), LaneSlice(job.lane, place, None)
    schema = schemas.wanted("jobs", schemas.struct_of({"job_id": "string"}))
    before, after = (
        [
            row["job_id"]
            for batch in job_columns.batches_of(shop.store, cut, schema, now_us=0, page=2)
            for row in batch.to_pylist()
        ]
        for cut in cuts
    )
    assert before[-1] == job.id.hex()
    whole = [one.id.hex() for one in shop.queues.engine.jobs_of("mail") if one.lane == job.lane]
    assert sorted([*before, *after]) == sorted(whole)


def sizes_of(store: Store, tasks: Iterable[Sequence[Any]]) -> list[int]:
    """Count the rows of each task."""
    from dueline.spark.reading.partitions import rows_of as pages_of

    return [
        sum(size_of(row) for one in task for page in pages_of(store, one, page=99) for row in page)
        for task in tasks
    ]


def log_of(store: Store, times_us: Iterable[int], shard: int = 0) -> None:
    """Append a row at each time."""
    store.append([Row("log", shard, us, b"%08d" % n, b"{}") for n, us in enumerate(times_us)])


HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    "times_us",
    [
        [HOUR_US] * 5000,
        [HOUR_US + number for number in range(5000)],
        [*(HOUR_US + number for number in range(4999)), 1000 * HOUR_US],
        [1, *(HOUR_US + number // 1000 for number in range(4999))],
        [*range(0, 1000 * HOUR_US, HOUR_US), *(1000 * HOUR_US + n for n in range(4000))],
    ],
    ids=["one timestamp", "a burst", "a late row", "an early row", "sparse, then a burst"],
)
def test_tasks_have_equal_numbers_of_rows(times_us: list[int], small: None) -> None:
    from dueline.spark.reading.partitions import START, RowSlice, behind, plan

    store = MemoryStore(HandClock())
    log_of(store, times_us)
    log_of(store, [5], shard=1)
    log_of(store, times_us[:100], shard=3)
    end = behind(2**60)
    wholes = [RowSlice("log", shard, START, end) for shard in range(4)]
    for parts in (1, 2, 5):
        sizes = sizes_of(store, plan(store, wholes, parts))
        assert sum(sizes) == 5101
        assert len(sizes) == parts
        assert max(sizes) - min(sizes) <= 5101 / 10, sizes


def test_a_plan_reads_few_rows(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from dueline.spark.reading.partitions import START, RowSlice, behind, plan

    store = MemoryStore(HandClock())
    log_of(store, range(20_000))
    read: list[int] = []
    tail = store.tail

    def counted(*args: Any, **terms: Any) -> Any:
        read.append(terms["limit"])
        return tail(*args, **terms)

    monkeypatch.setattr(store, "tail", counted)
    tasks = plan(store, [RowSlice("log", 0, START, behind(2**60))], 8)
    assert len(tasks) == 8
    assert sum(read) < 2000


def test_few_rows_are_one_task_and_very_many_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    from dueline.spark.reading import partitions
    from dueline.spark.reading.partitions import START, RowSlice, behind, plan

    store = MemoryStore(HandClock())
    log_of(store, range(3000))
    wholes = [RowSlice("log", shard, START, behind(2**60)) for shard in range(2)]
    assert sizes_of(store, plan(store, wholes, 8)) == [3000]
    assert plan(store, wholes[1:], 8) == []
    monkeypatch.setattr(partitions, "PROBE", 20)
    monkeypatch.setattr(partitions, "ROWS_A_TASK_MAX", 500)
    assert len(plan(store, wholes, 2)) == 6


def job_rows(jobs: Sequence[Job], now_us: int) -> list[Mapping[str, Any]]:
    """Return the rows of a table of jobs of one lane."""
    from dueline.spark.reading import job_columns, schemas

    schema = schemas.wanted("jobs", schemas.struct_of(schemas.COLUMNS["jobs"]))
    page = columns_in(JobPage(jobs, None), frozenset(Job._fields))
    rows: list[Mapping[str, Any]] = job_columns.batch_of(
        jobs[0].lane, page, schema, now_us=now_us
    ).to_pylist()
    return rows


def test_jobs_are_read_as_they_are_alone(shop: Dueline) -> None:
    from dueline.core.job_status import status_of

    lanes: dict[Lane, list[Job]] = {}
    for queue in ("mail", "bills"):
        for name in (queue, dead_queue(queue)):
            for job in shop.queues.engine.jobs_of(name):
                lanes.setdefault(job.lane, []).append(job)
    for jobs in lanes.values():
        jobs += [
            job._replace(opts=opts, claimed_us=5, state=state, errors=errors)
            for job in jobs[:3]
            for opts in (b'{"expires_us":1}', b"", b"damaged")
            for state in (State.WAITING, State.CLAIMED, State.STARTED)
            for errors in (0, 1)
        ]
        for now_us in (0, 2**62, sorted(job.at_us for job in jobs)[len(jobs) // 2]):
            together = job_rows(jobs, now_us)
            assert together == [job_rows([job], now_us)[0] for job in jobs]
            assert [row["state"] for row in together] == [status_of(job, now_us) for job in jobs]


@pytest.mark.parametrize("name", ["jobs.db", "a b.db", "a#b.db", "50%.db", "what?.db"])
@pytest.mark.parametrize("head", ["sqlite:", "sqlite://", "sqlite:///"])
def test_a_store_is_found_in_each_spelling_of_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, name: str
) -> None:
    from dueline.spark import source

    monkeypatch.chdir(tmp_path)
    url = head + quote(name)
    app = Dueline(url)

    @app.task(name="greet", queue="mail")
    def greet() -> None:
        """Do nothing."""

    greet.enqueue()
    app.close()
    table = source.DuelineSource({"store": url, "table": "jobs"})
    reader = table.reader(table.schema())
    monkeypatch.chdir("/")  # as in another process
    assert [row["task"] for row in rows_of(reader)] == ["greet"]
