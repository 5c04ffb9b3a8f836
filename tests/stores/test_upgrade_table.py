"""What happens to jobs of one version of an application on workers of another.

Each row is one of the table in docs/how-to/upgrade.md.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dueline import Dueline, Job, JobFailed, Retry
from dueline.admin.health import examine
from dueline.core.lane import dead_queue, limits_of, read_key, task_of
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address
from tests.harness.deploys import PATIENCE_S, rows_of, until, working
from tests.harness.guarded_fields import checked_locks

TASK = "shop.send"


@dataclass
class Mail:
    to: str


@dataclass
class LongMail:
    to: str
    subject: str


@dataclass
class EasyMail:
    to: str
    subject: str = "hi"


def send(to: str) -> str:
    return f"to {to}"


def with_default(to: str, subject: str = "hi") -> str:
    return f"to {to}: {subject}"


def without_default(to: str, subject: str) -> str:
    return f"to {to}: {subject}"


def renamed(recipient: str) -> str:
    return f"to {recipient}"


def by_name(*, to: str) -> str:
    return f"to {to}"


def by_other_name(*, recipient: str) -> str:
    return f"to {recipient}"


def number(to: int) -> str:
    return f"to {to}"


def record(mail: Mail) -> str:
    return f"to {mail.to}"


def longer_record(mail: LongMail) -> str:
    return f"to {mail.to}: {mail.subject}"


def record_with_default(mail: EasyMail) -> str:
    return f"to {mail.to}: {mail.subject}"


Code = Callable[..., str] | None


def _plain(value: object) -> Callable[[Any], Job[str]]:
    return lambda task: task.enqueue(value)


class Row(NamedTuple):
    """A row of the table.

    Attributes:
      old, new: The task of each version; None for none.
      old_call, new_call: Enqueues a job of each version.
      old_result: Of a job of the old version, run by the new one; None if it waits for the old.
      new_result: Of a job of the new version, run by the old one; None if it waits for the new.
    """

    old: Code
    new: Code
    old_call: Callable[[Any], Job[str]]
    new_call: Callable[[Any], Job[str]]
    old_result: str | None
    new_result: str | None


_TWO = lambda task: task.enqueue("ann", "hello")  # noqa: E731
_ANN = _plain("ann")

ROWS = {
    "add an argument with a default": Row(send, with_default, _ANN, _TWO, "to ann: hi", None),
    "add an argument without a default": Row(send, without_default, _ANN, _TWO, None, None),
    "remove an argument with a default": Row(with_default, send, _TWO, _ANN, None, "to ann: hi"),
    "remove an argument without a default": Row(without_default, send, _TWO, _ANN, None, None),
    "rename an argument": Row(
        send, renamed, lambda task: task.enqueue(to="ann"),
        lambda task: task.enqueue(recipient="ann"), "to ann", "to ann",
    ),
    "rename an argument that is passed by name only": Row(
        by_name, by_other_name, lambda task: task.enqueue(to="ann"),
        lambda task: task.enqueue(recipient="ann"), None, None,
    ),
    "change the type of an argument": Row(send, number, _ANN, _plain(7), None, None),
    "add a field to a record": Row(
        record, longer_record, _plain(Mail("ann")), _plain(LongMail("ann", "hello")),
        None, "to ann",
    ),
    "add a field with a default to a record": Row(
        record, record_with_default, _plain(Mail("ann")), _plain(EasyMail("ann", "hello")),
        "to ann: hi", "to ann",
    ),
    "add or remove a task": Row(send, None, _ANN, _ANN, None, None),
}  # fmt: skip


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Make an empty store; give its address."""
    with checked_locks(), address(request.param, tmp_path) as made:
        yield made


class Versions:
    """Two versions of an application on one store."""

    def __init__(self, url: str) -> None:
        self.old, self.new = Dueline(url), Dueline(url)
        if url.startswith("memory"):
            self.new.__dict__["store"] = self.old.store

    def close(self) -> None:
        """Close both."""
        for app in (self.old, self.new):
            app.close()


@pytest.fixture
def versions(url: str) -> Iterator[Versions]:
    """Make two versions without tasks."""
    made = Versions(url)
    yield made
    made.close()


def _waits(app: Dueline, job: Job[str]) -> bool:
    (row,) = rows_of(app, [job])
    assert (row.errors, row.crashes) == (0, 0)
    return bool(task_of(row.lane))


def _meet(worker: Dueline, other: Dueline, job: Job[str], result: str | None) -> None:
    """Have a version meet a job of the other, and that come if it is needed."""
    with working(worker):
        if result is not None:
            assert job.result(timeout=PATIENCE_S) == result
            return
        until(lambda: _waits(other, job))
        fence = rows_of(other, [job])[0].fence
        until(lambda: job.explain().reason == "task unknown")  # after its first heartbeat
        text = job.explain().sentence
        assert f"task {TASK}" in text
        findings = [
            check.finding for check in examine(worker.engine).checks if TASK in check.finding
        ]
        assert len(findings) == 1, findings
        began_s = time.monotonic()
        with working(other):
            assert job.result(timeout=PATIENCE_S).startswith("to ")
        assert time.monotonic() - began_s < PATIENCE_S
        assert fence == 1, "a worker that cannot take a job claimed it again"


@pytest.mark.parametrize("change", ROWS)
def test_jobs_of_one_version_on_workers_of_the_other(versions: Versions, change: str) -> None:
    # O9
    row, (old, new) = ROWS[change], (versions.old, versions.new)
    for app, code in ((old, row.old), (new, row.new)):
        app.task(name="shop.other")(send)
        if code is not None:
            app.task(name=TASK)(code)
    if row.old is not None:
        _meet(new, old, row.old_call(old.task_named(TASK)), row.old_result)
    if row.new is not None:
        _meet(old, new, row.new_call(new.task_named(TASK)), row.new_result)
    assert not list(new.engine.jobs_of(dead_queue("default")))


def test_both_versions_share_the_jobs_of_each(versions: Versions) -> None:
    """Have three versions, of which two cannot take some jobs, and many jobs at once."""
    # O9
    old, new = versions.old, versions.new
    old.task(name=TASK)(send)
    new.task(name=TASK)(without_default)
    sent = [old.task_named(TASK).enqueue(f"a{n}") for n in range(20)]
    with working(old), working(new):
        sent += [new.task_named(TASK).enqueue(f"b{n}", "hello") for n in range(20)]
        sent += [old.task_named(TASK).using(priority=n % 3).enqueue(f"c{n}") for n in range(20)]
        results = [job.result(timeout=PATIENCE_S) for job in sent]
    assert results[0] == "to a0"
    assert results[20] == "to b0: hello"
    assert results[40] == "to c0"
    assert not list(new.engine.jobs_of(dead_queue("default")))


def test_a_job_that_no_version_takes_is_dead_after_the_wait(versions: Versions) -> None:
    # O9
    old, new = versions.old, versions.new
    old.queue("default", version_wait=timedelta(seconds=1))
    old.task(name=TASK)(send)
    new.task(name=TASK)(without_default)
    with working(old):
        job = new.task_named(TASK).enqueue("ann", "hello")
        until(lambda: _waits(old, job))
        (row,) = rows_of(old, [job])
        key = read_key(task_of(row.lane))
        assert row.at_us <= row.pos_us < key.until_us
        with pytest.raises(JobFailed, match=r"do not fit shop\.send.*able to take them for 1s"):
            job.result(timeout=PATIENCE_S)
        assert old.engine.time.latest_us() >= key.until_us
    (dead,) = old.engine.jobs_of(dead_queue("default"))
    assert dead.errors == 1
    job.retry()
    with working(new):
        assert job.result(timeout=PATIENCE_S) == "to ann: hello"


def test_a_job_waits_on_while_a_worker_could_take_it(versions: Versions) -> None:
    """Have a worker that could take a job, but runs another one until the wait is over."""
    # O9
    old, new = versions.old, versions.new
    old.queue("default", version_wait=timedelta(seconds=1))
    gate: list[bool] = []
    old.task(name=TASK)(send)
    new.task(name=TASK)(without_default)

    @new.task(name="shop.long")
    def long() -> None:
        until(lambda: bool(gate))

    with working(new):
        held = [long.enqueue() for _ in range(2)]
        until(lambda: {job.status for job in held} == {"running"})
        job = new.task_named(TASK).enqueue("ann", "hello")
        with working(old):
            until(lambda: _waits(old, job))
            first = read_key(task_of(rows_of(old, [job])[0].lane)).until_us
            until(lambda: read_key(task_of(rows_of(old, [job])[0].lane)).until_us > first)
            gate.append(True)
            assert job.result(timeout=PATIENCE_S) == "to ann: hello"


def test_without_a_wait_it_is_dead_at_once(versions: Versions) -> None:
    old, new = versions.old, versions.new
    old.queue("default", version_wait=0)
    old.task(name=TASK)(send)
    new.task(name=TASK)(without_default)
    with working(old):
        job = new.task_named(TASK).enqueue("ann", "hello")
        with pytest.raises(JobFailed, match=r"do not fit shop\.send"):
            job.result(timeout=PATIENCE_S)


def test_an_error_of_the_handler_is_none_of_its_arguments(versions: Versions) -> None:
    # O9
    app = versions.old
    other = app.task(name="shop.other")(number)

    @app.task(name=TASK, retry=Retry(attempts=1))
    def wrong(to: str) -> None:
        other.enqueue(to)  # type: ignore[arg-type]

    @app.task(name="shop.type", retry=Retry(attempts=1))
    def wrong_type(to: str) -> None:
        send(to, to)  # type: ignore[call-arg]

    with working(app):
        for job in (wrong.enqueue("ann"), wrong_type.enqueue("ann")):
            until(lambda job=job: job.status == "dead")  # type: ignore[misc]


def test_a_queue_is_added_and_removed(versions: Versions) -> None:
    # O9
    old, new = versions.old, versions.new
    old.task(name=TASK)(send)
    new.task(name=TASK, queue="mail")(send)
    with working(old):
        job = new.task_named(TASK).enqueue("ann")
        until(lambda: job.explain().reason == "no worker")
        with working(new):  # it serves the old queue too: no job stays behind
            before = old.task_named(TASK).enqueue("ben")
            ends = [sent.result(timeout=PATIENCE_S) for sent in (job, before)]
            assert ends == ["to ann", "to ben"]
    with working(new):
        assert old.task_named(TASK).enqueue("ben").result(timeout=PATIENCE_S) == "to ben"


def test_a_schedule_is_added_and_removed(versions: Versions) -> None:
    # O9
    old, new = versions.old, versions.new
    for app in (old, new):
        app.task(name="shop.other")(send)
    sent: list[float] = []

    @new.task(name=TASK)
    def often() -> None:
        sent.append(time.monotonic())

    new.schedule("often", often, every=timedelta(seconds=1))
    assert list(new.schedules.names()) == ["often"]  # stores it
    with working(old):  # it stores the jobs of the schedule, and leaves them
        until(lambda: any(task_of(row.lane) for row in old.engine.jobs_of("default")))
        with working(new):
            until(lambda: len(sent) >= 2)
    with working(old):  # the code no longer declares it: it goes on until it is removed
        assert [schedule.name for schedule in old.schedules.list()] == ["often"]
        old.schedules.remove("often")
        assert not old.schedules.list()


def test_a_limit_is_added_and_removed(versions: Versions) -> None:
    # O9
    old, new = versions.old, versions.new
    old.task(name=TASK)(send)
    new.semaphore("post", capacity=1)
    new.task(name=TASK, limits=["post"])(send)
    plain, limited = (app.task_named(TASK).enqueue("ann") for app in (old, new))
    assert [limits_of(row.lane) for row in rows_of(new, [plain, limited])] == [(), ("post",)]
    with working(old):  # the job keeps its limit, and a worker without it takes the permit
        assert [job.result(timeout=PATIENCE_S) for job in (plain, limited)] == ["to ann"] * 2
    again = old.task_named(TASK).enqueue("ben")
    with working(new):  # a job without the limit gets it
        assert again.result(timeout=PATIENCE_S) == "to ben"


PROGRAM = """
from dueline import Dueline

app = Dueline({url!r})


@app.task(name="shop.send")
def send(to: str) -> str:
    return f"to {{to}}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("url", LONG_ON_CASSANDRA, indirect=True)
def test_an_old_worker_is_killed_in_between(url: str, tmp_path: Path) -> None:
    """Kill a worker that moves jobs which it cannot take, then start the new version."""
    # O9
    (tmp_path / "old.py").write_text(PROGRAM.format(url=url), encoding="utf-8")
    new = Dueline(url)
    new.queue("default", lease=2)
    new.task(name=TASK)(without_default)
    jobs = [new.task_named(TASK).enqueue(f"a{n}", "hello") for n in range(50)]
    words = [sys.executable, "-m", "dueline", "worker", "old:app"]
    worker = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: any(task_of(row.lane) for row in rows_of(new, jobs)))
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    with working(new):
        results = [job.result(timeout=PATIENCE_S) for job in jobs]
    assert results == [f"to a{n}: hello" for n in range(50)]
    assert not list(new.engine.jobs_of(dead_queue("default")))
    new.close()


KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("url", LONG_ON_CASSANDRA, indirect=True)
def test_workers_of_both_versions_are_killed_again_and_again(url: str, tmp_path: Path) -> None:
    """Kill an old or a new worker each time, while jobs of both versions arrive."""
    # O9
    codes = {"old": "to: str", "new": "to: str, subject: str"}
    for name, parameters in codes.items():
        text = PROGRAM.format(url=url).replace("to: str", parameters)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    old, new = Dueline(url), Dueline(url)
    old.queue("default", lease=1)
    old.task(name=TASK)(send)
    new.task(name=TASK)(without_default)

    def start(name: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "dueline", "worker", f"{name}:app"]
        return subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)

    workers = {name: start(name) for name in codes}
    jobs: list[Job[str]] = []
    try:
        for turn in range(KILLS):
            for number in range(20):
                jobs.append(old.task_named(TASK).enqueue(f"{turn} {number}"))
                jobs.append(new.task_named(TASK).enqueue(f"{turn} {number}", "hello"))
            until(lambda: sum(job.status == "done" for job in jobs[-40:]) >= 10)
            name = ("old", "new")[turn % 2]
            workers[name].kill()
            workers[name].wait()
            workers[name] = start(name)
        results = [job.result(timeout=PATIENCE_S) for job in jobs]
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    assert {result.partition(" ")[0] for result in results} == {"to"}
    assert not list(new.engine.jobs_of(dead_queue("default")))
    old.close()
    new.close()
