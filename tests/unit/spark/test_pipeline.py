"""The pipeline's tables: whole, in steps, the same by both engines (P5, P6, P10, P11)."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")


from dueline import Dueline
from dueline.spark.pipeline.delta import place_of
from tests.harness.spark import oracle
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import (
    BORN,
    SECOND,
    all_lines,
    attempt,
    bare,
    instant_us,
    live_on,
    made,
    quiet,
    replays_agree,
    rows_in,
    spoil,
    table_in,
)

TABLES = (
    "silver", "gold_minute", "gold_lateness", "gold_run", "gold_start", "gold_failure",
    "gold_shard", "flow", "slo", "fairness", "suspicious", "poison",
)  # fmt: skip


def test_tables_hold_what_the_store_tells(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", app)
    steps = {one.name: one.rows for one in pipe.run([], quiet)}
    assert steps["silver"] == 339 + 6
    assert steps["bronze"] == steps["silver"] + 339 + 22
    assert all(check.is_good for check in pipe.verify())
    again = pipe.run([], quiet)
    assert [one.rows for one in again] == [0, 0, 0]


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
    for table in TABLES:
        assert rows_in(tmp_path / "steps", table) == rows_in(tmp_path / "whole", table), table
        assert rows_in(tmp_path / "steps", table) or table == "suspicious", table


@pytest.mark.long
def test_a_step_that_died_is_done_again(
    app: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # killed before each commit in turn, and once behind each
    from dueline.spark.pipeline.delta import Table

    real = Table.commit

    class Killed(BaseException):
        pass

    def dies(number: int, *, before: bool) -> Any:
        count = iter(range(10**6))

        def commit(self: Any, *args: Any, **options: Any) -> None:
            is_now = next(count) == number
            if is_now and before:
                raise Killed
            real(self, *args, **options)
            if is_now:
                raise Killed

        return commit

    pipe = made(tmp_path / "lake", app)
    for number in range(0, 16, 2):
        live_on(app, 3 + number)
        monkeypatch.setattr(Table, "commit", dies(number, before=number % 4 == 0))
        with suppress(Killed):
            pipe.run([], quiet)
        monkeypatch.undo()
    pipe.run([], quiet)
    assert all(check.is_good for check in pipe.verify())
    made(tmp_path / "whole", app).run([], quiet)
    for table in TABLES:
        assert rows_in(tmp_path / "lake", table) == rows_in(tmp_path / "whole", table), table


def test_two_runs_at_once_copy_nothing_twice(
    app: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.core.errors import Conflict
    from dueline.spark.pipeline import bronze

    first, second = made(tmp_path / "lake", app), made(tmp_path / "lake", app)
    first.run([], quiet)
    live_on(app, 10)
    real = bronze.write

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        second.run([], quiet)
        return real(*args)

    monkeypatch.setattr(bronze, "write", overtaken)
    with pytest.raises(Conflict, match="Another process"):
        first.run([], quiet)
    first.run([], quiet)
    assert all(check.is_good for check in first.verify())
    rows = rows_in(tmp_path / "lake", "bronze")
    assert max(rows.values()) == 1


def test_verify_sees_a_row_that_is_missing(app: Dueline, tmp_path: Path) -> None:
    from pyarrow import parquet

    pipe = made(tmp_path / "lake", app)
    pipe.run([], quiet)
    for table, place in (("bronze", 0), ("silver", 1), ("gold_minute", 2), ("gold_run", 5)):
        file = table_in(tmp_path / "lake", table).view().paths[0]
        kept = parquet.read_table(file, partitioning=None)
        parquet.write_table(kept.slice(1), file)
        assert not pipe.verify()[place].is_good, table
        parquet.write_table(kept, file)
    assert all(check.is_good for check in pipe.verify())


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
    before_us = instant_us(app)
    live_on(app, 2)
    pipe = made(tmp_path / "lake", app)
    pipe.run(["bronze"], quiet)
    then, now = (
        {one["queue"]: one for one in pipe.past(at_us)} for at_us in (before_us, instant_us(app))
    )
    assert (then["mail"]["waiting"], then["mail"]["dead"], then["mail"]["cancelled"]) == (20, 6, 1)
    assert (now["mail"]["waiting"], now["mail"]["dead"], now["mail"]["cancelled"]) == (40, 7, 2)
    assert now["mail"]["done"] - then["mail"]["done"] == 40
    assert (then["mail"]["verdict"], now["mail"]["verdict"]) == ("complete", "partial")
    assert (then["default"]["verdict"], then["default"]["done"]) == ("not audited", None)


def test_each_end_of_jobs_has_a_column(
    app: Dueline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run
    from dueline.spark.pipeline.past import STATES

    made(tmp_path / "lake", app).run(["bronze"], quiet)
    at = datetime.fromtimestamp(app.queues.engine.time.latest_us() / 1e6, UTC).isoformat()
    lake = str(tmp_path / "lake")
    assert run(["--store", app.url, "pipeline", "past", "--out", lake, "--at", at]) == 0
    heads = capsys.readouterr().out.splitlines()[0].split()
    assert heads == ["QUEUE", "HISTORY", "VERDICT", *(state.upper() for state in STATES)]


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
    tables = oracle.tables(SIGHTS)
    assert {(one["shard"], one["reason"]) for one in tables["suspicious"]} == {
        (3, "slow"), (4, "crashes"),
    }  # fmt: skip
    kinds = {one["fingerprint"]: one for one in tables["poison"]}
    assert {name: one["jobs"] for name, one in kinds.items()} == {"KeyError: #": 3, "Signal #": 1}
    assert kinds["Signal #"]["crashed"] == 2


def test_sights_are_those_of_the_oracle(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lines = [*SIGHTS, *all_lines()]
    lake.add(lines)
    lake.run()
    for name, wanted in oracle.tables(lines).items():
        assert rows_in(tmp_path, name) == bare(wanted), name
        assert wanted


def test_slo_and_fairness_are_what_they_are_called(tmp_path: Path) -> None:
    lines = [
        *(attempt(f"a{n}", 1, tenant="a", started=BORN + SECOND) for n in range(30)),
        *(attempt(f"b{n}", 1, tenant="b") for n in range(10)),
    ]
    lake = Lake(tmp_path, target_us=SECOND, objective=0.5)
    lake.add(lines)
    lake.run()
    [slo] = map(dict, rows_in(tmp_path, "slo"))
    assert (slo["started"], slo["in_time"], slo["share"]) == (40, 30, 0.75)
    assert slo["burn_5m"] == 0.5
    [fair] = map(dict, rows_in(tmp_path, "fairness"))
    assert (fair["tenants"], fair["over_us"], fair["tenant"]) == (2, 9_001_000, "b")
    later = BORN + 4000 * SECOND
    lake.add([attempt("c", 1, queue="other", claimed=later, ended=later + SECOND)])
    lake.run()
    old = {one["queue"]: one for one in map(dict, rows_in(tmp_path, "slo"))}["mail"]
    assert (old["started_1h"], old["burn_1h"], old["started_6h"]) == (0, None, 40)


def test_a_tenant_with_fewer_jobs_that_waits_longer_is_told(tmp_path: Path) -> None:
    """One with more jobs waits for its own."""
    late = [(f"large {n}", "large", n) for n in range(9)] + [("small", "small", 2), ("few", "a", 9)]
    lines = [
        attempt(job, 1, tenant=tenant, started=BORN + (11 + seconds) * SECOND)
        for job, tenant, seconds in late
    ]
    lake = Lake(tmp_path)
    lake.add(lines)
    lake.run()
    [fair] = map(dict, rows_in(tmp_path, "fairness"))
    assert (fair["tenants"], fair["tenant"], fair["over_us"]) == (3, "a", 7 * SECOND)


def test_another_objective_counts_anew(tmp_path: Path) -> None:
    lines = [attempt(f"a{n}", 1, started=BORN + n * SECOND) for n in range(30)]
    Lake(tmp_path).add(lines)
    Lake(tmp_path).run()
    Lake(tmp_path, target_us=9 * SECOND).run()
    assert rows_in(tmp_path, "gold_start") == bare(
        oracle.gold_start(oracle.silver(lines), 9 * SECOND)
    )
    [slo] = map(dict, rows_in(tmp_path, "slo"))
    assert slo["in_time"] == 11


def test_what_came_and_went_is_told_by_the_minute(tmp_path: Path) -> None:
    minute = 60 * SECOND
    told = [
        attempt("ran", 0, "enqueued", worker="", claimed=None, started=None),
        attempt("waits", 0, "enqueued", worker="", claimed=None, started=None),
        attempt("early", 0, "enqueued", worker="", claimed=None, started=None, due=BORN + 9000),
        attempt("early", 0, "cancelled", worker="", claimed=None, started=None,
                due=BORN + minute * 9, ended=BORN + minute),
        attempt("ran", 1, ended=BORN + 2 * minute),
    ]  # fmt: skip
    lake = Lake(tmp_path)
    lake.add(told)
    lake.run()
    found = map(dict, rows_in(tmp_path, "flow"))
    begun = BORN // minute * minute
    moves = sorted(((one["minute"] - begun) // minute, one["came"], one["went"]) for one in found)
    assert moves == [
        (0, 3, 0), (1, 0, 1), (2, 0, 1),
    ]  # fmt: skip


@pytest.mark.long
def test_both_engines_agree_to_the_row(spark: Any, app: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.dead_jobs import Wanted

    duck, sparks = made(tmp_path / "duckdb", app), made(tmp_path / "spark", app, "spark")
    since_us = next(app.queues.engine.jobs_of("mail")).enqueued_us - SECOND * 60  # before all
    for pipe in (duck, sparks):
        pipe.run(["bronze", "silver"], quiet, since_us=since_us)
    live_on(app, 110)
    duck.run([], quiet)
    said: list[str] = []
    sparks.run([], said.append)
    assert [one for one in said if "bronze" in one][-1].endswith("all are copied")
    for table in ("bronze", *TABLES):
        found = rows_in(tmp_path / "spark", table)
        assert found == rows_in(tmp_path / "duckdb", table), table
        assert found or table == "suspicious", table
    assert all(check.is_good for check in sparks.verify())
    _optimizes(sparks, tmp_path / "spark")
    assert sorted(duck.deaths(Wanted())) == sorted(sparks.deaths(Wanted()))
    places = sorted(dict(one)["at"] for one in rows_in(tmp_path / "duckdb", "bronze"))
    period = {"since_us": places[50] + 1, "until_us": places[-50]}
    duck.archive(place_of(str(tmp_path / "a")), quiet, **period)
    replays_agree(spark, duck, sparks, tmp_path)
    spoil(app, list(app.queues.engine.jobs_of("mail"))[:2])
    verdicts = [pipe.audit(quiet) for pipe in (duck, sparks)]
    by_job = [sorted(one.findings, key=lambda line: line["job_id"]) for one in verdicts]
    assert by_job[0] == by_job[1]
    assert len(by_job[0]) == 2
    assert verdicts[0]._replace(findings=()) == verdicts[1]._replace(findings=())


def _optimizes(pipe: Any, lake: Path) -> None:
    """See that files become fewer, and hold the same rows, and that a run goes on."""
    before = {table: rows_in(lake, table) for table in ("bronze", *TABLES)}
    found = {one["table"]: one for one in pipe.optimize(quiet)}
    assert found["bronze"]["files"] < found["bronze"]["files_before"]
    assert [one.rows for one in pipe.run([], quiet)] == [0, 0, 0]
    assert pipe.vacuum(0)
    assert {table: rows_in(lake, table) for table in ("bronze", *TABLES)} == before
