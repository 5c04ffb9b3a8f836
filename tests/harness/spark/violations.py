"""Violations that a test plants in a copy of a real history, by the rule that names them."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

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
        jobs = []
        for job, rows in sorted(told.items()):
            ends = tuple(row["outcome"] for row in rows if row["worker"])
            events = {row["outcome"] for row in rows if not row["worker"]} - {"enqueued"}
            if (
                ends == outcomes
                and events == ({event} - {""})
                and rows[-1]["task"] in ([task] if task else ATTEMPTS)
            ):
                jobs.append(job)
        return jobs

    def of(self, job: str) -> list[Row]:
        """List the rows of the attempts of a job."""
        rows = [row for row in self.rows if row["job_id"] == job and row["worker"]]
        return sorted(rows, key=lambda row: row["attempt"])

    def all_of(self, job: str) -> list[Row]:
        """List all rows of a job."""
        return [row for row in self.rows if row["job_id"] == job]

    def drop(self, *rows: Row) -> None:
        """Take rows away."""
        self.rows[:] = [row for row in self.rows if not any(row is dropped for dropped in rows)]

    def add(self, row: Row, **changes: Any) -> Row:
        """Add a row like another."""
        new = row | {"id": f"{len(self.rows):032x}"} | changes
        self.rows.append(new)
        return new

    def event_of(self, row: Row, outcome: str, **changes: Any) -> Row:
        """Add an event of the job of an attempt, under its claim."""
        times = dict.fromkeys(("claimed", "started", "again"))
        return self.add(row, worker="", outcome=outcome, digest=None, **times | changes)

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
    beside = [other for other in past.rows if all(other[name] == row[name] for name in lane)]
    claims = [other["claimed"] for other in beside if other["worker"]]
    for event in past.all_of(row["job_id"]):
        event["priority"] = 8
        event["enqueued"] = event["due"] = min(claims) - 2 * SECOND
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
def refused_under_a_claim_after_its_end(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    past.event_of(row, "refused", attempt=row["attempt"] + 1)


@plant("went on")
def started_again_after_a_death_in_a_section(past: Past) -> None:
    past.event_of(past.of(past.jobs("crashed", "done")[0])[0], "section", error="began")


@plant("went on")
def cancelled_in_a_section(past: Past) -> None:
    row = past.of(past.jobs("done")[0])[0]
    past.event_of(row, "section", error="began")
    row["outcome"] = "cancelled"


@plant("repeated")
def a_section_after_one_that_ended(past: Past) -> None:
    first, second = past.of(past.jobs("retried", "done")[0])
    for row in (first, second):
        past.event_of(row, "section", error="began")
        past.event_of(row, "section", error="ended")


@plant(None)
def sections_and_refused_outcomes_as_they_may_be(past: Past) -> None:
    first, second = past.of(past.jobs("retried", "done")[0])
    past.event_of(first, "refused")
    for row, how in ((first, "failed"), (second, "ended")):
        past.event_of(row, "section", error="began")
        past.event_of(row, "section", error=how)
    first, second = past.of(past.jobs("crashed", "done")[0])
    past.event_of(first, "section", error="began")
    second |= {"outcome": "dead", "error": "Uncertain: died", "started": None, "digest": None}
    past.event_of(second, "changed")
    past.attempt_after(second, outcome="done", error="")


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


@plant("started before enqueued")
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
    (result,) = [kept for kept in past.results if kept["job_id"] == job]
    result["value"] = str(int(result["value"]) + 1)
