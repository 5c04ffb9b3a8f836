"""The application whose handlers write products.

`python -m tests.kills.shop PROCESSES` is a worker of it.
"""

import os
import random
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dueline import Context, Dueline, Retry

FOLDER_VARIABLE = "DUELINE_PRODUCTS_FOLDER"
STORE_VARIABLE = "DUELINE_PRODUCTS_STORE"
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
STORE = os.environ.get(STORE_VARIABLE) or f"sqlite:///{FOLDER}/queue.db?synchronous=NORMAL"

app = Dueline(STORE)
app.queue(QUEUE, lease=LEASE_S)


IS_POSTGRES = STORE.startswith("postgresql")
INSERT = "insert into products (number, job, fence) values (?, ?, ?)"


def opened() -> AbstractContextManager[Any]:
    """Open a transaction of the application; on PostgreSQL a connection of the handler's own."""
    if not IS_POSTGRES:
        return app.transaction()
    import psycopg  # noqa: PLC0415  (an extra)

    connection: AbstractContextManager[Any] = psycopg.connect(STORE)
    return connection


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
    with opened() as tx:
        values = (number, ctx.job_id.hex(), ctx.fence)
        tx.execute(INSERT.replace("?", "%s") if IS_POSTGRES else INSERT, values)
        reach("written")
        ctx.finish(tx, number)
        reach("finished")
        if number % RAISES_EVERY == 0 and ctx.attempt == 1:
            raise RuntimeError(f"number {number} is one that fails once")
    reach("after")
    return number


if __name__ == "__main__":
    app.run_worker([QUEUE], concurrency=CONCURRENCY, processes=int(sys.argv[1]), drain=5)
