"""How much Python a plain `enqueue` runs: what is the same for all calls of a task is done once."""

from pathlib import Path

from dueline import Dueline
from tests.harness.function_calls import SOURCE, calls_of

CALLS_MAX = 61
ATTEMPTS = 5  # settings and sockets are read again after some seconds
JOBS = 1000
CALLS_A_JOB_MAX = 1.2


def test_a_plain_enqueue_passes_few_functions(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="send")
    def send(address: str, number: int) -> None:
        del address, number

    send.enqueue("ann@example.org", 1)
    counts = [calls_of(lambda: send.enqueue("ann@example.org", 1)) for _ in range(ATTEMPTS)]
    assert min(counts) - 1 <= CALLS_MAX  # without the lambda
    many = [("ann@example.org", number) for number in range(JOBS)]
    counts = [calls_of(lambda: send.enqueue_many(many), of=SOURCE) for _ in range(ATTEMPTS)]
    assert min(counts) <= CALLS_A_JOB_MAX * JOBS
    app.close()
