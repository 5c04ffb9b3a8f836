"""A task, a table and a job's state, read in tests of transactions."""

from dueline import Dueline, Job, NotFound, Task


def numbered(app: Dueline) -> Task[[int], int]:
    """Register a task that answers its number."""

    @app.task(name="send")
    def send(number: int) -> int:
        return number

    return send


def bills(app: Dueline) -> list[tuple[int, int]]:
    """Read the table of the shop, in a transaction of its own."""
    with app.transaction() as tx:
        return tx.execute("select number, cents from bills order by rowid")


def status(job: Job[int]) -> str:
    """Read a job's state."""
    try:
        return job.status
    except NotFound:
        return "unknown"
