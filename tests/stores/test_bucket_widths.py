"""Width of buckets and interval of polls: settings of a queue (H1, O3)."""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.admin.bucket_widths import BUCKETS_MAX, unfit_widths
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.durations import span_text
from dueline.core.errors import BadInput
from dueline.core.lane import Lane
from dueline.core.pagination import jobs_in
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address

SHARDS = 2
RATE = 5
MINUTES = 4
BODY = 1_000


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on an empty store."""
    with address(request.param, tmp_path) as url:
        made = Dueline(url)
        made.task(name="echo")(len)
        yield made
        made.close()


def partitions_of(app: Dueline) -> tuple[Counter[Lane], Counter[Lane]]:
    """Return the rows and the bytes of each partition; on Cassandra, of its own table."""
    rows, sizes = Counter[Lane](), Counter[Lane]()
    engine = app.queues.engine
    if (session := getattr(engine.store, "_session", None)) is not None:
        for *lane, body in session.ask(
            "SELECT queue, shard, bucket, priority, tenant, body FROM {keyspace}.jobs"
        ):
            rows[Lane(*lane)] += 1
            sizes[Lane(*lane)] += len(body)
        return rows, sizes
    for lane in engine.lanes_of("mail"):
        for job in jobs_in(engine.store, lane):
            rows[lane] += 1
            sizes[lane] += len(job.body)
    return rows, sizes


@pytest.mark.parametrize("width_s", [1, 10, 60])
def test_the_width_bounds_the_rows_and_bytes_of_a_partition(app: Dueline, width_s: int) -> None:
    app.queue("mail", bucket=width_s, shards=SHARDS)
    start = datetime.now(UTC) + timedelta(hours=1)
    count = RATE * 60 * MINUTES
    calls = [
        app.task_named("echo")
        .using(queue="mail", due=start + timedelta(seconds=number / RATE))
        .call("x" * BODY)
        for number in range(count)
    ]
    app.enqueue_many(calls)
    rows, sizes = partitions_of(app)
    mean = RATE * width_s / SHARDS
    most = min(RATE * width_s, mean + 6 * math.sqrt(mean))
    assert rows.total() == count
    assert max(rows.values()) <= most
    assert max(sizes.values()) <= most * (BODY + 100)
    assert len(rows) >= (60 * MINUTES // width_s - 1) * SHARDS * 0.8


def test_the_width_is_fixed_when_a_queue_is_created(app: Dueline) -> None:
    app.queue("mail", bucket=3600, keep=60)
    catalog = app.queues.engine.catalog
    assert catalog.settings("mail").width_us == 3600 * SECOND_US
    app.queue("mail", bucket=timedelta(hours=1))
    with pytest.raises(BadInput, match=r"of the queue mail are 1h wide.*\(got 10m\)") as refused:
        app.queue("mail", bucket=600, keep=90)
    assert "new queue" in refused.value.hint
    catalog.forget("mail")
    assert catalog.settings("mail").keep_us == 60 * SECOND_US


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ({"bucket": 0.5}, r"`bucket` must be a duration from 1 s to seven days"),
        ({"bucket": timedelta(days=8)}, r"`bucket` must be a duration from 1 s to seven days"),
        ({"poll": 0.001}, r"`poll` must be 0, or a duration from 10 ms to 24 s"),
        ({"poll": 25}, r"`poll` must be 0, or a duration from 10 ms to 24 s"),
    ],
)
def test_a_value_out_of_range_creates_no_queue(
    app: Dueline, words: dict[str, float], limits: str
) -> None:
    assert app.queues is not None
    with pytest.raises(BadInput, match=limits):
        app.queue("mail", **words)  # type: ignore[arg-type]
    assert "mail" not in app.queues.engine.catalog.names()


def test_the_doctor_names_buckets_that_are_too_full(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.queue("mail", shards=1, bucket=DAY_US // SECOND_US)
    calls = [
        app.task_named("echo").using(queue="mail", after=3600 * 30).call("x") for _ in range(300)
    ]
    app.enqueue_many(calls)
    engine = app.queues.engine
    facts = {**engine.store.describe(), "partitions": "each bucket"}
    assert not list(unfit_widths(engine, facts))
    monkeypatch.setattr("dueline.admin.bucket_widths.ROWS_MAX", 200)
    (check,) = unfit_widths(engine, facts)
    assert (check.name, check.verdict) == ("queue mail", "warning")
    assert "a bucket of 1d in shard 0 holds more than 200 jobs" in check.finding
    monkeypatch.setattr("dueline.admin.bucket_widths.ROWS_MAX", 10**6)
    monkeypatch.setattr("dueline.admin.bucket_widths.BYTES_MAX", 250 * 400)
    (check,) = unfit_widths(engine, facts)
    assert "in one partition" in check.finding


def test_the_doctor_names_many_buckets_that_are_nearly_empty(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.admin.bucket_widths.BUCKETS_MAX", 40)
    assert BUCKETS_MAX == 1000
    app.queue("wide", shards=1, bucket=3600)
    app.queue("mail", shards=1, bucket=1)
    queues = app.queues
    begin = datetime.now(UTC) + timedelta(seconds=30)  # what is due in the past has no own bucket
    for queue in ("wide", "mail"):
        app.enqueue_many(
            app.task_named("echo").using(queue=queue, due=begin + timedelta(seconds=n)).call("x")
            for n in range(60)
        )
    engine = queues.engine
    monkeypatch.setattr(type(engine.time), "latest_us", lambda self: self.earliest_us() + 10**8)
    (check,) = unfit_widths(engine, engine.store.describe())
    assert (check.name, check.verdict) == ("queue mail", "warning")
    assert f"each poll reads 60 buckets of {span_text(SECOND_US)}, with 1.0 jobs" in check.finding
