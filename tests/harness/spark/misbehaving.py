"""Histories that misbehave, as rows of bronze, for tests of the tables."""

from collections.abc import Iterator
from random import Random

from tests.harness.spark.tables import BORN, SECOND, Line, attempt

ERRORS = (
    "ValueError: order 17 is unknown\nTraceback: line 3", "OSError: it's \"gone\" \\ %s {x}",
    "TimeoutError: 0123456789abcdef after 30 s", "Überlauf: 数 7\r\n\tzweite", "x" * 200,
)  # fmt: skip
DAY = 86_400 * SECOND


def history(seed: int, jobs: int = 60) -> list[Line]:
    """Make rows in the order of their copying, which is not that of time.

    Retries, deaths, crashes, rows told twice, in another shard and with another outcome, ids that
    are enqueued again after their jobs ended, two queues, timestamps that many rows share, rows
    that arrive late, rows without a start, events without an attempt.
    """
    random = Random(seed)
    rows: list[tuple[float, Line]] = []
    for number in range(jobs):
        place = float(number)
        for run in range(random.choice((1, 1, 1, 2))):
            born = BORN + number * random.choice((0, SECOND, 40 * SECOND)) + run * DAY
            for row in _run(random, f"job {number}", born):
                rows.append((place + random.choice((0, 0.5, 2, 30)), row))
                if random.random() < 0.15:
                    rows.append((place + random.choice((0, 9)), _again(random, row)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _again(random: Random, row: Line) -> Line:
    """Tell a row again."""
    other = {"shard": (row["shard"] + 1) % 4, "at": row["at"] + random.choice((-SECOND, 0, SECOND)),
             "ended": row["ended"] + random.choice((0, 61 * SECOND)), "id": row["id"] + "'",
             "outcome": random.choice((row["outcome"], "crashed", "done"))}  # fmt: skip
    return {**row, **(other if row["worker"] and random.random() < 0.7 else {})}


def _run(random: Random, job: str, born: int) -> Iterator[Line]:
    """Make the rows of one run of a job."""
    same = {
        "queue": random.choice(("mail", "bills")), "shard": random.randrange(3),
        "task": random.choice(("send", "charge")), "tenant": random.choice(("", "acme", "zeta")),
        "enqueued": born, "due": born + random.choice((0, -5 * SECOND, 90 * SECOND)),
        "priority": random.randrange(3),
    }  # fmt: skip
    if random.random() < 0.7:
        yield event(job, "enqueued", born, **same)
    if random.random() < 0.1:
        yield event(job, "changed", born + SECOND, **{**same, "due": born - DAY})
    at = born + random.choice((0, 0, 3 * SECOND, 100 * SECOND, DAY))
    for fence in range(1, random.choice((2, 2, 3, 5))):
        outcome = random.choice(("retried", "crashed", "crashed", "snoozed", "given_back", "dead"))
        error = random.choice(ERRORS) if outcome in ("retried", "dead", "crashed") else ""
        yield attempt(
            job, fence, outcome, claimed=at, ended=at + 2 * SECOND, at=at + 2 * SECOND,
            error=error, id=f"{job}-{born}-{fence}", **same,
        )  # fmt: skip
        at += random.choice((2 * SECOND, 70 * SECOND))
    end = random.random()
    if end < 0.8:
        yield attempt(
            job, 9, "done" if end < 0.7 else "expired", claimed=at, ended=at + SECOND,
            at=at + SECOND, id=f"{job}-{born}-9", **same,
        )  # fmt: skip
    elif end < 0.9:
        yield event(job, "cancelled", at, **same)


def event(job: str, outcome: str, at: int, **changes: object) -> Line:
    """Make a row without a worker."""
    made = attempt(job, 0, outcome, id=f"{job}-{outcome}-{at}", at=at, ended=at, **changes)
    return {**made, "worker": "", "claimed": None, "started": None}
