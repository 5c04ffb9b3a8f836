"""`python -m tests.kills.topics`: each event once for each subscriber, whoever is killed.

TOPIC_KILLS and TOPIC_EVENTS, from the environment, say how many; TOPIC_STORE names an empty store
elsewhere than in a file. Three tasks and two groups subscribe. Publishers, workers and consumers
are killed at random moments. Groups store what they read with their positions where the store has
statements, and may read an event again elsewhere.
"""

import os
import random
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from dueline import Batch, Dueline, Event
from dueline.api import deliveries
from dueline.core.clock import SECOND_US
from dueline.jobs.history import attempts
from dueline.streams.topics import group_of_task, job_id_of, matches
from tests.kills.flows import CALLS_MAX, DRAIN_S_MAX, LEASE_S, QUEUE, TICK_S, Flows
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 10
EVENTS = 400
WORK_S_MAX = 5.0
TASKS: Final = {"welcome": "user.created", "audit": "user.**", "ship": "order.*"}
GROUPS: Final = {"mail": "user.*", "ledger": "**"}
TOPICS: Final = ("user.created", "user.deleted", "order.paid", "order.paid.late")


class Report(NamedTuple):
    """What became of all events. faults: what must not be, in words."""

    kills: int
    events: int
    jobs: int
    rows: int
    repeats: int
    faults: list[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    deliveries.LEASE_US = 2 * SECOND_US  # type: ignore[misc]  # others take over sooner
    url = os.environ.get("TOPIC_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=2, lease=LEASE_S)
    app.stream("topics", shards=3)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    read = os.open(folder / "read", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def act(number: int) -> None:
        assert isinstance(number, int)
        os.write(calls, b".")

    for name, pattern in TASKS.items():
        app.task(name=name, queue=QUEUE, on=pattern)(act)

    def store(group: str, batch: Batch) -> None:
        ids = [event.id for event in batch.events]
        os.write(calls, b"." * len(ids))
        os.write(read, "".join(f"{group} {each}\n" for each in ids).encode())
        if has_statements(app):
            with app.transaction() as tx:
                for each in ids:
                    tx.execute("INSERT INTO seen VALUES (?, ?)" if "sqlite" in app.url
                               else "INSERT INTO seen VALUES (%s, %s)", (group, each))  # fmt: skip
                batch.commit(tx)

    for group, pattern in GROUPS.items():
        app.topic(pattern).consumer(group, lease=2)(partial(store, group))
    return app


def has_statements(app: Dueline) -> bool:
    """Return whether groups can store what they read with their positions."""
    return app.url.startswith(("sqlite", "postgres"))


def publish(app: Dueline, folder: Path) -> None:
    """Publish events until there are enough, now and then some at once."""
    chance, most = random.Random(), int(os.environ.get("TOPIC_EVENTS", EVENTS))
    place = folder / "published"
    while True:
        done = place.read_bytes().count(b"\n") if place.exists() else 0
        if done >= most:
            time.sleep(TICK_S)
            continue
        for _ in range(chance.choice([1, 5, 40])):
            event = app.publish(chance.choice(TOPICS), done, key=str(chance.randrange(7)))
            with place.open("a") as told:
                told.write(f"{event.id}\n")
        time.sleep(chance.random() * TICK_S)


class Topics(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES = ("worker", "worker", "consumer", "publisher")

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)
        if has_statements(self._app):
            with self._app.transaction() as tx:
                tx.execute("CREATE TABLE seen (subscriber TEXT, id TEXT)")
        events = int(os.environ.get("TOPIC_EVENTS", EVENTS))
        self._each = max(1, round(2 * events * 2 / kills / CALLS_MAX))

    def _let_work(self, calls: int) -> None:
        """Wait until handlers were called so often, but not for what nobody publishes any more."""
        path, until = self._folder / "calls", time.monotonic() + WORK_S_MAX
        enough = path.stat().st_size + calls * self._each
        while path.stat().st_size < enough and time.monotonic() < until:
            time.sleep(TICK_S)

    def _start(self, role: str) -> Any:  # noqa: ANN401  (a process)
        errors = self._folder / "stderr"
        return start("tests.kills.topics", role, str(self._folder), errors=errors)

    def _behind(self) -> int:
        stream = self._app.stream("topics")
        subscribers = [*map(group_of_task, TASKS), *GROUPS]
        return sum(lag.rows for name in subscribers for lag in stream.lag(name))

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while self._behind() or any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, f"events are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        app = self._app
        events = {event.id: event for event in app.stream("topics").read()}
        told = (self._folder / "published").read_text().split()
        faults = [f"the event {each} is lost" for each in told if each not in events]
        done = Counter(
            row.job for row in attempts(app.store, QUEUE, 2) if row.outcome == "done"
        )  # fmt: skip
        wanted = {job for name in TASKS for job in self._jobs(name, events)}
        faults += [f"the job {job} has ended {done[job]} times" for job in wanted if done[job] != 1]
        faults += [f"the job {job} is of no event" for job in done.keys() - wanted]
        lines = (self._folder / "read").read_text().splitlines()
        read = Counter(tuple(line.split()) for line in lines)
        rows = read
        if has_statements(app):
            with app.transaction() as tx:
                rows = Counter(tx.execute("SELECT subscriber, id FROM seen"))
        for name, pattern in GROUPS.items():
            for each, event in events.items():
                count, most = rows[name, each], 1 if has_statements(app) else sys.maxsize
                least = int(matches(pattern, event.topic))
                if not least <= count <= most * least:
                    faults.append(f"{name} got the event {each} {count} times")
        repeats = sum(read.values()) - len(read)
        app.close()
        return Report(self._kills, len(events), len(done), sum(rows.values()), repeats, faults)

    def _jobs(self, name: str, events: dict[str, Event]) -> list[str]:
        group = group_of_task(name)
        return [
            job_id_of(group, event.row.id).hex()
            for event in events.values()
            if matches(TASKS[name], event.topic)
        ]


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        role, folder = sys.argv[1], Path(sys.argv[2])
        app = app_in(folder)
        if role == "worker":
            app.run_worker([QUEUE], concurrency=4)
        elif role == "consumer":
            app.consume()
        else:
            publish(app, folder)
        return 0
    kills = int(os.environ.get("TOPIC_KILLS", KILLS))
    return reported(lambda folder, seed: Topics(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
