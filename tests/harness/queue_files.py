"""Files with a queue in them."""

from pathlib import Path

from dueline.api.application import Dueline
from dueline.core.job import Token
from dueline.core.retry import Retry
from dueline.core.store import SETTINGS_PARTITION, Lease, Want
from dueline.jobs.history import attempts


def app_on(path: Path) -> Dueline:
    return Dueline(f"sqlite:///{path}")


def fill(path: Path) -> None:
    """Make a queue with jobs short and long, finished, dead and scheduled; close it cleanly."""
    app = app_on(path)

    def work(number: int, body: str = "") -> int:
        if number % 10 == 9:
            raise KeyError(number)
        return number

    task = app.task(name="work", retry=Retry(attempts=1))(work)
    task.enqueue_many([(number,) for number in range(60)])
    app.run_worker(burst=True)
    task.enqueue_many([(number, "x" * 3000) for number in range(20)])
    task.using(after=3600, priority=5, tenant="other").enqueue_many([(n,) for n in range(200)])
    app.close()


def everything(path: Path) -> tuple[object, ...]:
    """Open a queue, read all that is in it, and claim one job."""
    app = app_on(path)
    try:
        store = app.store
        names = app.queues.engine.catalog.names()
        queues = [*names, *(f"{name}!dead" for name in names)]
        lanes = [lane for queue in queues for lane in app.queues.engine.lanes_of(queue)]
        jobs = [store.scan(lane, after=None, until_us=None, limit=10_000).jobs for lane in lanes]
        rows = store.find([job.id for page in jobs for job in page])
        history = list(attempts(store, "default", 1))
        states = [app.job(attempt.job).status for attempt in history]
        records = store.read(SETTINGS_PARTITION, after=None, limit=100)
        claimed = store.claim(
            [Want(lane, 5) for lane in lanes],
            limit=3,
            lease=Lease(store.clock_us(), 1, "w", Token(bytes(range(16)))),
        )
        ids = [job.id for job in claimed.jobs]
        return (lanes, jobs, rows, history, states, records, ids)
    finally:
        app.close()
