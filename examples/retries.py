"""Be run again: Retry, retry_after, Snooze.

Why: most failures pass by themselves, and only the task knows which ones, and how soon.
"""

from tempfile import TemporaryDirectory

from dueline import Context, Dueline, Job, JobFailed, Retry, Snooze

folder = TemporaryDirectory()  # goes when the program ends
app = Dueline(f"sqlite:///{folder.name}/jobs.db")
looked = 0


class TooManyRequestsError(Exception):
    """A service says when to come back; the wait of the policy gives way to it."""

    retry_after = 0.2  # seconds


@app.task(retry=Retry(attempts=3, base=0.1, on=(ConnectionError, TooManyRequestsError)))
def fetch(ctx: Context, page: str) -> str:
    """Fail in the way that the page is called; anything but `on` is dead at once."""
    print(f"{page}: attempt {ctx.attempt}")
    if page == "flaky" and ctx.attempt < 3:
        raise ConnectionError("the network was away")
    if page == "busy" and ctx.attempt == 1:
        raise TooManyRequestsError("come back later")
    if page == "wrong":
        raise ValueError("no such page")
    return f"{page} fetched"


@app.task
def wait_for_file(ctx: Context) -> str:
    """Look again later as long as nothing is there: a snooze spends no attempt."""
    global looked  # noqa: PLW0603  (a stand-in for the outside world)
    looked += 1
    if looked < 3:
        raise Snooze(0.1)
    return f"found at look {looked}, attempt {ctx.attempt}"


def main() -> None:
    """Run them all, and tell how each ended."""
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
