"""Alerts and checks of durable functions that no worker can continue (O13)."""

from typing import Any

import pytest

from dueline import DurableContext, Job
from dueline.admin.health import examine, is_ready
from dueline.coordination import notes
from dueline.core.clock import SECOND_US
from dueline.core.store import Delete, Put
from dueline.durable.log import Entry, Head
from dueline.foresight.alert_monitor import raised_alerts, watch_queues
from dueline.foresight.alerts import Alert
from dueline.jobs.function_list import partition_of
from dueline.testing.bench import AppOnBench


class Changing:
    """A function that waits after its first step, and whose code may change."""

    def __init__(self, bench: AppOnBench) -> None:
        """Declare it."""
        self.bench = bench
        self.first = "fetch"

        @bench.app.durable(name="load")
        def load(ctx: DurableContext) -> None:
            ctx.step(str, "x" * 10_000, name=self.first)
            ctx.wait_signal("go")

        self.task = load

    def begin(self) -> Job[Any]:
        """Run one until it waits."""
        job = self.task.enqueue()
        self.bench.drain(raises=False)
        return job

    def stop(self, *jobs: Job[Any]) -> None:
        """Change the code, and wake them."""
        self.first = "notify"
        for job in jobs:
            job.signal("go")
        self.bench.drain(raises=False)


def alerts(bench: AppOnBench) -> list[Alert]:
    """Have the maintenance leader judge the queues."""
    judged = watch_queues(bench.app.queues, None)
    bench.app.store.commit(notes.PARTITION, judged.puts)
    return raised_alerts(bench.app.engine)


def test_an_alert_is_raised_while_functions_are_stopped_and_ends_after(bench: AppOnBench) -> None:
    """Stop two functions, and mend the code."""
    changing = Changing(bench)
    jobs = [changing.begin(), changing.begin()]
    assert alerts(bench) == []
    changing.stop(*jobs)
    (alert,) = alerts(bench)
    condition = alert.condition
    assert (condition.kind, condition.subject) == ("stopped", "load")
    assert "No worker can continue 2 durable functions of load, the first for" in condition.sentence
    assert "call 1 was fetch, the code now calls notify" in condition.sentence
    assert condition.command == "dueline flows list --state stopped --name load"
    bench.clock.advance(minutes=20)
    bench.drain(raises=False)  # tried again, and stopped again
    assert [kept.since_us for kept in alerts(bench)] == [alert.since_us]
    changing.first = "fetch"
    bench.clock.advance(minutes=20)
    bench.drain()
    assert [job.status for job in jobs] == ["done", "done"]
    bench.clock.advance(minutes=2)
    assert alerts(bench) == []
    assert bench.app.store.read("durable-stopped/default", after=None, limit=10) == []


def test_doctor_and_readiness_name_stopped_functions(bench: AppOnBench) -> None:
    """Stop a function for longer than a ready job may wait."""
    changing = Changing(bench)
    changing.stop(changing.begin())
    checks = [check for check in examine(bench.app.engine).checks if check.name == "functions"]
    assert [check.verdict for check in checks] == ["warning"]
    assert "call 1 was fetch" in checks[0].finding
    assert "dueline flows list --state stopped" in checks[0].advice
    late = is_ready(bench.app.engine, max_age_us=300 * SECOND_US)
    assert not [check for check in late if check.name == "functions"]
    bench.clock.advance(minutes=6)
    late = is_ready(bench.app.engine, max_age_us=300 * SECOND_US)
    assert [check.verdict for check in late if check.name == "functions"] == ["bad"]


def damaged(bench: AppOnBench, job: Job[Any]) -> str:
    """Return what doctor says of the log of a function."""
    checks = examine(bench.app.engine).checks
    found = [check for check in checks if job.id in check.name]
    assert all(check.verdict == "bad" for check in found)
    return " | ".join(f"{check.finding} {check.advice}" for check in found)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("garbage", "00001"),
        ("log", "0 of 2 records"),
        ("value", "the value of its call 1, fetch, is missing"),
        ("newer", "kind 'sling'"),
    ],
)
def test_doctor_names_damaged_logs(bench: AppOnBench, what: str, said: str) -> None:
    """Damage the log of a function that waits, and let doctor read it."""
    changing = Changing(bench)
    job = changing.begin()
    assert damaged(bench, job) == ""
    store, place = bench.app.store, partition_of(job._id, 0)
    if what == "garbage":
        store.commit(place, (Put("00001", b"v" * 16, b"no record"),))
    elif what == "log":
        keys = [record.key for record in store.read(place, after=None, limit=10)]
        store.commit(place, [Delete(key) for key in keys])
    elif what == "value":
        values = store.read(f"{place}/values", after=None, limit=10)
        store.commit(f"{place}/values", [Delete(record.key) for record in values])
    else:
        store.commit(place, (Put("00002", b"v" * 16, Entry(Head("sling", "x")).to_bytes()),))
    assert said in damaged(bench, job)
