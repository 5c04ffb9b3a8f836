"""A store with a past, for programs that read its tables."""

from pathlib import Path

from dueline import Dueline, Retry
from dueline.core.store import Drop


def filled(folder: Path) -> Dueline:
    """Make a store whose jobs of two tenants were run, and of which some died or wait."""
    app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", shards=2, history="all")
    app.queue("quiet", history="off")

    @app.task(name="send", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def send(number: int) -> int:
        if number % 10 == 0:
            raise TimeoutError(f"server {number} is silent")
        return number

    for tenant, jobs in (("acme", 60), ("zeta", 20)):
        send.using(tenant=tenant).enqueue_many([(number,) for number in range(jobs)])
    app.run_worker(burst=True)
    send.using(after=3600).enqueue(1)
    return app


def lose_a_job(app: Dueline) -> None:
    """Delete the row of a waiting job, as nothing of dueline does."""
    app.store.settle([Drop(next(app.queues.engine.jobs_of("mail")))])
