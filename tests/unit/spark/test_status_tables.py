"""Tables of what stands in the store now (P1)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import Presence
from dueline.core.job import JobId
from dueline.jobs import results
from tests.harness.spark.readers import reader_of, rows_of

SECOND = 1_000_000


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Open a store of two queues."""
    made = Dueline(f"sqlite:///{tmp_path / 'now.db'}?synchronous=NORMAL")
    made.queue("mail", shards=3)
    made.queue("bills")
    yield made
    made.close()


def test_each_job_whose_result_is_kept_has_one_row(app: Dueline) -> None:
    healed: list[int] = []

    @app.task(name="half", queue="mail", retry=Retry(attempts=1))
    def half(number: int) -> float:
        if number % 10 == 0 and number not in healed:
            raise ValueError(str(number))
        return number / 2

    jobs = half.enqueue_many([(number,) for number in range(60)])
    app.queue("bills", keep=0)
    half.using(queue="bills").enqueue(7)
    app.run_worker(burst=True)
    healed.append(20)
    jobs[20].retry()
    app.run_worker(burst=True)
    rows = list(rows_of(reader_of(app, table="results", fetchSize="7")))
    ended = [
        job.id for number, job in enumerate(jobs) if number % 10 or number == 20
    ]  # the dead have a row
    assert sorted(row["job_id"] for row in rows) == sorted(one.replace("-", "") for one in ended)
    assert {row["value"] for row in rows} == {
        json.dumps(one / 2) for one in range(60) if one % 10 or one == 20
    }
    assert {(row["queue"], row["state"], row["task"]) for row in rows} == {("mail", "done", "half")}
    kept = results.read(app.store, JobId(bytes.fromhex(rows[0]["job_id"])))
    assert kept is not None
    assert round(rows[0]["finished"].timestamp() * SECOND) == kept.ended_us


def test_workers_that_live_are_rows(app: Dueline) -> None:
    now_us = app.store.clock_us()
    said = Presence("host:7:ab", ("mail",), ("half", "whole"), 4, 2, now_us - 5, now_us, 9)
    worker_registry.announce(app.store, said, version=b"v" * 16, beat_every_us=60 * SECOND)
    (row,) = rows_of(reader_of(app, table="workers"))
    assert (row["worker"], row["host"], row["pid"]) == ("host:7:ab", "host", 7)
    assert (row["queues"], row["tasks"]) == (["mail"], ["half", "whole"])
    assert (row["slots"], row["held"], row["clock_skew_us"]) == (4, 2, 9)
    assert round(row["heartbeat"].timestamp() * SECOND) == now_us
    worker_registry.leave(app.store, "host:7:ab")
    assert list(rows_of(reader_of(app, table="workers"))) == []


def test_shards_of_queues_and_of_groups_are_rows(app: Dueline) -> None:
    from dueline.coordination.leases import Grant
    from dueline.core.codec import encode
    from dueline.core.store import Put
    from dueline.streams import groups

    app.task(name="noop", queue="mail")(lambda: None)
    clicks = app.stream("clicks", shards=2)
    clicks.append_many([({}, None)] * 50)
    groups.register(app.store, "clicks", "billing", from_us=0, version=b"v" * 16)
    until_us = app.store.clock_us() + 600 * SECOND
    grant = encode(Grant(4, "me", SECOND, until_us))
    app.store.commit(groups.leases_at("clicks", "billing"), [Put("1", b"w" * 16, grant)])
    rows = list(rows_of(reader_of(app, table="shards")))
    places = [(row["queue"] or row["stream"], row["shard"]) for row in rows]
    assert places == [
        ("bills", 0), ("mail", 0), ("mail", 1), ("mail", 2), ("clicks", 0), ("clicks", 1),
    ]  # fmt: skip
    assert [row["owner"] for row in rows[-2:]] == [None, "me"]
    assert [row["epoch"] for row in rows[-2:]] == [0, 4]
    assert sum(row["backlog"] for row in rows[-2:]) == 50
    clicks.reshard(3)
    rows = list(rows_of(reader_of(app, table="shards", shards="1-2")))
    assert [row["takes_new"] for row in rows if row["stream"]] == [False, True]
    assert [row["shard"] for row in rows if row["queue"] == "mail"] == [1, 2]
