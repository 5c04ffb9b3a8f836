"""Enqueue a job, run it, read its result.

Why: a durable job runs even if the process that enqueued it is gone.
"""

from datetime import timedelta
from tempfile import TemporaryDirectory

from dueline import Dueline, Retry

folder = TemporaryDirectory()  # deleted when the program ends
app = Dueline(f"sqlite:///{folder.name}/jobs.db")


@app.task(retry=Retry(attempts=5, base=2))
def greet(name: str) -> str:
    """Return a greeting; the return value is stored as the job's result."""
    return f"Hello, {name}!"


def main() -> None:
    """Enqueue two jobs, run the due one, and cancel the other."""
    ben = greet.enqueue("Ben")  # on disk once this returns
    ann = greet.using(after=timedelta(hours=1), priority=10).enqueue("Ann")
    print("Ben's job is", ben.status)
    app.run_worker(burst=True)  # in production: `dueline worker hello:app`
    print(ben.result(timeout=5))
    print("Ann's job is", ann.status)
    ann.cancel()
    print("Ann's job is", ann.status)


if __name__ == "__main__":
    main()
