"""The pipeline as a function, for schedulers and programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.core.errors import Conflict, LakeUnavailable, StoreUnavailable, Unknown
from dueline.spark.pipeline.audit import Judged
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.engine import STEPS, Say, Settings, Step
from dueline.spark.pipeline.pipeline import pipeline
from dueline.spark.pipeline.tables import BRONZE
from dueline.spark.pipeline.thresholds import OBJECTIVE, TARGET_US

TRANSIENT: Final = (Conflict, LakeUnavailable, StoreUnavailable, Unknown)
"""Errors after which the same call may succeed."""


class Updated(NamedTuple):
    """What an update did.

    Attributes:
        steps: The rows and files that each step wrote.
        audit: The result of the audit; None if there was none.
    """

    steps: Sequence[Step]
    audit: Judged | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the audit, if there was one, found nothing."""
        return self.audit is None or not self.audit.has_failed

    def summary(self) -> dict[str, Any]:
        """Return numbers and verdicts as plain values: `rows`, `queues` and `findings`."""
        audit = self.audit
        return {
            "rows": {step.name: step.rows for step in self.steps},
            "queues": {}
            if audit is None
            else {queue.queue: queue.verdict for queue in audit.queues},
            "findings": 0 if audit is None else len(audit.findings),
        }


def update_tables(
    store: str,
    lake: str,
    *,
    queues: Sequence[str] = (),
    steps: Sequence[str] = (),
    audit: bool = True,
    engine: str = "duckdb",
    target_us: int = TARGET_US,
    objective: float = OBJECTIVE,
    storage_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Updated:
    """Bring the tables of a lake up to date, and audit the queues.

    Example: `update_tables("sqlite:///jobs.db", "lake").summary()`.

    Args:
        store: URL of the store.
        lake: Folder or address of the tables.
        queues: Names of queues; all if empty.
        steps: Some of bronze, silver and gold; all if empty.
        audit: Whether to audit.
        engine: duckdb, or spark.
        target_us: Maximum start latency of a start that is on time, in microseconds.
        objective: Share of starts that should be on time.
        storage_options: Options of the object store.
        say: Is called with words on the progress.

    Returns:
        What was written and found. A failed audit is no error: see `is_clean`.

    Raises:
        BadInput: There is no such step.
        ConfigError: There is no such store.
        NotFound: There is no such queue.
        Conflict: Another process writes to the tables, or they hold another history.
        HistoryExpired: Rows were trimmed before they were copied.
        LakeCorrupt: A table is damaged.
        LakeUnavailable: The tables cannot be read or written.
        StoreUnavailable: The store cannot be read.
    """
    made = pipeline(
        place_of(lake, storage_options),
        Settings(store, tuple(queues), target_us, objective),
        engine=engine,
    )
    chosen, copied, judged = list(steps or STEPS), [], None
    if audit:  # it copies rows, too, so the other tables come after it
        if BRONZE.name in chosen:
            copied = made.run([BRONZE.name], say)
            chosen.remove(BRONZE.name)
        judged = made.audit(say)
    return Updated([*copied, *(made.run(chosen, say) if chosen else ())], judged)
