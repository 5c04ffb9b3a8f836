"""Of jobs that have deadlines the earliest goes first."""

from dueline import Dueline


def a_worker_starts_them_in_that_order(app: Dueline) -> None:
    # T6
    ran: list[int] = []

    @app.task(name="notes")
    def note(number: int) -> None:
        ran.append(number)

    minutes = [7, 3, 9, 1, 8, 2]
    for number in minutes:
        app.task_named("notes").using(deadline=60 * number).enqueue(number)
    app.run_worker(burst=True, concurrency=1)
    assert ran == sorted(minutes)
