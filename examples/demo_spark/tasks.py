"""What the demo's jobs do."""

from dueline import Dueline, Retry

QUEUE = "demo"

app = Dueline()


@app.task(name="square", queue=QUEUE, retry=Retry(attempts=3, base=0.01, cap=0.05))
def square(number: int) -> int:
    """Square a number; every 500th is refused, and ends dead."""
    if number % 500 == 0:
        raise ValueError("a number that nobody wants")
    return number**2
