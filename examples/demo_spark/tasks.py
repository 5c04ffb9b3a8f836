"""Task of the Spark demo."""

from dueline import Dueline, Retry

QUEUE = "demo"

app = Dueline()


@app.task(name="square", queue=QUEUE, retry=Retry(attempts=3, base=0.01, cap=0.05))
def square(number: int) -> int:
    """Square a number; every 500th fails and moves to the dead-letter list."""
    if number % 500 == 0:
        raise ValueError("rejected number")
    return number**2
