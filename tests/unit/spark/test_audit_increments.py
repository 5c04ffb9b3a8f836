"""Audits of what is new: many of them find what one audit of all finds (P11)."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.harness.spark import audit_oracle
from tests.harness.spark.audits import living_of
from tests.harness.spark.lakes import Lake
from tests.harness.spark.misbehaving import history
from tests.harness.spark.tables import (
    BORN,
    all_lines,
    app_with_a_past,
    live_on,
    made,
    quiet,
    spoil,
)  # fmt: skip

ENDS = ("done", "cancelled", "expired", "lost")
KNOWN = (("mail", "bills"), True, BORN + 86_400 * 10**6)


def state_of(lake: Lake, name: str, known: Any = KNOWN) -> Any:
    """Open what audits leave to each other, in a table of some name."""
    from dueline.jobs.audit_rules import Known, Promises
    from dueline.spark.pipeline.audit_state import AuditState
    from dueline.spark.pipeline.delta import Table
    from dueline.spark.pipeline.tables import AUDIT

    table = Table(lake.place.below(name), AUDIT)
    promises = Promises(attempts={"send": 2})
    return AuditState(table, lake.table("bronze"), Known(*known), promises)


def judged(lake: Lake, living: Any, name: str = "audit", **named: Any) -> tuple[Any, Any]:
    """Audit what is new; return the findings as words that can be compared, and what was read."""
    small = lake.small.queries
    state = state_of(lake, name, named.pop("known", KNOWN))
    sight = state.look(
        small, named.pop("large", lambda: small), living_of(living),
        is_full=named.pop("is_full", False), rows_max=named.pop("rows_max", 10**9),
    )  # fmt: skip
    state.keep(sight, [{**one, "is_judged": True} for one in sight.found])
    names = ("rule", "queue", "job_id", "enqueued", "attempt")
    return sorted(tuple(one[name] for name in names) for one in sight.found), sight


def open_runs(rows: Any, random: Random) -> list[tuple[str, int]]:
    """Choose some of the runs that have no end."""
    runs = {(row["job_id"], row["enqueued"]) for row in rows}
    ended = {(row["job_id"], row["enqueued"]) for row in rows if row["outcome"] in ENDS}
    return [run for run in sorted(runs - ended) if random.random() < 0.6]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_many_audits_find_what_one_of_all_finds(seed: int, tmp_path: Path) -> None:
    from dueline.jobs.audit_rules import RULES, Known, Promises

    lake, random = Lake(tmp_path / "lake"), Random(seed)
    rows = history(seed) + (all_lines() if seed % 2 else [])
    place, living = 0, open_runs(rows, random)
    while place < len(rows):
        size = random.choice((1, 7, 40))
        lake.add(rows[place : place + size])
        place += size
        if random.random() < 0.7 or place >= len(rows):
            living = open_runs(rows[:place], random)
            found, _ = judged(lake, living)
    whole, sight = judged(lake, living, "other")
    assert sight.is_full
    assert found == whole
    again, sight = judged(lake, living)
    assert (again, sight.is_full) == (whole, False)
    oracle = audit_oracle.audit(
        rows, living=living, promises=Promises(attempts={"send": 2}), known=Known(*KNOWN)
    )
    names = {(rule.verdict, rule.words): name for name, rule in RULES.items()}
    wanted = [
        (names[one["verdict"], one["words"]], one["queue"], one["job_id"], one["enqueued"],
         one["attempt"])
        for one in oracle.findings
    ]  # fmt: skip
    assert found == sorted(wanted)
    assert len(found) > 10


def test_an_audit_that_was_killed_before_it_kept_its_result_is_repeated(tmp_path: Path) -> None:
    lake, rows = Lake(tmp_path / "lake"), history(3)
    lake.add(rows[:50])
    judged(lake, ())
    lake.add(rows[50:])
    small = lake.small.queries
    state_of(lake, "audit").look(small, lambda: small, living_of(()), is_full=False, rows_max=10)
    found, sight = judged(lake, ())
    assert not sight.is_full
    assert found == judged(lake, (), "other")[0]


def test_only_files_of_touched_and_open_runs_are_read(tmp_path: Path) -> None:
    day = 86_400 * 10**6
    lake = Lake(tmp_path / "lake")
    old = [row for row in history(1) if row["enqueued"] < BORN + day // 2]
    ended = {(row["job_id"], row["enqueued"]) for row in old if row["outcome"] in ENDS}
    old = [row for row in old if (row["job_id"], row["enqueued"]) in ended]
    lake.add(old)
    known = (*KNOWN[:2], BORN + 30 * day)
    _, first = judged(lake, (), known=known)
    new = [{**row, "job_id": f"new {row['job_id']}", "enqueued": row["enqueued"] + 9 * day}
           for row in old[:20]]  # fmt: skip
    lake.add(new)
    _, sight = judged(lake, (), known=known)
    assert (first.rows, sight.rows) == (len(old), len(new))


def test_other_settings_and_fewer_batches_judge_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add(history(2))
    judged(lake, ())
    assert not judged(lake, ())[1].is_full
    assert judged(lake, (), is_full=True)[1].is_full
    other = (("mail",), True, KNOWN[2])
    assert judged(lake, (), known=other)[1].is_full
    assert not judged(lake, (), known=other)[1].is_full


def test_two_audits_at_once_do_not_both_leave_their_result(tmp_path: Path) -> None:
    from dueline.core.errors import Conflict

    lake = Lake(tmp_path / "lake")
    lake.add(history(2))
    judged(lake, ())
    lake.add(history(4))
    small = lake.small.queries
    late = state_of(lake, "audit")
    sight = late.look(small, lambda: small, living_of(()), is_full=False, rows_max=10**9)
    judged(lake, ())
    with pytest.raises(Conflict):
        late.keep(sight, ())


@pytest.mark.long
def test_spark_judges_the_same(spark: Any, tmp_path: Path) -> None:
    from dueline.spark.pipeline.queries import Spark

    lake, rows = Lake(tmp_path / "lake"), history(5)
    lake.add(rows[:90])
    found = [judged(lake, (), name, rows_max=most, large=lambda: Spark(spark))[0]
             for name, most in (("a", 0), ("b", 10**9))]  # fmt: skip
    lake.add(rows[90:])
    found += [judged(lake, (), name, rows_max=most, large=lambda: Spark(spark))[0]
              for name, most in (("a", 0), ("b", 10**9))]  # fmt: skip
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_a_large_audit_in_parts_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import audit_state

    lake, random = Lake(tmp_path / "lake"), Random(7)
    rows = history(7)
    lake.add(rows)
    living = open_runs(rows, random)
    whole, _ = judged(lake, living, "whole")
    monkeypatch.setattr(audit_state, "PORTION", 30)
    parts, sight = judged(lake, living, "parts")
    assert sight.is_full
    assert parts == whole
    assert len(whole) > 10


def test_a_job_that_vanishes_between_two_audits_is_lost(tmp_path: Path) -> None:
    app = app_with_a_past(tmp_path)
    pipe = made(tmp_path / "lake", app)
    assert pipe.audit(quiet).findings == []
    live_on(app, 30)
    victim = next(app.queues.engine.jobs_of("mail"))
    spoil(app, [victim])
    for is_full in (False, False, True, False):
        (found,) = pipe.audit(quiet, is_full=is_full).findings
        assert (found["verdict"], found["job_id"]) == ("lost", victim.id.hex())
