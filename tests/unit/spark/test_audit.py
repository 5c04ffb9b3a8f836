"""Violations planted in a copy of a real history: the audit names each of them."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dueline import Dueline, Retry
from dueline.core.job import JobId
from dueline.core.lane import dead_queue
from dueline.jobs import results
from tests.harness.world import EVERY_KIND
from tests.unit.spark.busy import busy_store
from tests.unit.spark.test_past import QUEUE, Life
from tests.unit.spark.test_pipeline import app_with_a_past, live_on, made, quiet, rows_in

MS, SECOND, YEAR = 1_000, 1_000_000, 366 * 86_400 * 1_000_000
CAPACITIES = {"print": 2}
ATTEMPTS = {"count": 3, "again": 3, "stuck": 3}
PASSED = 5

Row = dict[str, Any]


class Past(NamedTuple):
    """A history, and what else an audit is given. Plants change it."""

    rows: list[Row]
    living: set[str]
    results: list[Row]
    now_us: int

    def copy(self) -> "Past":
        """Copy it, to plant something."""
        return Past(
            list(map(dict, self.rows)), set(self.living), list(map(dict, self.results)), self.now_us
        )

    def jobs(self, *outcomes: str, event: str = "", task: str = "") -> list[str]:
        """List jobs whose attempts ended so, and of which nothing else is told but one event."""
        told: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda row: row["attempt"]):
            told[row["job_id"]].append(row)
        found = []
        for job, rows in sorted(told.items()):
            ends = tuple(row["outcome"] for row in rows if row["worker"])
            events = {row["outcome"] for row in rows if not row["worker"]} - {"enqueued"}
            if (
                ends == outcomes
                and events == ({event} - {""})
                and rows[-1]["task"] in ([task] if task else ATTEMPTS)
            ):
                found.append(job)
        return found

    def of(self, job: str) -> list[Row]:
        """List the rows of the attempts of a job."""
        rows = [row for row in self.rows if row["job_id"] == job and row["worker"]]
        return sorted(rows, key=lambda row: row["attempt"])

    def all_of(self, job: str) -> list[Row]:
        """List all rows of a job."""
        return [row for row in self.rows if row["job_id"] == job]

    def drop(self, *rows: Row) -> None:
        """Take rows away."""
        self.rows[:] = [row for row in self.rows if not any(row is one for one in rows)]

    def add(self, row: Row, **changes: Any) -> Row:
        """Add a row like another."""
        new = row | {"id": f"{len(self.rows):032x}"} | changes
        self.rows.append(new)
        return new

    def attempt_after(self, row: Row, **changes: Any) -> Row:
        """Add an attempt that follows another as it should."""
        begin = row["ended"] + MS
        times = {"claimed": begin, "started": begin + 1, "ended": begin + 2, "at": begin + 2}
        return self.add(row, **{"attempt": row["attempt"] + 1, **times, **changes})


PLANTS: dict[str, tuple[str | None, Callable[[Past], None]]] = {}


def plant(rule: str | None) -> Callable[[Callable[[Past], None]], Callable[[Past], None]]:
    """Note a violation, with the rule that names it."""

    def note(function: Callable[[Past], None]) -> Callable[[Past], None]:
        PLANTS[function.__name__] = rule, function
        return function

    return note


@plant(None)
def nothing(past: Past) -> None:
    """The control."""


@plant("no trace")
def lost_with_an_enqueue_event_only(past: Past) -> None:
    past.drop(*past.of(past.jobs("done")[0]))


@plant("gone")
def lost_after_a_retry(past: Past) -> None:
    past.drop(past.of(past.jobs("retried", "done")[0])[1])


@plant("dead and gone")
def dead_and_its_row_gone(past: Past) -> None:
    past.living.remove(past.jobs("retried", "retried", "dead")[0])


@plant("two ends")
def done_twice_under_a_second_fence(past: Past) -> None:
    past.attempt_after(past.of(past.jobs("done")[0])[0])


@plant("one fence")
def one_fence_by_two_workers(past: Past) -> None:
    past.add(past.of(past.jobs("done")[0])[0], worker="another")


@plant("late verdict")
def stale_outcome(past: Past) -> None:
    first, second = past.of(past.jobs("retried", "done")[0])
    first["ended"] = second["claimed"] + SECOND


@plant("early")
def early_start(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    row["due"] = row["started"] + SECOND


@plant("before the lease ended")
def claimed_before_a_lease_ended(past: Past) -> None:
    first, second = past.of(past.jobs("crashed", "done")[0])
    first["ended"] = second["claimed"] + 1


@plant("time went back")
def clock_back_between_claims(past: Past) -> None:
    first, second = past.of(past.jobs("crashed", "done")[0])
    second["claimed"] = first["ended"] = first["claimed"] - 20 * MS


@plant("crowded")
def over_capacity(past: Past) -> None:
    rows = [past.of(job)[0] for job in past.jobs("done", task="print")[:3]]
    for row in rows:
        row["started"], row["ended"] = rows[-1]["started"], rows[-1]["started"] + SECOND
        row["claimed"] = row["started"]


@plant("passed by")
def wrong_order(past: Past) -> None:
    (row,) = past.of(past.jobs("done", task="count")[0])
    lane = "queue", "shard", "tenant"
    beside = [one for one in past.rows if all(one[name] == row[name] for name in lane)]
    claims = [one["claimed"] for one in beside if one["worker"]]
    for one in past.all_of(row["job_id"]):
        one["priority"] = 8
        one["enqueued"] = one["due"] = min(claims) - 2 * SECOND
    late_us = max(claims) - row["claimed"] + 1
    for name in ("claimed", "started", "ended", "at"):
        row[name] += late_us


@plant("another end")
def done_twice_under_one_fence_with_another_end(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    past.add(row, ended=row["ended"] + 1, at=row["at"] + 1)


@plant("another end")
def done_and_dead_under_one_fence(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    past.add(row, outcome="dead", error="ValueError: no", at=row["at"] + 1)


@plant("two ends")
def ran_after_it_was_cancelled_while_it_waited(past: Past) -> None:
    (event,) = [
        row for row in past.all_of(past.jobs(event="cancelled")[0]) if row["outcome"] != "enqueued"
    ]
    past.attempt_after(event, outcome="done", worker="w", due=event["enqueued"])


@plant("after its end")
def failed_after_it_was_cancelled_while_it_waited(past: Past) -> None:
    (event,) = [
        row for row in past.all_of(past.jobs(event="cancelled")[0]) if row["outcome"] != "enqueued"
    ]
    past.attempt_after(event, outcome="retried", worker="w", due=event["enqueued"])


@plant("not enqueued")
def an_attempt_without_its_enqueue_event(past: Past) -> None:
    job = past.jobs("done")[0]
    past.drop(*(row for row in past.all_of(job) if not row["worker"]))


@plant("enqueued twice")
def enqueued_twice(past: Past) -> None:
    (event,) = [row for row in past.all_of(past.jobs("done")[0]) if not row["worker"]]
    past.add(event, at=event["at"] + 1)


@plant("no start")
def done_without_a_start(past: Past) -> None:
    past.of(past.jobs("done")[0])[0]["started"] = None


@plant("ended first")
def ended_before_it_started(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    row["ended"] = row["started"] - 5 * MS


@plant("started first")
def started_before_it_was_claimed(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    row["claimed"] = row["started"] + 5 * MS


@plant("started unborn")
def started_before_it_was_enqueued(past: Past) -> None:
    job = past.jobs("done")[0]
    (attempt,) = past.of(job)
    for row in past.all_of(job):
        row["enqueued"] = attempt["started"] + 5 * MS


@plant("missing")
def attempt_1_missing_and_2_present(past: Past) -> None:
    past.drop(past.of(past.jobs("retried", "done")[0])[0])


@plant("another task")
def another_task_in_the_second_attempt(past: Past) -> None:
    past.of(past.jobs("retried", "done")[0])[1]["task"] = "stuck"


@plant("another queue")
def another_queue_in_the_second_attempt(past: Past) -> None:
    past.of(past.jobs("retried", "done")[0])[1]["queue"] = "bills"


@plant("another tenant")
def another_tenant_in_the_second_attempt(past: Past) -> None:
    past.of(past.jobs("retried", "done")[0])[1]["tenant"] = "acme"


@plant("in the future")
def ended_a_year_ahead(past: Past) -> None:
    past.of(past.jobs("done")[0])[0]["ended"] += YEAR


@plant("over attempts")
def seven_attempts_of_three_allowed(past: Past) -> None:
    first, second = past.of(past.jobs("retried", "done")[0])
    past.drop(second)
    for _ in range(5):
        first = past.attempt_after(first)
    past.attempt_after(first, outcome="done", error="")


@plant("after its death")
def dead_that_came_back(past: Past) -> None:
    last = past.of(past.jobs("retried", "retried", "dead")[0])[-1]
    past.attempt_after(last, outcome="done", error="")


@plant("another result")
def a_changed_result(past: Past) -> None:
    job = past.jobs("done", task="count")[0]
    (result,) = [one for one in past.results if one["job_id"] == job]
    result["value"] = str(int(result["value"]) + 1)


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dueline, Path]:
    """Make a store with a past of all kinds, and a folder for tables."""
    folder = tmp_path_factory.mktemp("busy")
    return busy_store(folder), folder


@pytest.fixture(scope="session")
def past(busy: tuple[Dueline, Path]) -> Past:
    """Read its history, and what else an audit is given."""
    app, folder = busy
    made(folder / "lake", app).run(["bronze"], quiet)
    rows = [dict(row) for row in rows_in(folder / "lake", "bronze")]
    living = {
        job.id.hex()
        for name in ("mail", "mail!dead", "bills", "bills!dead")
        for job in app.queues.engine.jobs_of(name)
    }
    ids = {JobId(bytes.fromhex(row["job_id"])) for row in rows}
    kept = [
        {"job_id": job.hex(), "finished": outcome.ended_us, "value": outcome.value or None}
        for job, outcome in results.read_many(app.store, ids).items()
    ]
    return Past(rows, living, kept, app.store.clock_us())


def rules_of(said: Any) -> set[str]:
    """Name the rules of findings."""
    from dueline.spark.pipeline.audit_rules import RULES

    names = {(rule.verdict, rule.words): name for name, rule in RULES.items()}
    return {names[one["verdict"], one["words"]] for one in said}


def test_the_past_is_of_all_kinds(past: Past) -> None:
    outcomes = {row["outcome"] for row in past.rows}
    assert outcomes >= {
        "enqueued", "changed", "done", "retried", "dead", "crashed", "snoozed", "cancelled",
        "expired",
    }  # fmt: skip
    assert {row["task"] for row in past.rows if row["worker"]} >= {"", "print", "many", "stuck"}


@pytest.mark.parametrize("name", PLANTS)
def test_each_planted_violation_is_named_and_nothing_else(past: Past, name: str) -> None:
    from dueline.spark.pipeline.audit_rules import Known, Promises
    from dueline.spark.pipeline.tables_arrow import audit

    rule, violate = PLANTS[name]
    planted = past.copy()
    violate(planted)
    said = audit(
        planted.rows,
        living=planted.living,
        results=planted.results,
        promises=Promises(CAPACITIES, PASSED, ATTEMPTS),
        known=Known(("mail", "bills"), is_exact=True, now_us=past.now_us),
    )
    assert rules_of(said.findings) == ({rule} if rule else set())
    assert set(said.not_known) == {
        "ran, and nobody enqueued it", "crossed", "unexplained",
    }  # fmt: skip


def test_spark_names_the_same(spark: Any, past: Past) -> None:
    import pyarrow as pa

    from dueline.spark.pipeline import tables_arrow, tables_spark
    from dueline.spark.pipeline.audit_rules import Known, Promises
    from dueline.spark.reading import schemas
    from tests.unit.spark.test_lake import bare, plain

    rows: list[Row] = []
    living: set[str] = set()
    kept: list[Row] = []
    capacities, attempts = dict[str, int](), dict[str, int]()
    for number, (_, violate) in enumerate(PLANTS.values()):
        mark = f"-{number:02}"
        planted = past.copy()
        violate(planted)
        for row in planted.rows:
            marked = {"job_id": row["job_id"] + mark, "queue": row["queue"] + mark}
            rows.append(row | marked | {"task": row["task"] and row["task"] + mark})
        living |= {one + mark for one in planted.living}
        kept += [one | {"job_id": one["job_id"] + mark} for one in planted.results]
        capacities |= {task + mark: most for task, most in CAPACITIES.items()}
        attempts |= {task + mark: most for task, most in ATTEMPTS.items()}
    kinds = {name: schemas.TYPES[kind] for name, kind in schemas.COLUMNS["attempts"].items()}
    table = pa.Table.from_pylist([{name: row[name] for name in kinds} for row in rows],
                                 schema=pa.schema(kinds))  # fmt: skip
    kinds = {"job_id": pa.string(), "finished": schemas.INSTANT, "value": pa.string()}
    outcomes = pa.Table.from_pylist(kept, schema=pa.schema(kinds))
    whole = sorted({row["queue"] for row in rows if not row["queue"].startswith("default")})
    how: Mapping[str, Any] = {
        "promises": Promises(capacities, PASSED, attempts),
        "known": Known(whole, is_exact=True, now_us=past.now_us),
    }
    said = tables_spark.audit(
        spark.createDataFrame(table),
        living=spark.createDataFrame(pa.table({"job_id": sorted(living)})),
        results=spark.createDataFrame(outcomes),
        **how,
    )
    oracle = tables_arrow.audit(rows, living=living, results=kept, **how)
    assert plain(said.findings) == bare(oracle.findings)
    assert said[1:] == oracle[1:]
    found: dict[str, list[Row]] = defaultdict(list)
    for one in oracle.findings:
        found[one["job_id"][-2:]].append(one)
    for number, (rule, _) in enumerate(PLANTS.values()):
        assert rules_of(found[f"{number:02}"]) == ({rule} if rule else set())


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("seed", range(3))
def test_no_life_of_a_queue_gives_a_finding(kind: str, seed: int, tmp_path: Path) -> None:
    from dueline.spark.pipeline.audit_rules import Known, Promises
    from dueline.spark.pipeline.tables_arrow import audit

    life = Life(kind, tmp_path, seed)
    life.lead()
    store = life.queues.engine.store
    living = {
        job.id.hex()
        for name in (QUEUE, dead_queue(QUEUE))
        for job in life.queues.engine.jobs_of(name)
    }
    for is_exact in (True, store.transactional):
        known = Known((QUEUE,), is_exact=is_exact, now_us=store.clock_us())
        said = audit(
            life.history(), living=living, promises=Promises(attempts={"t": 8}), known=known
        )
        assert said.findings == []
        assert ("an attempt before this one left no row" in said.not_known) is not is_exact


def test_the_command_names_a_changed_result_and_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run
    from dueline.spark.pipeline.audit_rules import NEEDS, RULES

    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", history="all")

    @app.task(name="double", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def double(number: int) -> int:
        if not number:
            raise ValueError("nothing to double")
        return 2 * number

    jobs = double.enqueue_many([(number,) for number in range(4)])
    app.run_worker(burst=True)
    words = ["--store", app.url, "pipeline", "audit", "--engine", "arrow", "--queue", "mail"]
    words += ["--out", str(tmp_path / "lake")]

    def audited(*more: str) -> tuple[int, Any]:
        code = run(["-o", "json", *words, *more])
        return code, json.loads(capsys.readouterr().out)["data"]

    code, said = audited("--results", "--attempts", "double=2")
    assert (code, said["findings"]) == (0, [])
    assert RULES["another result"].words not in said["not_known"]
    job_id = JobId(bytes.fromhex(jobs[3].id))
    outcome = results.read(app.store, job_id)
    assert outcome is not None
    commit = results.keep(job_id, outcome.changed(value="7"), keep_us=10**9)
    app.store.commit(commit.partition, commit.writes)
    code, said = audited("--attempts", "double=1", "--results")
    found = {(one["words"], one["job_id"]) for one in said["findings"]}
    rules = RULES["another result"].words, RULES["over attempts"].words
    assert (code, found) == (6, {(rules[0], jobs[3].id), (rules[1], jobs[0].id)})
    code, said = audited()
    assert (code, said["findings"]) == (0, [])
    assert said["not_known"][rules[0]] == NEEDS["results"]
    assert run(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for rule in rules:
        assert rule in shown


def test_tables_of_a_version_without_digests_are_audited(spark: Any, tmp_path: Path) -> None:
    from pyarrow import parquet

    from dueline.spark.pipeline.audit_rules import NO_PROMISES, Known
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.spark_engine import SparkEngine
    from dueline.spark.pipeline.table_store import Folder

    app = app_with_a_past(tmp_path)
    pipe, folder = made(tmp_path / "lake", app), Folder(tmp_path / "lake")
    pipe.run(["bronze"], quiet)
    for file in folder.files("bronze"):
        parquet.write_table(parquet.ParquetFile(file).read().drop_columns(["digest"]), file)
    live_on(app, 60)
    said = pipe.audit(quiet, with_results=True)
    assert said.findings == []
    assert "altered" in said.looked_for
    living = [(job.id.hex(), job.enqueued_us) for name in ("mail", "mail!dead")
              for job in app.queues.engine.jobs_of(name)]  # fmt: skip
    known = Known(("mail",), is_exact=True, now_us=app.store.clock_us())
    engine = SparkEngine(spark, folder, Settings(app.url))
    assert engine.audit(living, None, NO_PROMISES, known).findings == []
    victim = next(one for one in living if one[0] != living[0][0])
    (found,) = engine.audit([one for one in living if one != victim], None, NO_PROMISES, known)[0]
    assert (found["verdict"], found["job_id"], found["enqueued"]) == ("lost", *victim)


def test_the_page_lists_every_rule_in_the_words_of_its_findings() -> None:
    from dueline.spark.pipeline.audit_rules import NEEDS, NEVER, RULES

    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    for rule in RULES.values():
        needs = "; ".join(NEEDS[need] for need in rule.needs)
        assert f"| `{rule.verdict}` | {rule.words} | {needs} |" in page
    for verdict, needs in NEVER.items():
        assert f"| `{verdict}` | | {needs} |" in page
