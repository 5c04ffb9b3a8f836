"""Jobs with a unique key."""

from dueline.core.attempt import FinalState, Outcome
from dueline.core.call_options import CallOptions, Mode, Rule
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.jobs import unique_records
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.calls import call, number_of

MODES: tuple[Mode, ...] = ("reject", "existing", "replace", "earliest", "last")


KEEPING_NOTHING = QueueSettings(history="off", keep_us=0)


def keyed(
    number: int,
    *,
    mode: Mode = "reject",
    key: str = "k",
    within_us: int = 0,
    due_us: int | None = None,
    expires_us: int | None = None,
) -> EnqueueRequest:
    """Make a numbered call with a key."""
    opts = CallOptions(expires_us, Rule(key, mode, within_us)).to_bytes()
    return call(number, due_us=due_us)._replace(opts=opts)


def alive(queues: Queues) -> list[int]:
    """List the numbers of the jobs that live."""
    return sorted(number_of(row) for row in queues.engine.jobs_of("default") if not row.outcome)


def keys_held(queues: Queues, key: str = "k") -> bool:
    """Tell whether a record of the key is left."""
    return unique_records.read(queues.engine.store, "default", key) is not None


def end_of(queues: Queues, row: Job, state: FinalState = "done") -> bool:
    """End a job as a worker would."""
    outcome = Outcome(state, queues.engine.time.latest_us())
    end = finish_of(row, outcome, None, queues.engine.catalog.settings("default"))
    return finish(queues.engine.store, [Finished(row, end)])[0]
