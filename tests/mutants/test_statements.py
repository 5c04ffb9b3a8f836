"""Statements of stores with a mistake in them: a law notices each.

Each runs in a process of its own, where the statement is changed before it reaches the driver.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.cassandra_node import expect_node
from tests.mutants.planted import command, environment
from tests.mutants.table import tell

ROOT = Path(__file__).parent.parent.parent
SQLITE = "tests/stores/sqlite/test_laws.py::TestSqlite"
CASSANDRA = "tests/stores/cassandra/test_laws.py::TestCassandra"
LAWS = {
    law
    for path in [
        *ROOT.glob("src/dueline/store_tests/*.py"),
        ROOT / "tests/harness/store_comparison.py",
        *ROOT.glob("tests/stores/*/test_laws.py"),
    ]
    for law in re.findall(r"def test_(\w+)\(", path.read_text(encoding="utf-8"))
}

LISTED = "(listing) FROM lanes WHERE queue = ? AND shard = ? AND listing <= ?"


class Mistake(NamedTuple):
    """A mistake: its rule, what it does, a text of statements and its replacement, the law."""

    rule: str
    name: str
    old: str
    new: str
    law: str


IN_SQLITE = [
    Mistake("P1", "the fence stays", "at_us = ?, fence = fence + 1", "at_us = ?, fence = fence",
            "a_fence_grows_by_one_with_each_claim_and_never_falls"),
    Mistake("P1", "a claim comes early", "AND at_us <= ?7 ORDER BY at_us, id LIMIT",
            "AND at_us <= ?7 + 3600000000 ORDER BY at_us, id LIMIT",
            "no_job_is_claimed_before_its_time"),
    Mistake("P1", "jobs come in another order", "AND at_us <= ? ORDER BY at_us, id LIMIT ?",
            "AND at_us <= ? ORDER BY id DESC LIMIT ?",
            "a_lane_gives_its_jobs_by_time_and_then_by_id"),
    Mistake("A1", "a crash is not counted", "crashes = crashes + (state = 2)", "crashes = crashes",
            "each_crash_counts_once"),
    Mistake("A2", "a suspect is not alone", "alone = max(alone, state = 2)", "alone = alone",
            "each_crash_counts_once"),
    Mistake("P2", "a move needs no token", "WHERE id = ? AND token = ?",
            "WHERE id = ? AND (token = ? OR 1)", "a_verdict_after_a_verdict_changes_nothing"),
    Mistake("P2", "an end needs no token", "WHERE token = ? AND id = ?",
            "WHERE (token = ? OR 1) AND id = ?",
            "a_verdict_on_a_claim_that_was_taken_over_changes_nothing"),
    Mistake("P2", "a move of a new row reaches a dead one", "AND +lane = coalesce(?, lane)",
            "AND (1 OR ?)", "a_verdict_on_a_new_row_never_changes_a_dead_one"),
    Mistake("P2", "an end of a new row reaches a dead one", "AND +lane = ? AND id = ?",
            "AND (1 OR ?) AND id = ?", "a_verdict_on_a_new_row_never_changes_a_dead_one"),
    Mistake("P2", "an extension ends a claim sooner", "SET at_us = max(at_us, ?), state = max",
            "SET at_us = ?, state = max", "an_extension_never_ends_a_claim_sooner"),
    Mistake("A1", "an extension forgets the start", "state = max(state, ?)", "state = ?",
            "a_job_once_started_stays_so_until_its_verdict"),
    Mistake("B1", "a repeated insert replaces a claim", "INSERT OR IGNORE INTO jobs",
            "INSERT OR REPLACE INTO jobs", "adding_again_leaves_a_claim_as_it_is"),
    Mistake("E2", "a lane is listed under a closed bucket", "SET listing = max(?, min(",
            "SET listing = max(0 * ?, min(", "an_insert_into_a_lane_that_was_forgotten_is_seen"),
    Mistake("B1", "a carried job keeps its hop", "pos_us = at_us, hop = hop + 1",
            "pos_us = at_us, hop = hop", "a_carried_job_keeps_what_it_is"),
    Mistake("L1", "a record has no version", "SELECT version FROM records WHERE",
            "SELECT x'' FROM records WHERE", "a_put_that_expects_a_version_holds_on_that_one"),
    Mistake("L1", "an expired record stands", "AND (expires_us IS NULL OR expires_us > ?)",
            "AND (expires_us IS NULL OR expires_us > 0 * ?)",
            "a_record_that_is_still_stored_is_absent_once_it_expires"),
    Mistake("F2", "a reader skips rows of one time", "(at_us, id) > (?, ?)",
            "at_us > ? AND id <> ?",
            "a_reader_goes_on_where_it_stopped"),
    Mistake("F4", "rows above the mark expire", "at_us <= ?3", "at_us <= ?3 + 1",
            "what_has_expired_is_gone_and_the_rest_stays"),
    Mistake("S3", "a lane waits for its last row", "SELECT min(at_us) FROM jobs WHERE lane",
            "SELECT max(at_us) FROM jobs WHERE lane",
            "a_lane_of_future_jobs_is_listed_when_they_are_due"),
    Mistake("S4", "the mark passes a lane", f"SELECT min{LISTED}", f"SELECT max{LISTED}",
            "nothing_is_listed_at_or_below_swept"),
]  # fmt: skip

IN_CASSANDRA = [
    Mistake("U3", "a repeated insert writes over a claim", "USING TIMESTAMP 1", "",
            "adding_again_leaves_a_claim_as_it_is"),
    Mistake("P2", "an end needs another token", "IF claim_token = ?", "IF claim_token != ?",
            "a_late_outcome_is_accepted_without_another_claim"),
    Mistake("L1", "a write needs another version", "IF version = ?", "IF version != ?",
            "a_put_that_expects_a_version_holds_on_that_one"),
]  # fmt: skip


def expect_noticed(store: str, mistake: Mistake, record: Callable[[str, object], None]) -> None:
    """Run the law on the store with the mistake in it; the law has to fail."""
    began_s = time.monotonic()
    law = f"{store}::test_{mistake.law}"
    run = subprocess.run(
        [sys.executable, *command([law])],
        cwd=ROOT,
        env=environment(mistake.old, mistake.new),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout[-2000:] + run.stderr[-2000:]
    tell(record, f"{mistake.rule:<3} {mistake.name}", law, time.monotonic() - began_s)


@pytest.mark.parametrize("mistake", [*IN_SQLITE, *IN_CASSANDRA], ids=lambda one: one.name)
def test_a_mistake_names_a_law(mistake: Mistake) -> None:
    assert mistake.law in LAWS


@pytest.mark.mutants
@pytest.mark.sqlite
@pytest.mark.parametrize("mistake", IN_SQLITE, ids=lambda mistake: mistake.name)
def test_a_law_notices_a_mistake_in_sqlite(
    mistake: Mistake, record_property: Callable[[str, object], None]
) -> None:
    expect_noticed(SQLITE, mistake, record_property)


@pytest.mark.mutants
@pytest.mark.cassandra
@pytest.mark.parametrize("mistake", IN_CASSANDRA, ids=lambda mistake: mistake.name)
def test_a_law_notices_a_mistake_in_cassandra(
    mistake: Mistake, record_property: Callable[[str, object], None]
) -> None:
    expect_node()
    expect_noticed(CASSANDRA, mistake, record_property)
