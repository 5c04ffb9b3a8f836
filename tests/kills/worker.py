"""A worker of the loop: `python -m tests.kills.worker PROCESSES`."""

import sys

from tests.kills.workload import QUEUE, app, record

CONCURRENCY = 8

if __name__ == "__main__":
    record()
    app.run_worker([QUEUE], concurrency=CONCURRENCY, processes=int(sys.argv[1]), drain=5)
