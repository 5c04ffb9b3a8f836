"""Alerts on the stream: the counts of a streaming query, and the table of alerts (P12)."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import BadInput, Dueline, NotFound, Retry
from dueline.foresight.rates import counted
from dueline.jobs.history import attempts
from tests.harness.shell import Shell
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


@pytest.mark.long
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


@pytest.mark.long
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
        failing(app)
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
        failing(app)
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


def failing(app: Dueline) -> None:
    """Let the next attempts of a task fail, all of them."""
    for number in range(1, 80, 2):
        app.send("work", [number])
    app.run_worker(burst=True)


def rows_of(lake: Path) -> list[tuple[str, str]]:
    """Read the status and kind of each row of the table of alerts."""
    import deltalake

    rows = deltalake.DeltaTable(str(lake / "alerts")).to_pyarrow_table().sort_by("at")
    return list(zip(rows["status"].to_pylist(), rows["kind"].to_pylist(), strict=True))


def test_an_alert_that_could_not_be_written_is_written_later(
    shop_of_alerts: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.core.errors import LakeUnavailable
    from dueline.spark.pipeline.alerts import Watch, counting_here
    from dueline.spark.pipeline.delta import Table, place_of

    def full(*_: Any, **__: Any) -> None:
        raise LakeUnavailable("the disk is full")

    app = shop_of_alerts
    app.queues.engine.catalog.settings("mail")
    watch = Watch(app.queues, ["mail"], table=place_of(str(tmp_path / "lake")))
    with counting_here(watch) as count:
        failing(app)
        count()
        with monkeypatch.context() as patch:
            patch.setattr(Table, "commit", full)
            with pytest.raises(LakeUnavailable):
                watch.judge()
        assert rows_of(tmp_path / "lake") == []
        watch.judge()
        assert rows_of(tmp_path / "lake") == [("raised", "failures")]
        watch.judge()
    assert rows_of(tmp_path / "lake") == [("raised", "failures")]


def test_an_alert_of_a_process_that_was_stopped_ends_in_the_next_one(
    shop_of_alerts: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.foresight.alert_engine import view_of
    from dueline.spark.pipeline import alerts
    from dueline.spark.pipeline.alerts import Watch, counting_here
    from dueline.spark.pipeline.delta import place_of

    app, lake = shop_of_alerts, place_of(str(tmp_path / "lake"))
    app.queues.engine.catalog.settings("mail")
    app.queue("bills")
    watch = Watch(app.queues, ["mail"], table=lake)
    with counting_here(watch) as count:
        failing(app)
        count()
        (raised,) = watch.judge()
    assert Watch(app.queues, ["bills"], table=lake).alerts == {}
    again = Watch(app.queues, table=lake)
    (found,) = again.alerts["mail"]
    assert (found.id, found.condition) == (raised.id, raised.condition)
    assert again.judge() == []  # it ends a minute after its condition
    later = 61_000_000
    monkeypatch.setattr(
        alerts, "view_of", lambda engine: (view := view_of(engine))._replace(
            now_us=view.now_us + later)
    )  # fmt: skip
    (ended,) = again.judge()
    assert (ended.id, again.alerts["mail"]) == (raised.id, [])
    assert rows_of(tmp_path / "lake") == [("raised", "failures"), ("ended", "failures")]
    assert Watch(app.queues, table=lake).alerts == {}


def test_a_query_that_fails_is_an_error(
    spark: Any,
    shop_of_alerts: Dueline,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from pyspark.errors import StreamingQueryException

    from dueline.spark.pipeline import alerts

    def broken(_: Any) -> None:
        raise ValueError("no counts")

    app = shop_of_alerts
    app.send("work", [0])
    app.run_worker(burst=True)
    monkeypatch.setattr(alerts, "counted_on_spark", broken)

    def watched() -> None:
        with alerts.alerts(spark, app.url, every_s=0.2):
            failing(app)
            until = time.monotonic() + 60
            while "have ended" not in caplog.text and time.monotonic() < until:
                time.sleep(0.2)

    with pytest.raises(StreamingQueryException):
        watched()
    assert "alerts have ended, since their query has failed" in caplog.text


def test_the_command_shows_each_alert_once_and_outlives_an_outage(
    shop_of_alerts: Dueline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dueline.cli.commands import pipeline_watch
    from dueline.core.errors import StoreUnavailable
    from dueline.spark.pipeline.alerts import Watch

    app = shop_of_alerts
    app.queues.engine.catalog.settings("mail")
    logger = logging.getLogger("dueline")
    for name in ("handlers", "propagate"):
        monkeypatch.setattr(logger, name, getattr(logger, name))
    passes: list[float] = []
    judge = Watch.judge

    def unsure(watch: Watch) -> Any:
        if len(passes) == 1:
            raise StoreUnavailable("the server is away")
        return judge(watch)

    def sleep(seconds: float) -> None:
        passes.append(seconds)
        if len(passes) == 1:
            failing(app)
        elif len(passes) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "judge", unsure)
    monkeypatch.setattr(pipeline_watch, "time", SimpleNamespace(sleep=sleep))
    shell = Shell(tmp_path, capsys)
    answer = shell("--store", app.url, "pipeline", "watch", "--out", str(tmp_path / "lake"))
    assert (answer.code, len(passes)) == (130, 4)
    assert answer.err.count("of the attempts of work failed") == 1
    assert "Alerts have to wait: the server is away" in answer.err
    assert rows_of(tmp_path / "lake") == [("raised", "failures")]
