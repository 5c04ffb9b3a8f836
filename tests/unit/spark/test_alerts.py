"""Alerts on the stream: the counts of a streaming query, and the table of alerts."""

import time
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline, NotFound, Retry
from dueline.foresight.rates import counted
from dueline.jobs.history import attempts
from tests.harness.spark.readers import row  # noqa: F401  (its package needs Spark's)


@pytest.fixture
def shop_of_alerts(tmp_path: Path) -> Dueline:
    app = Dueline(f"sqlite:///{tmp_path}/alerts.db")

    @app.task(name="work", queue="mail", retry=Retry(delays=[60]))
    def work(number: int) -> None:
        if number % 2:
            raise ValueError("odd")

    app.queue("mail", shards=2)
    return app


def test_spark_counts_what_this_process_counts(spark: Any, shop: Dueline) -> None:
    from dueline.spark import read
    from dueline.spark.pipeline.alerts import counted_on_spark

    shards = {"mail": 4, "bills": 2}
    expected = counted(
        (one for name, number in shards.items() for one in attempts(shop.store, name, number)),
        shards,
    )
    frame = read(spark, shop.url, "attempts", queue="mail,bills")
    assert counted_on_spark(frame) == expected


def test_failures_are_raised_within_a_minute(
    spark: Any, shop_of_alerts: Dueline, tmp_path: Path
) -> None:
    import deltalake

    from dueline.spark.pipeline.alerts import alerts
    from dueline.spark.pipeline.delta import place_of

    app = shop_of_alerts
    app.send("work", [0])
    app.run_worker(burst=True)
    lake = place_of(str(tmp_path / "lake"))
    with alerts(spark, app.url, table=lake, every_s=1) as watch:
        began = time.monotonic()
        for number in range(40):
            app.send("work", [number])
        app.run_worker(burst=True)
        while not watch.alerts.get("mail") and time.monotonic() - began < 60:
            time.sleep(0.2)
        (found,) = watch.alerts["mail"]
    assert (found.condition.kind, found.condition.subject) == ("failures", "work")
    rows = deltalake.DeltaTable(str(tmp_path / "lake" / "alerts")).to_pyarrow_table().to_pylist()
    assert [(one["status"], one["kind"], one["queue"]) for one in rows] == [
        ("raised", "failures", "mail")
    ]


def test_without_spark_this_process_counts(shop_of_alerts: Dueline) -> None:
    from dueline.spark.pipeline.alerts import Watch, counting_here

    app = shop_of_alerts
    app.send("work", [0])
    app.run_worker(burst=True)
    watch = Watch(app.queues, ["mail"])
    with counting_here(watch) as count:
        for number in range(40):
            app.send("work", [number])
        app.run_worker(burst=True)
        count()
        (found,) = watch.judge()
    assert (found.condition.kind, found.condition.subject) == ("failures", "work")
    assert not watch.judge()


def test_a_queue_without_history_is_refused(shop_of_alerts: Dueline) -> None:
    from dueline.spark.pipeline.alerts import Watch

    shop_of_alerts.queue("silent", history="off")
    with pytest.raises(BadInput, match="The queue silent keeps no history"):
        Watch(shop_of_alerts.queues, ["silent"])
    with pytest.raises(NotFound, match="nowhere"):
        Watch(shop_of_alerts.queues, ["nowhere"])
