"""Run due jobs by priority, then in the order of their due times.

Why: urgent and bulk jobs can share a queue, because urgent jobs never wait behind the others.
"""

from tempfile import TemporaryDirectory

from dueline import Dueline

folder = TemporaryDirectory()  # deleted when the program ends
app = Dueline(f"sqlite:///{folder.name}/jobs.db")


@app.task
def say(text: str) -> None:
    """Print the text, to show the order."""
    print(text)


def main() -> None:
    """Enqueue in a mixed order, then run one job at a time."""
    later = say.using(after=3600, priority=1000).enqueue("due later, despite priority 1000")
    say.using(priority=-5).enqueue("bulk, priority -5")
    say.enqueue_many([("first, priority 0",), ("second, priority 0",)])
    say.using(priority=50).enqueue("urgent, priority 50")

    app.run_worker(concurrency=1, burst=True)
    later.reschedule(after=0)  # instead of waiting for an hour
    while later.status != "done":
        app.run_worker(concurrency=1, burst=True)


if __name__ == "__main__":
    main()
