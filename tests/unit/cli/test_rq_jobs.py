"""`dueline import rq --jobs`: waiting jobs of the real RQ, on a real Redis (A8)."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
from redis import Redis
from rq import Callback, Queue, Repeat, Retry, SimpleWorker
from rq.serializers import JSONSerializer

from dueline import Dueline
from dueline.contrib import rq_jobs
from dueline.contrib.rq_jobs import HELD, HELD_US_MAX, ForeignJob, RqJobs
from dueline.core.errors import ConfigError
from dueline.core.job import Job
from tests.harness.redis import NAME, free_port
from tests.harness.servers import absent
from tests.harness.shell import Shell
from tools.redis import RedisError, Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]
KILLS_MIN = 3
LATER = datetime(2035, 5, 1, 12, 30, tzinfo=UTC)

APP = """
import os
from pathlib import Path
from dueline import Dueline

app = Dueline(os.environ["SHOP_STORE"])


@app.task(name="old.send", queue="mail")
def send(to: str, copies: int = 1) -> str:
    with Path("ran").open("a") as file:
        file.write(f"{to}\\n")
    return to


@app.task(name="shop.once", unique="one", queue="mail")
def once() -> None: ...
"""

OLD = """
import time
from pathlib import Path


def send(to, copies=1):
    time.sleep(0.02)
    with Path("ran-by-rq").open("a") as file:
        file.write(f"{to}\\n")


class Mailer:
    def send(self):
        pass


def once(): ...
def report(*_, **__): ...
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server("redis", tmp_path_factory.mktemp("rq"), port=free_port())
    try:
        made.start()
    except RedisError as error:
        absent(NAME, str(error))
    yield made
    made.kill()


@pytest.fixture
def redis(server: Server) -> Iterator[Redis]:
    with Redis.from_url(server.url) as connection:
        connection.flushall()
        yield connection


@pytest.fixture(params=["on the same Redis", "in a file"])
def folder(
    request: pytest.FixtureRequest, server: Server, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """Make a folder with the old functions, and the application."""
    is_file = request.param == "in a file"
    url = f"sqlite:///{shell.folder}/jobs.db" if is_file else server.url
    monkeypatch.setenv("SHOP_STORE", url)
    for name, text in {"old": OLD, "shop": APP}.items():
        (shell.folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(shell.folder))
    monkeypatch.chdir(shell.folder)
    return shell


@pytest.fixture
def app(folder: Shell) -> Iterator[Dueline]:
    made: Dueline = import_module("shop").app
    yield made
    made.close()


def url_of(redis: Redis) -> str:
    return "redis://{host}:{port}/{db}".format(**redis.get_connection_kwargs())


def moved(url: str, app: Dueline, *, apply: bool = True) -> list[ForeignJob]:
    return list(RqJobs(url, {}, app).found(apply=apply))


def ran(folder: Shell) -> list[str]:
    return [to for path in folder.folder.glob("ran*") for to in path.read_text().split()]


def finish(app: Dueline, queue: Queue) -> None:
    """Run what dueline and RQ have."""
    app.run_worker(burst=True, concurrency=1)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    SimpleWorker([queue], connection=queue.connection).work(burst=True, logging_level="WARNING")
    for number, handler in handlers.items():  # RQ leaves its own
        signal.signal(number, handler)


def test_waiting_and_scheduled_jobs_are_shown_and_moved(
    server: Server, redis: Redis, folder: Shell, app: Dueline
) -> None:
    mail = Queue("mail", connection=redis)
    for number in range(5):
        mail.enqueue("old.send", f"to{number}", result_ttl=500)
    Queue("mail", connection=redis, serializer=JSONSerializer).enqueue("old.send", "json", copies=2)
    mail.enqueue_at(LATER, "old.send", to="later")
    words = ("--app", "shop:app", "import", "rq", server.url, "--jobs", "-o", "json")
    shown = folder(*words)
    assert shown.code == 0
    assert [
        (group["state"], group["task"], group["jobs"], group["verdict"]) for group in shown.data
    ] == [
        ("waiting", "old.send", 6, "maps"),
        ("scheduled", "old.send", 1, "maps"),
    ]
    assert len(mail) == 6
    assert folder(*words, "--apply").code == 0
    assert len(mail) == len(mail.scheduled_job_registry) == 0
    assert not list(redis.scan_iter("rq:job:*"))
    finish(app, mail)
    assert ran(folder) == [*(f"to{number}" for number in range(5)), "json"]
    (later,) = app.queues.engine.jobs_of("mail")
    assert datetime.fromtimestamp(later.due_us / 1e6, UTC) == LATER
    assert "has no waiting jobs" in folder(*words, "--apply").err


def test_what_cannot_be_moved_is_named_and_stays(
    server: Server, redis: Redis, folder: Shell, app: Dueline
) -> None:
    mail = Queue("mail", connection=redis)
    first = mail.enqueue("old.send", "first")
    mail.enqueue("old.send", "second", depends_on=first)
    mail.enqueue("old.report")
    mail.enqueue("old.send", Path("of a class"))
    mail.enqueue("old.send", 7)
    mail.enqueue(import_module("old").Mailer().send)
    method = mail.enqueue("old.send", "x")
    redis.hset(f"rq:job:{method.id}", "data", b'["old.send", "an object", ["x"], {}]')
    mail.enqueue("shop.once")
    mail.enqueue("old.send", "x", on_success=Callback("old.report"))
    mail.enqueue("old.send", "x", repeat=Repeat(times=2, interval=5))
    broken = mail.enqueue("old.send", "x")
    redis.hset(f"rq:job:{broken.id}", "data", b"no pickle")
    gone = mail.enqueue("old.send", "x")
    redis.delete(f"rq:job:{gone.id}")
    mail.enqueue("old.send", "noted", job_timeout=60, retry=Retry(max=2), meta={"a": 1}, ttl=600)
    (noted,) = (job for job in moved(server.url, app, apply=False) if job.verdict == "maps")
    assert noted.finding == (
        "@app.task(timeout=) of the task, @app.task(retry=) of the task, without its meta"
    )
    jobs = moved(server.url, app)
    refused = [job.finding for job in jobs if job.verdict == "refused"]
    for part, finding in zip(
        (
            "Other jobs wait for it", "old.report", "pathlib.", "`to`", "old.Mailer", "method",
            "unique key", "callbacks", "repetitions", "cannot be read", "has expired in RQ",
            "waits for another",
        ),
        refused, strict=True,
    ):  # fmt: skip
        assert part in finding, finding
    assert [(job.verdict, job.task) for job in jobs if job.verdict != "refused"] == [
        ("moved", "old.send")
    ]
    assert len(mail) == 11
    (row,) = app.queues.engine.jobs_of("mail")
    assert b"expires" in row.opts


def test_no_code_runs_that_a_pickle_names(
    server: Server, redis: Redis, app: Dueline, tmp_path: Path
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path}/evil",)

    Queue("mail", connection=redis).enqueue("old.send", Evil())
    (job,) = moved(server.url, app)
    assert "system" in job.finding
    assert not (tmp_path / "evil").exists()


def test_names_are_mapped_and_without_an_application_nothing_is_checked(
    server: Server, redis: Redis, folder: Shell
) -> None:
    Queue("mail", connection=redis).enqueue("older.post", 7)
    words = ("import", "rq", server.url, "--jobs", "--task", "older.post=old.send", "-o", "json")
    shown = folder(*words)
    assert (shown.code, shown.data[0]["task"], shown.data[0]["verdict"]) == (0, "old.send", "maps")
    assert "not checked" in shown.err
    shown = folder("--app", "shop:app", *words)
    assert (shown.code, "to" in shown.data[0]["finding"]) == (5, True)


def test_a_redis_that_does_not_answer_is_named_without_its_password(folder: Shell) -> None:
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    shown = folder("--app", "shop:app", "import", "rq", url, "--jobs")
    assert (shown.code, "secret" in shown.err) == (3, False)


@pytest.mark.parametrize("step", ["taken", "stored", "stored and run"])
def test_an_import_that_was_killed_is_finished_by_the_next_one(
    redis: Redis, folder: Shell, app: Dueline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    mail, url = Queue("mail", connection=redis), url_of(redis)
    jobs = [f"to{number}" for number in range(rq_jobs.BATCH + 5)]
    for to in jobs:
        mail.enqueue("old.send", to)
    again = app.queues.enqueue_again

    def killed(rows: Sequence[Job]) -> None:
        if step != "taken":
            again(rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(app.queues, "enqueue_again", killed)
        with pytest.raises(KeyboardInterrupt):
            moved(url, app)
    if step == "stored and run":
        finish(app, mail)
    moved(url, app)
    finish(app, mail)
    assert Counter(ran(folder)) == Counter(jobs)
    assert not redis.exists(HELD)


def test_what_was_taken_a_day_ago_is_named(
    server: Server, redis: Redis, app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    Queue("mail", connection=redis).enqueue("old.send", "ann")
    source = RqJobs(server.url, {}, app)
    monkeypatch.setattr(source, "_store_held", lambda _: iter(()))
    list(source.found(apply=True))
    assert redis.hlen(HELD) == 1
    clock_us = app.store.clock_us
    monkeypatch.setattr(app.store, "clock_us", lambda: clock_us() + HELD_US_MAX)
    (job,) = moved(server.url, app)
    assert (job.verdict, "jobs show" in job.finding) == ("unknown", True)
    with pytest.raises(ConfigError, match="was interrupted"):
        moved(server.url, Dueline("memory://"))


@pytest.mark.long
def test_imports_that_are_killed_lose_and_double_nothing(
    server: Server, redis: Redis, folder: Shell, app: Dueline
) -> None:
    mail = Queue("mail", connection=redis)
    jobs = [f"to{number}" for number in range(1500)]
    mail.enqueue_many([Queue.prepare_data("old.send", (to,)) for to in jobs])
    command = [sys.executable, "-m", "dueline", "--app", "shop:app", "import", "rq", server.url,
               "--jobs", "--apply"]  # fmt: skip
    worker = subprocess.Popen([sys.executable, "-m", "dueline", "worker", "shop:app"])
    rq = str(Path(sys.executable).parent / "rq")
    old = subprocess.Popen([rq, "worker", "mail", "--url", server.url, "-w", "rq.SimpleWorker"])
    try:
        kills = 0
        while len(mail):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while not (is_held := redis.exists(HELD)) and process.poll() is None:
                pass
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += is_held
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        old.terminate()
        old.wait()
        worker.terminate()
        worker.wait()
    finish(app, mail)
    assert Counter(ran(folder)) == Counter(jobs)
    assert len(list(folder.folder.glob("ran*"))) == 2
    assert kills > KILLS_MIN
