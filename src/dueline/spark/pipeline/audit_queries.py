"""The audit of a history, on any engine: `sql/audit*.sql` with their views and values."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from dueline.core.attempt import DIGEST_DIGITS, SECTION_KEPT_US
from dueline.jobs.audit_rules import (
    AHEAD_US_MAX,
    EARLY_US_MAX,
    NO_PROMISES,
    NOTHING_KNOWN,
    RULES,
    SEEN_US,
    Audited,
    Known,
    Promises,
    audited,
)
from dueline.spark.pipeline.queries import Derived, Queries, Values, View, lines_of, text_of

INSTANT: Final = pa.timestamp("us", "UTC")
LIVING: Final = pa.schema([("job_id", pa.string()), ("enqueued", INSTANT)])
EXPECTED: Final = pa.schema([("job_id", pa.string())])
_LIMITS: Final = pa.schema([("task", pa.string()), ("most", pa.int64())])


def audit(
    queries: Queries,
    attempts: View,
    *,
    living: View | None = None,
    expected: View | None = None,
    results: View | None = None,
    promises: Promises = NO_PROMISES,
    known: Known = NOTHING_KNOWN,
) -> Audited:
    """Find violations of the rules in `audit_rules`.

    Args:
        queries: The engine.
        attempts: The table `attempts`, with all rows.
        living: Jobs that have a row (job_id, optionally enqueued), read before the attempts, or
            while the queue was idle. Without `enqueued`, a row belongs to the last run of its job
            id. Without this table, no rule on lost jobs is applied.
        expected: All enqueued jobs (job_id). Without it, no rule on unexpected jobs is applied.
        results: The table `results` (job_id, finished, value), to compare results with the
            digests in the history.
        promises: Further rules.
        known: Facts about the store.

    Returns:
        The findings as mappings, with times in microseconds, and the rules that were applied.
    """
    lines = violations(
        queries, attempts, living=living, expected=expected, results=results, promises=promises,
        known=known,
    )  # fmt: skip
    return audited(
        [finding_of(line) for line in lines],
        has_living=living is not None,
        has_expected=expected is not None,
        has_results=results is not None,
        promises=promises,
        known=known,
    )


def violations(
    queries: Queries,
    attempts: View,
    *,
    living: View | None = None,
    expected: View | None = None,
    results: View | None = None,
    promises: Promises = NO_PROMISES,
    known: Known = NOTHING_KNOWN,
    others: Mapping[str, View] | None = None,
    more: Values | None = None,
) -> list[dict[str, Any]]:
    """Return rule, queue, job_id, enqueued and attempt of violations; see `audit`.

    `others` and `more` are views and values from which `attempts` is derived.
    """
    values: Values = dict(more or {}) | {
        "early_us": EARLY_US_MAX, "ahead_us": AHEAD_US_MAX, "seen_us": SEEN_US,
        "now_us": known.now_us, "has_living": living is not None,
        "has_expected": expected is not None, "all_whole": known.whole is None,
        "whole": list(known.whole or ()), "exact": list(known.exact), "passed": promises.passed,
        "digits": DIGEST_DIGITS, "section_us": SECTION_KEPT_US,
    }  # fmt: skip
    views = dict(others or {}) | {
        "rows": attempts,
        "attempts": Derived(text_of("attempts")),
        "steps": Derived(text_of("steps")),
        "living": LIVING.empty_table() if living is None else living,
        "expected": EXPECTED.empty_table() if expected is None else expected,
        "allowed": _limits(promises.attempts),
        "capacities": _limits(promises.capacities),
        "results": results,
    }
    if living is not None and "enqueued" not in _names(living):
        sql = "SELECT job_id, CAST(NULL AS TIMESTAMP) AS enqueued FROM living_ids"
        views |= {"living_ids": living, "living": Derived(sql)}
    names = ["audit", "audit_functions", "audit_sections"]
    names += ["audit_capacity"] if promises.capacities else []
    names += ["audit_order"] if promises.passed is not None else []
    names += ["audit_results"] if results is not None else []
    return [line for name in names for line in lines_of(queries.run(text_of(name), views, values))]


def finding_of(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a violation with the verdict and the words of its rule."""
    rule = RULES[line["rule"]]
    names = "queue", "job_id", "enqueued", "attempt"
    return {"verdict": rule.verdict, **{name: line[name] for name in names}, "words": rule.words}


def _limits(limits: Mapping[str, int]) -> pa.Table:
    rows = [{"task": task, "most": most} for task, most in limits.items()]
    return pa.Table.from_pylist(rows, _LIMITS)


def _names(view: View) -> Iterable[str]:
    schema = view.schema
    return list(getattr(schema, "fieldNames", lambda: getattr(schema, "names", ()))())
