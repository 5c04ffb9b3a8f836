"""The state of queues at a past time, from their history (`sql/past.sql`).

A job that ran when the history was read appears in its state before that claim. A job whose lease
had expired, and that no worker had taken over, appears as running if its outcome was recorded late.
Such a claim does not appear if the job was then cancelled or retried by hand.
"""

from collections import Counter
from typing import Final

from dueline.spark.pipeline.queries import Derived, Queries, Result, View, lines_of, text_of

STATES: Final = ("waiting", "running", "dead", "done", "cancelled", "expired", "lost")


def state_at(queries: Queries, rows: View, instant_us: int) -> Result:
    """Return the state of each job at a time.

    Args:
        queries: The engine.
        rows: The table `attempts`, of queues whose history is `all`.
        instant_us: The time.

    Returns:
        queue, job_id, state (one of STATES), priority, tenant, attempt (claims so far), of the
        job's last run if its id was enqueued again. Scheduled, ready and retrying jobs are all
        waiting: a history does not hold until when a job waits.
    """
    return queries.run(text_of("past"), {"rows": rows}, {"instant_us": instant_us})


def count_at(queries: Queries, rows: View, instant_us: int) -> Counter[tuple[str, str]]:
    """Count the jobs at a time, by queue and state; see `state_at`."""
    views = {"rows": rows, "past": Derived(text_of("past"))}
    sql = "SELECT queue, state, count(*) AS jobs FROM past GROUP BY queue, state"
    lines = lines_of(queries.run(sql, views, {"instant_us": instant_us}))
    return Counter({(line["queue"], line["state"]): line["jobs"] for line in lines})
