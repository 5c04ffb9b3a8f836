"""The application whose handlers write products.

`python -m tests.kills.shop PROCESSES` is a worker of it.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path

from dueline import Context, Dueline, Retry

FOLDER_VARIABLE = "DUELINE_PRODUCTS_FOLDER"
QUEUE = "products"
LEASE_S = 1.0
CONCURRENCY = 4
STAGES = ("idle", "before", "after", "written", "finished")
"""How far a handler is: none ran yet, nothing is written, all is committed, and inside the
transaction: the product is written, the job's end too. One thread of a machine can be inside."""

PAUSE_S_MAX = 0.002
RAISES_EVERY = 41
"""Handlers of numbers that this divides fail once, after both were written."""

FOLDER = Path(os.environ.get(FOLDER_VARIABLE, "."))

app = Dueline(f"sqlite:///{FOLDER}/queue.db?synchronous=NORMAL")
app.queue(QUEUE, lease=LEASE_S)


def reach(stage: str) -> None:
    """Note how far this thread's handler is, where it is read after a kill; stay a little."""
    path = FOLDER / f"{os.getpid()}.{threading.get_ident()}.stage"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d" % STAGES.index(stage))  # one byte: never half a word
    os.close(descriptor)
    time.sleep(random.random() * PAUSE_S_MAX)


@app.task(name="produce", queue=QUEUE, retry=Retry(attempts=3, base=0.05, cap=0.2))
def produce(ctx: Context, number: int) -> int:
    """Write a product in the transaction that ends the job."""
    reach("before")
    with app.transaction() as tx:
        tx.execute(
            "insert into products (number, job, fence) values (?, ?, ?)",
            (number, ctx.job_id.hex(), ctx.fence),
        )
        reach("written")
        ctx.finish(tx, number)
        reach("finished")
        if number % RAISES_EVERY == 0 and ctx.attempt == 1:
            raise RuntimeError(f"number {number} is one that fails once")
    reach("after")
    return number


if __name__ == "__main__":
    app.run_worker([QUEUE], concurrency=CONCURRENCY, processes=int(sys.argv[1]), drain=5)
