"""Violations planted in a copy of a real history: the audit names each of them (P11)."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry
from dueline.core.job import JobId
from dueline.core.lane import dead_queue
from dueline.jobs import results
from tests.harness.spark.audits import audit
from tests.harness.spark.past import QUEUE, Life
from tests.harness.spark.tables import made, quiet, rows_in
from tests.harness.spark.violations import ATTEMPTS, CAPACITIES, PASSED, PLANTS, Past, Row
from tests.harness.world import EVERY_KIND
from tests.unit.spark.busy import busy_store


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
    from dueline.jobs.audit_rules import RULES

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
    from dueline.jobs.audit_rules import Known, Promises

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
        "ran but is not among the expected jobs", "crossed", "unexplained",
    }  # fmt: skip


@pytest.mark.long
def test_spark_names_the_same(spark: Any, past: Past) -> None:
    from dueline.jobs.audit_rules import Known, Promises
    from dueline.spark.pipeline.queries import Spark

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
    whole = sorted({row["queue"] for row in rows if not row["queue"].startswith("default")})
    how: Mapping[str, Any] = {
        "promises": Promises(capacities, PASSED, attempts),
        "known": Known(whole, is_exact=True, now_us=past.now_us),
    }
    said = audit(rows, Spark(spark), living=living, results=kept, **how)
    found: dict[str, list[Row]] = defaultdict(list)
    for one in said.findings:
        found[one["job_id"][-2:]].append(one)
    for number, (rule, _) in enumerate(PLANTS.values()):
        assert rules_of(found[f"{number:02}"]) == ({rule} if rule else set())


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("seed", range(3))
def test_no_life_of_a_queue_gives_a_finding(kind: str, seed: int, tmp_path: Path) -> None:
    from dueline.jobs.audit_rules import Known, Promises

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
    from dueline.jobs.audit_rules import NEEDS, RULES

    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", history="all")

    @app.task(name="double", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def double(number: int) -> int:
        if not number:
            raise ValueError("nothing to double")
        return 2 * number

    jobs = double.enqueue_many([(number,) for number in range(4)])
    app.run_worker(burst=True)
    words = ["--store", app.url, "pipeline", "audit", "--engine", "duckdb", "--queue", "mail"]
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


def test_the_page_lists_every_rule_in_the_words_of_its_findings() -> None:
    from dueline.jobs.audit_rules import NEEDS, NEVER, RULES

    root = Path(__file__).parents[3]
    page = (root / "docs" / "pipeline" / "audit.md").read_text(encoding="utf-8")
    for rule in RULES.values():
        needs = "; ".join(NEEDS[need] for need in rule.needs)
        assert f"| `{rule.verdict}` | {rule.words} | {needs} |" in page
    for verdict, needs in NEVER.items():
        assert f"| `{verdict}` | | {needs} |" in page
