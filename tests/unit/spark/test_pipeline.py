"""The pipeline's tables: whole, in steps, the same by both engines."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.tables import (
    BORN,
    SECOND,
    all_lines,
    app_with_a_past,
    archive_rows,
    attempt,
    bare,
    live_on,
    made,
    plain,
    quiet,
    replays_agree,
    rows_in,
    spoil,
)


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    """Make a store with a past."""
    return app_with_a_past(tmp_path)


def test_tables_hold_what_the_store_tells(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", app)
    steps = {one.name: one.rows for one in pipe.run([], quiet)}
    assert steps["silver"] == 339 + 6
    assert steps["bronze"] == steps["silver"] + 339 + 22
    assert all(check.is_good for check in pipe.verify())
    again = pipe.run([], quiet)
    assert [one.rows for one in again[:2]] == [0, 0]


def test_what_comes_later_gives_the_tables_that_all_at_once_gives(
    app: Dueline, tmp_path: Path
) -> None:
    steps = made(tmp_path / "steps", app)
    steps.run([], quiet)
    live_on(app, 120)
    steps.run(["bronze"], quiet)
    assert not all(check.is_good for check in steps.verify())
    steps.run([], quiet)
    made(tmp_path / "whole", app).run([], quiet)
    for table in ("silver", "gold_minute", "gold_lateness", "gold_run", "flow", "poison"):
        assert rows_in(tmp_path / "steps", table) == rows_in(tmp_path / "whole", table), table
        assert rows_in(tmp_path / "steps", table), table


def test_a_late_row_changes_the_days_that_its_job_touches(
    tmp_path: Path, app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import arrow_engine
    from dueline.spark.pipeline.tables_arrow import silver

    day = 86_400 * SECOND
    first = [attempt("a", 2), attempt("b", 1), attempt("c", 1, ended=BORN + day)]
    late = [attempt("a", 1, "crashed")]
    engine = arrow_engine.ArrowEngine(*_bare(tmp_path, app))
    for lines in (first, late):
        engine._put(lines, {})
        engine.silver(quiet)
        engine.gold(quiet)
    found = rows_in(tmp_path / "lake", "silver")
    assert found == Counter(tuple(sorted(line.items())) for line in silver([*first, *late]))
    assert sum(dict(one)["is_takeover"] for one in found) == 1
    assert sum(dict(one)["takeovers"] for one in rows_in(tmp_path / "lake", "gold_minute")) == 1


def _bare(tmp_path: Path, app: Dueline) -> tuple[Any, Any]:
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.table_store import Folder

    return Folder(tmp_path / "lake"), Settings(app.url)


def test_a_step_that_died_is_done_again(app: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.table_store import Folder

    pipe = made(tmp_path / "lake", app)
    folder = Folder(tmp_path / "lake")
    pipe.run(["bronze"], quiet)
    before = folder.manifest("bronze")
    live_on(app, 60)
    pipe.run(["bronze"], quiet)
    folder.publish("bronze", before)  # as if it had died just before its manifest
    assert folder.files("bronze", before.parts) == folder.files("bronze")
    pipe.run([], quiet)
    assert all(check.is_good for check in pipe.verify())


def test_verify_sees_a_row_that_is_missing(app: Dueline, tmp_path: Path) -> None:
    from pyarrow import parquet

    from dueline.spark.pipeline.table_store import Folder

    pipe = made(tmp_path / "lake", app)
    pipe.run([], quiet)
    for table, place in (("bronze", 0), ("silver", 1), ("gold_minute", 2), ("gold_run", 4)):
        file = Folder(tmp_path / "lake").files(table)[0]
        kept = parquet.read_table(file)
        parquet.write_table(kept.slice(1), file)
        assert not pipe.verify()[place].is_good, table
        parquet.write_table(kept, file)
    assert all(check.is_good for check in pipe.verify())


def test_another_engine_does_not_go_on_in_the_same_folder(app: Dueline, tmp_path: Path) -> None:
    from dueline.core.errors import BadInput
    from dueline.spark.pipeline.table_store import Folder

    made(tmp_path / "lake", app).run(["bronze"], quiet)
    with pytest.raises(BadInput, match="engine arrow"):
        Folder(tmp_path / "lake").own("spark")


def test_an_audit_on_a_clean_past_is_clean_where_all_is_told(app: Dueline, tmp_path: Path) -> None:
    said = made(tmp_path / "lake", app).audit(quiet)
    assert [(one.queue, one.verdict) for one in said.queues if one.queue == "mail"] == [
        ("mail", "clean")
    ]
    assert "lost" in said.looked_for
    assert set(said.not_audited) == {
        "order", "crossed", "unexplained", "over capacity", "over attempts",
    }  # fmt: skip
    assert "ran but is not among the expected jobs" in said.not_known


def test_a_queue_that_tells_attempts_alone_is_not_audited(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    live_on(app, 10)
    said = made(tmp_path / "lake", app).audit(quiet)
    assert {(one.queue, one.verdict) for one in said.queues} >= {("mail", "not audited")}
    assert "lost" in said.not_audited
    assert not said.has_failed


def test_an_audit_finds_a_job_whose_row_was_taken_away(app: Dueline, tmp_path: Path) -> None:
    from dueline.core.store import Drop

    victims = list(app.queues.engine.jobs_of("mail"))[:3]
    app.queues.engine.store.settle([Drop(job) for job in victims])
    said = made(tmp_path / "lake", app).audit(quiet)
    assert [one["verdict"] for one in said.findings] == ["lost"] * 3
    assert {one["job_id"] for one in said.findings} == {job.id.hex() for job in victims}
    assert {(one.queue, one.verdict, one.findings) for one in said.queues} >= {
        ("mail", "failed", 3)
    }


def test_jobs_of_before_a_history_told_all_are_not_judged(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    live_on(app, 20)
    app.queues.engine.catalog.configure("mail", history="all")
    live_on(app, 30)
    said = made(tmp_path / "lake", app, queues=("mail",)).audit(quiet)
    assert said.findings == []
    (standing,) = said.queues
    assert standing.unjudged > 0


def test_what_nobody_acknowledged_is_unexpected(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", app, queues=("mail",))
    pipe.run(["bronze"], quiet)
    known = {dict(row)["job_id"] for row in rows_in(tmp_path / "lake", "bronze")}
    ran = {dict(row)["job_id"] for row in rows_in(tmp_path / "lake", "bronze")
           if dict(row)["worker"]}  # fmt: skip
    stranger = min(ran)
    said = pipe.audit(quiet, expected=known - {stranger})
    assert [(one["verdict"], one["job_id"]) for one in said.findings] == [("unexpected", stranger)]
    assert "unexpected" in said.looked_for


def test_status_tells_what_was_not_copied(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", app)
    pipe.run([], quiet)
    assert sum(one["behind"] for one in pipe.status()[1]) == 0
    live_on(app, 10)
    assert sum(one["behind"] for one in pipe.status()[1]) == 70 + 50 + 1


def test_the_past_of_a_queue_is_told_where_all_was_told(app: Dueline, tmp_path: Path) -> None:
    before_us = app.queues.engine.time.latest_us()
    live_on(app, 2)
    pipe = made(tmp_path / "lake", app)
    pipe.run(["bronze"], quiet)
    then, now = (
        {one["queue"]: one for one in pipe.past(at_us)}
        for at_us in (before_us, app.queues.engine.time.latest_us())
    )
    assert (then["mail"]["waiting"], then["mail"]["dead"], then["mail"]["cancelled"]) == (20, 6, 1)
    assert (now["mail"]["waiting"], now["mail"]["dead"], now["mail"]["cancelled"]) == (40, 7, 2)
    assert now["mail"]["done"] - then["mail"]["done"] == 40
    assert then["default"]["verdict"] == "not audited"


SIGHTS = [
    *(attempt(f"quick {n}", 1, shard=n % 3, started=BORN + SECOND) for n in range(120)),
    *(attempt(f"slow {n}", 1, shard=3) for n in range(30)),
    *(attempt(f"deadly {n}", 1, "crashed", shard=4, error="gone") for n in range(4)),
    *(attempt(f"well {n}", 1, shard=4, started=BORN + SECOND) for n in range(26)),
    *(attempt(f"dead {n}", 1, "dead", error=f"KeyError: {n}\nmore") for n in range(3)),
    attempt("again", 1, "crashed", error="Signal 11"),
    attempt("again", 2, "crashed", error="Signal 9"),
    attempt("once", 1, "crashed", error="Signal 9"),
]


def test_operators_see_what_does_worse_than_the_rest() -> None:
    from dueline.spark.pipeline import insights_arrow, tables_arrow

    silver = tables_arrow.silver(SIGHTS)
    shards = insights_arrow.suspicious(silver)
    assert {(one["shard"], one["reason"]) for one in shards} == {(3, "slow"), (4, "crashes")}
    kinds = {one["fingerprint"]: one for one in insights_arrow.poison(silver)}
    assert {name: one["jobs"] for name, one in kinds.items()} == {"KeyError: #": 3, "Signal #": 1}
    assert kinds["Signal #"]["crashed"] == 2


def test_slo_and_fairness_are_what_they_are_called() -> None:
    from dueline.spark.pipeline import insights_arrow, tables_arrow

    lines = [
        *(attempt(f"a{n}", 1, tenant="a", started=BORN + SECOND) for n in range(30)),
        *(attempt(f"b{n}", 1, tenant="b") for n in range(10)),
    ]
    silver = tables_arrow.silver(lines)
    [slo] = insights_arrow.slo(silver, target_us=SECOND, objective=0.5, now_us=BORN + 20 * SECOND)
    assert (slo["started"], slo["in_time"], slo["share"]) == (40, 30, 0.75)
    assert slo["burn_5m"] == 0.5
    old = insights_arrow.slo(silver, target_us=SECOND, objective=0.5, now_us=BORN + 4000 * SECOND)
    assert (old[0]["started_1h"], old[0]["burn_1h"], old[0]["started_6h"]) == (0, None, 40)
    [fair] = insights_arrow.fairness(tables_arrow.gold_minute(silver))
    assert (fair["tenants"], fair["jain"]) == (2, 40**2 / (2 * (30**2 + 10**2)))


def test_what_came_and_went_is_told_by_the_minute() -> None:
    from dueline.spark.pipeline import insights_arrow, tables_arrow

    minute = 60 * SECOND
    told = [
        attempt("ran", 0, "enqueued", worker="", claimed=None, started=None),
        attempt("waits", 0, "enqueued", worker="", claimed=None, started=None),
        attempt("early", 0, "enqueued", worker="", claimed=None, started=None, due=BORN + 9000),
        attempt("early", 0, "cancelled", worker="", claimed=None, started=None,
                due=BORN + minute * 9, ended=BORN + minute),
    ]  # fmt: skip
    ran = tables_arrow.silver([attempt("ran", 1, ended=BORN + 2 * minute)])
    found = insights_arrow.flow(ran, told)
    begun = BORN // minute * minute
    moves = sorted(((one["minute"] - begun) // minute, one["came"], one["went"]) for one in found)
    assert moves == [
        (0, 3, 0), (1, 0, 1), (2, 0, 1),
    ]  # fmt: skip


def test_both_engines_agree_to_the_row(spark: Any, app: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.table_store import GOLD, WHOLE

    arrow, sparks = made(tmp_path / "arrow", app), made(tmp_path / "spark", app, "spark")
    since_us = next(app.queues.engine.jobs_of("mail")).enqueued_us - SECOND * 60  # before all
    for pipe in (arrow, sparks):
        pipe.run(["bronze", "silver"], quiet, since_us=since_us)
    live_on(app, 110)
    for pipe in (arrow, sparks):
        pipe.run([], quiet)
    for table in ("bronze", "silver", *GOLD, *WHOLE):
        found = rows_in(tmp_path / "spark", table)
        assert found == rows_in(tmp_path / "arrow", table), table
        assert found or table == "suspicious", table
    assert all(check.is_good for check in sparks.verify())
    _archives_agree(spark, arrow, sparks, tmp_path)
    _compacts(tmp_path / "spark")
    spoil(app, list(app.queues.engine.jobs_of("mail"))[:2])
    verdicts = [pipe.audit(quiet) for pipe in (arrow, sparks)]
    by_job = [sorted(one.findings, key=lambda line: line["job_id"]) for one in verdicts]
    assert by_job[0] == by_job[1]
    assert len(by_job[0]) == 2
    assert verdicts[0]._replace(findings=()) == verdicts[1]._replace(findings=())


def _compacts(lake: Path) -> None:
    """See that files which Spark wrote become fewer, and hold the same rows; Spark reads on."""
    from dueline.spark.pipeline.compaction import compact
    from dueline.spark.pipeline.table_store import Folder

    before = rows_in(lake, "bronze")
    told = compact(Folder(lake), 10_000, quiet)
    assert told.files < told.files_before
    assert rows_in(lake, "bronze") == before


def _archives_agree(spark: Any, arrow: Any, sparks: Any, folder: Path) -> None:
    """See that archives of both hold the same part of what was copied, and both the same dead."""
    from dueline.spark.pipeline.archive import Archive, Period, asked_of
    from dueline.spark.pipeline.dead_jobs import Wanted

    places = sorted(dict(one)["at"] for one in rows_in(folder / "arrow", "bronze"))
    period = Period(["mail"], places[50] + 1, places[-50])  # without the first enqueue events
    for name, pipe in (("a", arrow), ("s", sparks)):
        archive = Archive(folder / name)
        pipe._engine().archive(archive.clear(), period)  # the same rows are copied already
        archive.publish(asked_of(*period), period)
        assert all(check.is_good for check in archive.verify(quiet))
    assert archive_rows(folder / "a") == archive_rows(folder / "s")
    assert archive_rows(folder / "s")
    assert sorted(arrow.deaths(Wanted())) == sorted(sparks.deaths(Wanted()))
    replays_agree(spark, arrow, sparks, folder)


def test_both_engines_see_the_same_sights(spark: Any) -> None:
    import pyarrow as pa

    from dueline.spark.pipeline import dead_jobs, insights_arrow, insights_spark, tables_arrow
    from dueline.spark.pipeline import tables_spark as lake
    from dueline.spark.pipeline.dead_jobs import Wanted
    from dueline.spark.pipeline.queries import Duck, Spark
    from dueline.spark.pipeline.schemas import BRONZE_SHAPE, SILVER_SHAPE
    from tests.harness.spark import deaths_oracle

    lines = [*SIGHTS, *all_lines()]
    told = [attempt("told", 0, "enqueued", worker=""), attempt("told", 0, "changed", worker="")]

    def frame(some: Any) -> Any:
        rows = [{name: line[name] for name in BRONZE_SHAPE.names} for line in some]
        return spark.createDataFrame(pa.Table.from_pylist(rows, BRONZE_SHAPE))

    silver, silver_lines = lake.silver(frame(lines)).cache(), tables_arrow.silver(lines)
    for deadly in (
        Wanted(),
        Wanted(["mail"], "send", "KeyError: #", BORN),
        Wanted(error="or: 1\nm"),
    ):
        died = sorted(deaths_oracle.deaths(silver_lines, deadly))
        for queries in (Duck(), Spark(spark)):
            view = pa.Table.from_pylist(silver_lines, SILVER_SHAPE)
            assert sorted(dead_jobs.deaths(queries, view, deadly)) == died
        assert died
    same: dict[str, Any] = {"target_us": SECOND, "objective": 0.9, "now_us": BORN + 300 * SECOND}
    pairs = [
        (insights_spark.suspicious(silver), insights_arrow.suspicious(silver_lines)),
        (insights_spark.poison(silver), insights_arrow.poison(silver_lines)),
        (insights_spark.slo(silver, **same), insights_arrow.slo(silver_lines, **same)),
        (insights_spark.flow(silver, frame(told)), insights_arrow.flow(silver_lines, told)),
    ]
    for found, wanted in pairs:
        assert wanted
        assert plain(found) == bare(wanted)
