"""Retry jobs: Retry, retry_after, Snooze (R2).

Why: most failures are temporary, and only the task knows which ones, and for how long.
"""

from tempfile import TemporaryDirectory

from dueline import Context, Dueline, Job, JobFailed, Retry, Snooze

folder = TemporaryDirectory()  # deleted when the program ends
app = Dueline(f"sqlite:///{folder.name}/jobs.db")
polls = 0


class TooManyRequestsError(Exception):
    """A service states when to retry; this replaces the delay of the retry policy."""

    retry_after = 0.2  # seconds


@app.task(retry=Retry(attempts=3, base=0.1, on=(ConnectionError, TooManyRequestsError)))
def fetch(ctx: Context, page: str) -> str:
    """Fail as the page's name says; only errors in `on` are retried."""
    print(f"{page}: attempt {ctx.attempt}")
    if page == "flaky" and ctx.attempt < 3:
        raise ConnectionError("the network is down")
    if page == "busy" and ctx.attempt == 1:
        raise TooManyRequestsError("come back later")
    if page == "wrong":
        raise ValueError("no such page")
    return f"{page} fetched"


@app.task
def wait_for_file(ctx: Context) -> str:
    """Check again later until the file exists: a snooze uses no attempt."""
    global polls  # noqa: PLW0603  (a stand-in for the outside world)
    polls += 1
    if polls < 3:
        raise Snooze(0.1)
    return f"found at poll {polls}, attempt {ctx.attempt}"


def main() -> None:
    """Run all jobs, and print how each ended."""
    jobs: list[Job[str]] = [fetch.enqueue(page) for page in ("flaky", "busy", "wrong")]
    jobs.append(wait_for_file.enqueue())
    while any(job.status not in {"done", "dead"} for job in jobs):
        app.run_worker(concurrency=1, burst=True)
    for job in jobs:
        try:
            print(job.result())
        except JobFailed as error:
            print(error.message.partition(" is ")[2])


if __name__ == "__main__":
    main()
