"""A worker of the loop: `python -m tests.kills.worker PROCESSES`."""

import sys
import time

from dueline.core.errors import StoreUnavailable
from tests.kills.workload import QUEUE, app, record, wait_for_store

CONCURRENCY = 8

START_S_MAX = 10.0
"""For so long a worker may be starting: if its store goes away meanwhile, it ends, and whoever
supervises it starts it again."""


def main(processes: int) -> None:
    """Run a worker, and start it again if its store went away while it started."""
    while True:
        wait_for_store()
        began_s = time.monotonic()
        try:
            app.run_worker([QUEUE], concurrency=CONCURRENCY, processes=processes, drain=5)
        except StoreUnavailable:
            if time.monotonic() > began_s + START_S_MAX:
                raise
        else:
            return


if __name__ == "__main__":
    record()
    main(int(sys.argv[1]))
