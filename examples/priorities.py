"""Jobs run once they are due, the urgent first, then as they came.

Why: one queue can carry the urgent and the bulk, if the urgent never waits behind it.
"""

from tempfile import TemporaryDirectory

from dueline import Dueline

folder = TemporaryDirectory()  # goes when the program ends
app = Dueline(f"sqlite:///{folder.name}/jobs.db")


@app.task
def say(text: str) -> None:
    """Print, so that the order shows."""
    print(text)


def main() -> None:
    """Enqueue in a mixed order, then run one job at a time."""
    later = say.using(after=3600, priority=1000).enqueue("due later: not even priority is early")
    say.using(priority=-5).enqueue("bulk, priority -5")
    say.enqueue_many([("first, priority 0",), ("second, priority 0",)])
    say.using(priority=50).enqueue("urgent, priority 50")

    app.run_worker(concurrency=1, burst=True)
    later.reschedule(after=0)  # so that you need not wait for an hour
    while later.status != "done":
        app.run_worker(concurrency=1, burst=True)


if __name__ == "__main__":
    main()
