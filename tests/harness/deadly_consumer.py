"""A consumer that some events kill, as a program that ends when all is read."""

import os
import signal
import sys
import time

from dueline import Batch, Dueline

app = Dueline(sys.argv[1] if __name__ == "__main__" else "memory://")
events = app.stream("events", shards=1)


@events.consumer("group", batch=10, park_after=3, lease=30)
def handle(batch: Batch) -> None:
    """Die of some, and tell of the others."""
    values = [event.value for event in batch.events]
    if "deadly" in values:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(" ".join([*values, ""]))


if __name__ == "__main__":
    with app.consuming():
        while any(lag.rows for lag in events.lag("group")):
            time.sleep(0.02)
