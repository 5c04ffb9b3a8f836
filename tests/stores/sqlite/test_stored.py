"""A queue file that an earlier version made, worked to its end by this one."""

import gzip
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dueline import Batch, Context, Duplicate
from dueline.core.clock import SECOND_US
from dueline.jobs.history import attempts
from tests.harness.clocks import HandClock
from tests.stores.sqlite.stored import make

FOLDER = Path(make.__file__).parent
QUEUES = [*make.QUEUES, "held"]
HOUR_S = 3600
HOURS = 3
"""Hours until the last job of the file is due, and one more."""

READ_S_MAX = 60.0


@dataclass
class Successor:
    """This version, on a copy of the file.

    made: What the earlier version knew of the file. clock: Stands where the file was left.
    ran: Names that handlers were called with. attempts: Number of the attempt, by name.
    """

    url: str
    made: dict[str, Any]
    ran: list[str] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Connect at the instant at which the file was left."""
        self.clock = HandClock(self.made["until_us"])
        self.app = make.application(self.url, self._act, clock=self.clock)

    def _act(self, context: Context, name: str) -> None:
        self.ran.append(name)
        self.attempts[name] = context.attempt

    def statuses(self, prefix: str) -> Counter[str]:
        """Count jobs whose names begin so, by state."""
        jobs = self.made["jobs"].items()
        return Counter(self.app.job(job).status for name, job in jobs if name.startswith(prefix))

    def work(self, hours: int) -> None:
        """Run what is due now and at the end of each hour."""
        for _ in range(hours):
            self.app.run_worker(QUEUES, burst=True, concurrency=4)
            self.clock.advance(HOUR_S)

    def outcomes(self) -> dict[str, list[str]]:
        """List the outcomes of a job's attempts in order, by id, from history."""
        ends: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for queue, shards in (("mail", 1), ("images", 2), ("held", 1)):
            for attempt in attempts(self.app.store, queue, shards):
                ends[attempt.job].append((attempt.ended_us, attempt.outcome))
        return {job: [outcome for _, outcome in sorted(outcomes)] for job, outcomes in ends.items()}

    def read(self, group: str, count: int) -> list[tuple[str, int]]:
        """Consume as a group until there are so many events; return their keys and values."""
        stream = self.app.stream("orders")
        seen: list[tuple[str, int]] = []

        @stream.consumer(group, batch=4, lease=2)
        def handle(batch: Batch) -> None:
            seen.extend((str(event.key), event.value) for event in batch.events)

        give_up_s = time.monotonic() + READ_S_MAX
        with self.app.consuming([f"orders/{group}"]):
            while time.monotonic() < give_up_s and (
                len(seen) < count or any(lag.rows for lag in stream.lag(group))
            ):
                time.sleep(0.01)
        return seen


@pytest.fixture
def successor(tmp_path: Path) -> Iterator[Successor]:
    path = tmp_path / "queue.db"
    path.write_bytes(gzip.decompress((FOLDER / "queue.db.gz").read_bytes()))
    path.chmod(0o600)
    made = json.loads((FOLDER / "made.json").read_text("utf-8"))
    successor = Successor(f"sqlite:///{path}", made)
    yield successor
    successor.app.close()


@pytest.mark.sqlite
def test_what_an_earlier_version_stored_is_shown(successor: Successor) -> None:
    app = successor.app
    assert successor.statuses("done") == {"done": 2}
    assert successor.statuses("flaky") == {"retrying": 2}
    assert successor.statuses("broken") == {"dead": 2}
    assert successor.statuses("paced") == {"done": 2, "ready": 3}
    assert successor.statuses("crash") == {"running": 2}
    assert successor.statuses("waiting") == {"ready": 12}
    assert successor.statuses("later") == {"scheduled": 2}
    assert successor.statuses("held") == {"ready": 3}

    assert app.job(successor.made["jobs"]["done-1"]).result(timeout=0) == "DONE-1"
    assert app.job(successor.made["jobs"]["later-1"]).tags == ("shown",)
    assert "paused" in str(app.job(successor.made["jobs"]["held-1"]).explain())
    unique = app.task_named("stored.plain").using(unique="only")
    with pytest.raises(Duplicate):
        unique.enqueue("unique-2")

    assert {name for _, name in app.flows()} == {"crashed", "waiting"}
    left = {name: app.flow(flow).progress.left for name, flow in successor.made["flows"].items()}
    assert left == {"crashed": 2, "waiting": 2}
    assert app.schedules.names() == ["ticks"]
    stream = app.stream("orders")
    assert stream.groups() == ["billing", "shipping"]
    assert [event.key for event in stream.parked("billing")] == [make.POISON] * 4
    assert len(list(stream.read())) == make.EVENTS


@pytest.mark.sqlite
def test_jobs_of_an_earlier_version_end_once_each(successor: Successor) -> None:
    app, jobs = successor.app, successor.made["jobs"]
    before = successor.outcomes()
    assert before[jobs["done-1"]] == ["done"]
    assert before[jobs["flaky-1"]] == ["retried"]
    assert before[jobs["broken-1"]] == ["dead"]

    successor.work(HOURS)
    assert successor.statuses("held") == {"ready": 3}
    app.resume("held")
    app.resume("mail", tenant="cy")
    for name in ("broken-1", "broken-2"):
        app.job(jobs[name]).retry()
    successor.work(1)

    kept = {name for name in jobs if not name.startswith("held") or name == "held-3"}
    assert {app.job(jobs[name]).status for name in kept} == {"done"}
    over = {name for name in jobs if "done" in before.get(jobs[name], ())}
    ran = Counter(name for name in successor.ran if name in jobs)
    assert ran == dict.fromkeys(set(jobs) - over, 1)
    assert successor.attempts["flaky-1"] == 2

    after = successor.outcomes()
    assert all(after[job][: len(outcomes)] == outcomes for job, outcomes in before.items())
    ends = {name: after[job] for name, job in jobs.items()}
    expected = {name: ["done"] for name in jobs}
    expected |= {f"flaky-{number}": ["retried", "done"] for number in (1, 2)}
    expected |= {f"crash-{number}": ["crashed", "done"] for number in (1, 2)}
    expected |= {f"broken-{number}": ["dead", "done"] for number in (1, 2)}
    assert ends == expected


@pytest.mark.sqlite
def test_workflows_of_an_earlier_version_end(successor: Successor) -> None:
    flows = {name: successor.app.flow(flow) for name, flow in successor.made["flows"].items()}
    successor.work(2)
    assert flows["crashed"].result(timeout=0) == [["FIRST", "crash-3"], "last"]
    assert flows["waiting"].status == "running"
    flows["waiting"].signal("go", "now")
    successor.work(2)
    assert flows["waiting"].result(timeout=0) == ["now", "ended"]
    assert flows["waiting"].step(2).result(timeout=0) == [["LEFT", "RIGHT"], "joined"]
    steps = Counter(name for name in successor.ran if name in ("crash-3", "last", "ended"))
    assert steps == {"crash-3": 1, "last": 1, "ended": 1}
    assert not {"first", "left", "right", "joined"} & set(successor.ran)


@pytest.mark.sqlite
def test_a_schedule_of_an_earlier_version_goes_on(successor: Successor) -> None:
    successor.work(2)
    due_us = sorted(
        attempt.due_us
        for attempt in attempts(successor.app.store, "mail", 1)
        if attempt.tenant == "clock" and attempt.outcome == "done"
    )
    assert len(due_us) == successor.ran.count("tick") == HOUR_S // make.TICK_S
    assert {later - former for former, later in pairwise(due_us)} == {make.TICK_S * SECOND_US}


@pytest.mark.sqlite
def test_groups_of_an_earlier_version_read_a_stream_to_its_end(successor: Successor) -> None:
    stream, handled = successor.app.stream("orders"), successor.made["handled"]
    successor.clock.advance(HOUR_S)
    everything = list(range(make.EVENTS))

    shipped = successor.read("shipping", make.EVENTS - len(handled["shipping"]))
    assert sorted(handled["shipping"] + [value for _, value in shipped]) == everything

    stream.unpark("billing", key=make.POISON)
    billed = successor.read("billing", make.EVENTS - len(handled["billing"]))
    assert sorted(handled["billing"] + [value for _, value in billed]) == everything
    assert stream.parked("billing") == []
    for events in (shipped, billed):
        for number in range(make.KEYS):
            values = [value for key, value in events if key == f"key-{number}"]
            assert values == sorted(values)
