"""Report shards with late jobs in queues that workers serve.

They are only reported, for operators who do not run `dueline doctor`: every worker reads all
shards.
"""

from dueline.coordination.worker_registry import present
from dueline.core.engine import Engine
from dueline.core.maintenance import StepResult
from dueline.jobs.shard_status import LATE_US, neglected

EVERY_US = LATE_US
QUEUES_A_STEP = 20


def report_late_shards(engine: Engine, after: str | None) -> StepResult:
    """Report the late shards of some queues."""
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    is_last = len(names) < QUEUES_A_STEP
    late = list(neglected(engine, names, present(engine.store)))
    warnings = [f"{check.name}: {check.finding}" for check in late]
    return StepResult(len(late), None if is_last else names[-1], warnings=warnings)
