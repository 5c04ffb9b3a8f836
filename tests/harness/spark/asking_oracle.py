"""The answers of `pipeline ask` in plain Python; shares no code with the pipeline."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.harness.spark import oracle
from tests.harness.spark.tables import SECOND, Line

FAILED = ("retried", "dead", "crashed")


def recounted(lines: Sequence[Line], since_us: int = 0) -> dict[str, list[Line]]:
    """Answer the questions from all attempts of the oracle, by their names, in no order."""
    attempts = [row for row in oracle.silver(lines) if row["ended"] >= since_us]
    started = [row for row in attempts if row["started"] is not None]
    tasks: dict[tuple[str, str], list[Line]] = defaultdict(list)
    tenants: dict[tuple[str, str], list[Line]] = defaultdict(list)
    spent: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for row in attempts:
        tasks[row["queue"], row["task"]].append(row)
        if row["started"] is not None:
            tenants[row["queue"], row["tenant"]].append(row)
        if row["run_us"] is not None:
            spent[row["tenant"], row["task"]].append(row)
    return {
        "failures": [failing for key, rows in tasks.items() for failing in _failing(*key, rows)],
        "waiting": [
            _waiting(*key, rows, [row for row in started if row["queue"] == key[0]])
            for key, rows in tenants.items()
        ],
        "costs": [
            {"tenant": tenant, "task": task, "attempts": len(rows),
             "run_s": sum(row["run_us"] for row in rows) / 1e6,
             "failed_s": sum(row["run_us"] for row in rows if row["outcome"] in FAILED[:2]) / 1e6}
            for (tenant, task), rows in spent.items()
        ],
    }  # fmt: skip


def _failing(queue: str, task: str, rows: Sequence[Line]) -> list[Line]:
    failed = [row for row in rows if row["outcome"] in FAILED]
    if not failed:
        return []
    causes = Counter(row["fingerprint"] for row in failed)
    error, times = min(causes.items(), key=lambda cause: (-cause[1], cause[0] or ""))
    ends = Counter(row["outcome"] for row in failed)
    return [
        {"queue": queue, "task": task, "attempts": len(rows), "failed": len(failed),
         "share": len(failed) / len(rows), "dead": ends["dead"], "crashed": ends["crashed"],
         "last": max(row["ended"] for row in failed), "error": error, "times": times}
    ]  # fmt: skip


def _waiting(queue: str, tenant: str, rows: Sequence[Line], all_rows: Sequence[Line]) -> Line:
    late_us = sum(max(row["lateness_us"], 0) for row in rows)
    whole_us = sum(max(row["lateness_us"], 0) for row in all_rows)
    return {
        "queue": queue, "tenant": tenant, "started": len(rows), "mean_s": late_us / len(rows) / 1e6,
        "longest_s": max(row["lateness_us"] for row in rows) / 1e6,
        "over_1s": sum(row["lateness_us"] >= SECOND for row in rows),
        "over_1min": sum(row["lateness_us"] >= 60 * SECOND for row in rows),
        "share": late_us / whole_us if whole_us else 0.0,
    }  # fmt: skip
