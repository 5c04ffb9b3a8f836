"""`python -m tests.kills.sharded`: sharded workers on a ring, a node killed.

The consumers are those of `examples/sharded_workers.py`; two of six are killed in the middle, and a
node of the ring with them. The producer makes sure of each message, as its guide says.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from dueline import AppendUnknown, StoreUnavailable
from tests.harness.servers import migrate
from tools.cassandra.ring import Ring

FIRST = 101
TIMEOUT_S = 4
WAIT_S_MAX = 300.0
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "sharded_workers.py"


def append_surely(stream: Any, number: int) -> None:  # noqa: ANN401  (the example's own)
    """Append a message, and make sure of it where the store does not answer or cannot be had."""
    rows: Any = ()
    while True:
        try:
            _ = stream.append_again(rows) if rows else stream.append(number)
        except AppendUnknown as error:
            rows = error.rows
        except StoreUnavailable:
            time.sleep(0.1)
        else:
            return


def left_in(stream: Any) -> int:  # noqa: ANN401  (the example's own)
    """Count the messages that are not handled; at least one while nobody can say."""
    with suppress(StoreUnavailable):
        return sum(lag.rows for lag in stream.lag("workers"))
    return 1


def run(ring: Ring, folder: Path) -> dict[str, object]:
    """Play it on a ring that runs; tell how it ended."""
    url = f"{ring.url('sharded')}&timeout={TIMEOUT_S}s"
    os.environ |= {"DUELINE_STORE": url, "FOLDER": str(folder)}
    migrate(url)
    example = import_module("examples.sharded_workers")
    stream = example.messages
    program = [sys.executable, str(EXAMPLE), "consume"]
    consumers = [subprocess.Popen(program) for _ in range(example.CONSUMERS)]
    try:
        while [len(member.shards) for member in stream.members("workers")] != [1] * len(consumers):
            time.sleep(0.1)
        killed_s = 0.0
        for number in range(example.MESSAGES):
            append_surely(stream, number)
            if number == example.MESSAGES // 2:
                killed_s = time.time()
                ring.nodes[-1].kill()
                for victim in consumers[: example.KILLED]:
                    victim.kill()
            time.sleep(0.01)
        give_up_s = time.monotonic() + WAIT_S_MAX
        while left_in(stream) and time.monotonic() < give_up_s:
            time.sleep(0.05)
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.wait()
    lines = [line.split() for path in folder.glob("*.log") for line in path.open()]
    handled: dict[int, float] = {}
    for number_text, latency in lines:
        handled.setdefault(int(number_text), float(latency))
    return {
        "messages": example.MESSAGES,
        "handled": len(handled),
        "handled twice": len(lines) - len(handled),
        "longest wait s (takeover)": round(max(handled.values()), 1),
        "all handled after the kills s": round(time.time() - killed_s, 1),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        logs = Path(place, "logs")
        logs.mkdir()
        with Ring(Path(place, "ring"), nodes=3, first=FIRST) as three:
            told = run(three, logs)
    print(json.dumps(told, indent=2))  # noqa: T201
    raise SystemExit(told["handled"] != told["messages"])
