"""Consume six shards with six processes; kill two of them without losing a message (H6).

Why: processes share a log in order, and agree by themselves which shard each reads.
DUELINE_STORE selects the store (on Cassandra, run `dueline migrate` first); default: a file.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from dueline import Batch, Dueline

SHARDS, CONSUMERS, KILLED, MESSAGES, LEASE_S = 6, 6, 2, 600, 2.0
own = None if "FOLDER" in os.environ else TemporaryDirectory()  # deleted when the program ends
FOLDER = Path(own.name if own else os.environ["FOLDER"])
app = Dueline(os.environ.get("DUELINE_STORE") or f"sqlite:///{FOLDER}/jobs.db")
messages = app.stream("messages", shards=SHARDS)


@messages.consumer("workers", lease=LEASE_S)
def work(batch: Batch) -> None:
    """Record which messages were handled, and how long after they were appended."""
    lines = [f"{event.value} {time.time() - event.at.timestamp()}\n" for event in batch.events]
    with (FOLDER / f"{os.getpid()}.log").open("a") as log:
        log.writelines(lines)


def main() -> None:
    """Produce messages, kill two consumers, and wait until all messages are handled."""
    program, environ = [sys.executable, __file__, "consume"], {**os.environ, "FOLDER": str(FOLDER)}
    crew = [subprocess.Popen(program, env=environ) for _ in range(CONSUMERS)]
    while [len(one.shards) for one in messages.members("workers")] != [1] * CONSUMERS:
        time.sleep(0.1)
    for number in range(MESSAGES):
        messages.append(number, key=str(number))
        if number == MESSAGES // 2:
            for victim in crew[:KILLED]:
                victim.kill()
        time.sleep(0.01)
    while sum(lag.rows for lag in messages.lag("workers")):
        time.sleep(0.05)
    for consumer in crew[KILLED:]:
        consumer.terminate()
    killed = [consumer.wait() for consumer in crew].count(-9)
    lines = [line.split() for path in FOLDER.glob("*.log") for line in path.open()]
    handled = {int(number): float(latency_s) for number, latency_s in lines}
    before_s = median(handled[number] for number in range(MESSAGES // 2))
    print(f"{len(handled)} of {MESSAGES} messages handled, {killed} consumers killed")
    print(f"added latency: p50 {1000 * before_s:.0f} ms")
    print(f"takeover: {max(handled.values()):.1f} s, the highest latency; lease {LEASE_S:.0f} s")


if __name__ == "__main__":
    app.consume() if sys.argv[1:] == ["consume"] else main()
