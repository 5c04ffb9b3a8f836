"""Make a queue file with jobs in every state: `make.py FOLDER`.

It runs under the version whose file is wanted, so it uses the public API alone. Tracebacks and
the registry of workers keep the paths and the name of the host, so both are neutral:

    mkdir -p /tmp/earlier && git archive 9d67dac1 src | tar x -C /tmp/earlier
    cp tests/stores/sqlite/stored/make.py /tmp/earlier
    export PYTHONPATH=/tmp/earlier/src
    sudo unshare --uts sh -c 'hostname earlier; "$0" /tmp/earlier/make.py /tmp/earlier/made' \
        $PWD/.venv/bin/python
    cp /tmp/earlier/made/queue.db.gz /tmp/earlier/made/made.json tests/stores/sqlite/stored/

`queue.db.gz` is the file, `made.json` what the program knows of it.
"""

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from dueline import Batch, Context, Dueline, Retry, group, pipeline, wait_for

QUEUES = ["mail", "images"]
CRASHES = 3
"""Number of handlers that run when the worker crashes."""

EVENTS = 30
KEYS = 5
"""Number of ordering keys of the stream."""

TICK_S = 50
"""Interval of the schedule: short enough that its next job is stored ahead of time."""

POISON = "key-1"
"""The ordering key whose events the group billing cannot handle."""


def application(url: str, act: Callable[[Context, str], None], **options: Any) -> Dueline:  # noqa: ANN401
    """Register the tasks.

    Args:
      act: What each handler does with the name that its job was given.
      options: Further arguments of the application.
    """
    app = Dueline(url, **options)

    def handle(context: Context, name: str) -> str:
        act(context, name)
        return name.upper()

    def follow(context: Context, given: object, name: str) -> list[object]:
        act(context, name)
        return [given, name]

    app.task(name="stored.plain", queue="mail", retry=Retry(attempts=3, base=900, cap=900))(handle)
    app.task(name="stored.once", queue="mail", retry=Retry(attempts=1))(handle)
    app.task(name="stored.gated", queue="images", limits=["gate"])(handle)
    app.task(name="stored.paced", queue="images", limits=["pace"])(handle)
    app.task(name="stored.follow", queue="mail")(follow)
    return app


class Maker:
    """An application of the earlier version that fills a queue file.

    made: What is known of the file, for the test that reads it.
    """

    def __init__(self, folder: Path) -> None:
        """Connect to the file in the folder."""
        self._folder = folder
        self._barrier = threading.Barrier(CRASHES)
        self.app = app = application(f"sqlite:///{folder / 'queue.db'}", self._act)
        app.queue("mail", history="all", weights={"ann": 3})
        app.queue("images", lease=60, shards=2)
        app.queue("held", keep=0)
        app.semaphore("gate", capacity=2)
        app.rate("pace", 2, per=600)
        app.schedule(
            "ticks",
            self._task("stored.plain").using(priority=7, tenant="clock"),
            ["tick"],
            every=TICK_S,
            catch_up="all",
        )
        self.made: dict[str, Any] = {"jobs": {}, "flows": {}, "handled": {}}
        self.orders = app.stream("orders", shards=2)

    def _task(self, name: str) -> Any:  # noqa: ANN401
        return self.app.task_named(name)

    def _act(self, context: Context, name: str) -> None:
        if name.startswith("flaky") and context.attempt == 1:
            raise ValueError(f"{name} fails once")
        if name.startswith("broken"):
            raise ValueError(f"{name} fails always")
        if name.startswith("crash"):
            self._barrier.wait(60)
            os._exit(0)

    def add(self, task: str, *names: str, **options: Any) -> None:  # noqa: ANN401
        """Enqueue a job of a task for each name."""
        for name in names:
            self.made["jobs"][name] = self._task(task).using(**options).enqueue(name).id

    def run(self) -> None:
        """Run what is due."""
        self.app.run_worker(QUEUES, burst=True, concurrency=CRASHES + 1)

    # The steps, each in a process of its own

    def work(self) -> None:
        """Enqueue jobs that end, fail or have to wait; run them."""
        self.add("stored.plain", "done-1", "done-2", tenant="ann", tags=["shown"])
        self.add("stored.plain", "flaky-1", "flaky-2", tenant="ben")
        self.add("stored.once", "broken-1", "broken-2")
        self.run()
        self.add("stored.paced", *(f"paced-{number}" for number in range(5)), after=0.01)
        time.sleep(0.1)
        worker = threading.Timer(3, lambda: os.kill(os.getpid(), 15))
        worker.start()
        self.app.run_worker(QUEUES)

    def crash(self) -> None:
        """Kill the process while three handlers run: a job, one with a permit, and a step."""
        self.add("stored.plain", "crash-1", priority=9)
        self.add("stored.gated", "crash-2", priority=9)
        plain, follow = self._task("stored.plain"), self._task("stored.follow")
        flow = self.app.start(
            pipeline(plain.step("first"), follow.step("crash-3"), follow.step("last")),
            name="crashed",
        )
        self.made["flows"]["crashed"] = flow.id
        self.save()
        self.run()

    def wait(self) -> None:
        """Start a workflow that stops for a signal; enqueue jobs that nobody runs."""
        plain, follow = self._task("stored.plain"), self._task("stored.follow")
        flow = self.app.start(
            pipeline(
                group(plain.step("left"), plain.step("right")),
                follow.step("joined"),
                wait_for("go"),
                follow.step("ended"),
            ),
            name="waiting",
        )
        self.made["flows"]["waiting"] = flow.id
        self.run()
        for tenant in ("ann", "ben"):
            for priority in (-1, 0, 5):
                names = [f"waiting-{tenant}-{priority}-{number}" for number in range(2)]
                self.add("stored.plain", *names, tenant=tenant, priority=priority)
        self.add("stored.gated", *(f"gated-{number}" for number in range(4)))
        self.add("stored.plain", "later-1", after=3600, tags=["shown"])
        self.add("stored.plain", "later-2", after=2 * 3600, queue="images", expires=3 * 3600)
        self.add("stored.plain", "unique-1", unique="only")
        self.add("stored.plain", "held-1", "held-2", queue="held")
        self.app.pause("held")
        self.app.pause("mail", tenant="cy")
        self.add("stored.plain", "held-3", tenant="cy")

    def append(self) -> None:
        """Append events, and let a group handle some of them, another die in its second batch."""
        self.orders.append_many([(number, f"key-{number % KEYS}") for number in range(EVENTS - 10)])
        billed = self.made["handled"].setdefault("billing", [])

        @self.orders.consumer("billing", batch=4, lease=2, park_after=1)
        def bill(batch: Batch) -> None:
            if any(event.key == POISON for event in batch.events):
                raise ValueError(f"{POISON} cannot be billed")
            billed.extend(event.value for event in batch.events)

        known = sum(number % KEYS != 1 for number in range(EVENTS - 10))
        with self.app.consuming(["orders/billing"]):
            while len(billed) < known:
                time.sleep(0.05)
            time.sleep(0.5)  # until the last checkpoint is written
        self.orders.append_many(
            [(number, f"key-{number % KEYS}") for number in range(EVENTS - 10, EVENTS)]
        )

    def die(self) -> None:
        """Let a group handle a batch, and kill its process in the next one."""
        time.sleep(0.5)  # until the events can be read
        shipped = self.made["handled"].setdefault("shipping", [])

        @self.orders.consumer("shipping", batch=4, lease=2)
        def ship(batch: Batch) -> None:
            if shipped:
                self.save()
                os._exit(0)
            shipped.extend(event.value for event in batch.events)

        with self.app.consuming(["orders/shipping"]):
            time.sleep(60)

    def save(self) -> None:
        """Write down what is known."""
        self.made["until_us"] = time.time_ns() // 1000
        (self._folder / "made.json").write_text(json.dumps(self.made, indent=1) + "\n")

    def load(self) -> None:
        """Read what earlier steps wrote down."""
        file = self._folder / "made.json"
        if file.exists():
            self.made = json.loads(file.read_text())


STEPS = ("work", "crash", "wait", "append", "die")


def main(folder: Path, step: str | None = None) -> None:
    """Take one step, or all of them and pack the file."""
    folder.mkdir(exist_ok=True)
    if step is not None:
        maker = Maker(folder)
        maker.load()
        getattr(maker, step)()
        maker.save()
        return
    for name in STEPS:
        subprocess.run([sys.executable, __file__, str(folder), name], check=True)
    path = folder / "queue.db"
    database = apsw.Connection(str(path))
    for _ in database.execute("PRAGMA wal_checkpoint(TRUNCATE)"):
        pass
    database.close()
    (folder / "queue.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
