"""Processes whose store's server answers nothing, or is not there when they start (R11)."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGTERM

import pytest

from dueline import Dueline
from dueline.core.errors import StoreUnavailable
from tests.harness.cassandra_node import Keyspaces, keyspaces_on_a_node
from tests.harness.postgres import Schemas, schemas
from tests.harness.relay import Relay, free_port, relay_to
from tests.harness.web import status_of

PATIENCE_S = 120.0
LEASE_S = 3
POSTGRES, CASSANDRA = "postgres", "cassandra"
PORTS = {POSTGRES: 5432, CASSANDRA: 9042}
TIMEOUTS = {POSTGRES: "timeout=1s", CASSANDRA: "timeout=2s"}
EACH = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in PORTS]

TASKS = f"""
from pathlib import Path

from dueline import Dueline

app = Dueline()
app.queue("default", lease={LEASE_S})
events = app.stream("events")


@app.task
def note(number: int) -> int:
    return number


@events.consumer("files")
def write(batch) -> None:
    Path("event").touch()


if __name__ == "__main__":
    raise SystemExit(128 + app.consume(drain=1))
"""


EMBEDDING = """
import signal
import sys
import threading

from tasks import app

signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
with app.worker(drain=1):
    threading.Event().wait()
"""


@pytest.fixture(scope="module")
def fresh() -> Iterator[Callable[[str], str]]:
    """Make empty stores."""
    with ExitStack() as stack:
        makers: dict[str, Schemas | Keyspaces] = {}

        def make(kind: str) -> str:
            if kind not in makers:
                if kind == POSTGRES:
                    makers[kind] = stack.enter_context(schemas())
                else:
                    makers[kind] = stack.enter_context(keyspaces_on_a_node())
            url = makers[kind].fresh()
            return url if kind == POSTGRES else url.partition("?")[0]

        yield make


@pytest.fixture
def url(fresh: Callable[[str], str], kind: str) -> str:
    return fresh(kind)


@pytest.fixture
def relay(kind: str, url: str) -> Iterator[Relay]:
    with relay_to(url, PORTS[kind]) as relay:
        yield relay


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    return tmp_path


def through(relay: Relay, url: str, kind: str) -> str:
    """Return the address behind a relay, with a short time limit."""
    return f"{relay.url(url)}{'&' if '?' in url else '?'}{TIMEOUTS[kind]}"


def patient(url: str) -> str:
    """Return an address by which new connections have a minute."""
    return f"{url}{'&' if '?' in url else '?'}connect_timeout=60"


@contextmanager
def process(folder: Path, store: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run Python in a folder, with its errors in the file `log`."""
    with (folder / "log").open("a") as log:
        running = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "DUELINE_STORE": store},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


WORKER = ("-m", "dueline", "worker", "tasks:app", "--drain", "1s")


def wait_for(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def says(folder: Path, text: str) -> Callable[[], bool]:
    return lambda: text in (folder / "log").read_text()


def expect_no_traceback(folder: Path) -> None:
    """Expect none of a thread or the program; those that the driver logs are indented."""
    text = (folder / "log").read_text()
    assert "Exception in thread" not in text
    assert "\nTraceback" not in f"\n{text}"


def run_one(url: str, number: int, *, patience_s: float = PATIENCE_S) -> None:
    """Have a worker that is there run a job."""
    app = Dueline(url)
    note = app.task(name="tasks.note")(lambda number: number)
    assert note.enqueue(number).result(timeout=patience_s) == number
    app.close()


@pytest.mark.parametrize(
    ("kind", "requests", "answers"),
    [
        pytest.param(kind, *which, marks=getattr(pytest.mark, kind))
        for kind in PORTS
        for which in ((True, True), (False, True), (True, False))
        if kind == POSTGRES or which == (True, True)
    ],
)
def test_a_worker_goes_on_when_its_connections_are_mute(
    folder: Path, relay: Relay, url: str, kind: str, *, requests: bool, answers: bool
) -> None:
    address = relay.url(url) if kind == POSTGRES else through(relay, url, kind)
    with process(folder, address, *WORKER) as worker:
        run_one(url, 1)
        assert relay.mute(requests=requests, answers=answers)
        run_one(url, 2)
        worker.send_signal(SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + SIGTERM


@pytest.mark.parametrize(
    ("kind", "is_hurried"),
    [
        pytest.param(POSTGRES, False, marks=pytest.mark.postgres),
        pytest.param(POSTGRES, True, marks=pytest.mark.postgres),
        pytest.param(CASSANDRA, False, marks=pytest.mark.cassandra),
    ],
)
def test_a_worker_whose_store_answers_nothing_can_be_stopped(
    folder: Path, relay: Relay, url: str, kind: str, *, is_hurried: bool
) -> None:
    """With a time limit that is longer than the test, so that no call returns."""
    address = f"{relay.url(url)}{'&' if '?' in url else '?'}timeout=10m"
    words = (*WORKER[:-1], "1h") if is_hurried else WORKER
    with process(folder, address, *words) as worker:
        run_one(url, 1)
        relay.mute(new=True)
        time.sleep(2)  # its calls are under way
        worker.send_signal(SIGTERM)
        if is_hurried:
            time.sleep(1)  # else they are one request
            worker.send_signal(SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + SIGTERM
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("what", ["worker", "consumer", "embedded"])
def test_what_starts_before_its_store_waits_for_it(
    folder: Path, url: str, kind: str, what: str
) -> None:
    port = free_port()
    with relay_to(url, PORTS[kind]) as relay:
        address = through(relay, url, kind).replace(f":{relay.port}/", f":{port}/")
    words = {"worker": WORKER, "consumer": ("tasks.py",), "embedded": ("embedding.py",)}[what]
    name = "consumer" if what == "consumer" else "worker"
    with process(folder, address, *words) as running:
        wait_for(says(folder, f"the {name} waits, because the store is unavailable"))
        with relay_to(url, PORTS[kind], own_port=port):
            if what != "consumer":
                run_one(url, 1)
            else:
                with_event(url)
                wait_for((folder / "event").exists)
            running.send_signal(SIGTERM)
            assert running.wait(PATIENCE_S) == 128 + SIGTERM
    expect_no_traceback(folder)


def with_event(url: str) -> None:
    app = Dueline(url)
    app.stream("events").append(b"1")
    app.close()


@pytest.mark.parametrize(
    ("kind", "is_mute"),
    [
        pytest.param(POSTGRES, False, marks=pytest.mark.postgres),
        pytest.param(POSTGRES, True, marks=pytest.mark.postgres),
        pytest.param(CASSANDRA, True, marks=pytest.mark.cassandra),
    ],
)
def test_what_waits_for_its_store_can_be_stopped(
    folder: Path, relay: Relay, url: str, kind: str, *, is_mute: bool
) -> None:
    address = through(relay, url, kind)
    if is_mute:
        relay.mute(new=True)
    else:
        relay.close()
    for words in (WORKER, ("tasks.py",), ("embedding.py",)):
        (folder / "log").write_text("")
        with process(folder, address, *words) as running:
            wait_for(says(folder, "because the store is unavailable"))
            running.send_signal(SIGTERM)
            assert running.wait(PATIENCE_S) == 128 + SIGTERM
        expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH[:1])
def test_a_burst_does_not_wait_for_its_store(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    relay.close()
    with process(folder, through(relay, url, kind), *WORKER, "--burst") as worker:
        assert worker.wait(PATIENCE_S) == 3
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH[:1])
def test_a_worker_goes_on_and_ends_when_answers_take_five_seconds(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    """Less than the default time limit, which follows from the default lease."""
    (folder / "tasks.py").write_text(TASKS.replace(f", lease={LEASE_S}", ""))
    with process(folder, relay.url(url), *WORKER) as worker:
        run_one(url, 1)
        relay.delay_s = 5.0
        time.sleep(12)  # two trips
        relay.delay_s = 0.0
        run_one(url, 2)
        relay.delay_s = 5.0
        worker.send_signal(SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + SIGTERM
    assert "unavailable" not in (folder / "log").read_text()
    expect_no_traceback(folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", EACH[:1])
def test_a_worker_runs_jobs_while_answers_take_five_seconds(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    """A job takes about twenty answers: those of a turn, of its claim and of its end."""
    (folder / "tasks.py").write_text(TASKS.replace(f", lease={LEASE_S}", ""))
    with process(folder, patient(relay.url(url)), *WORKER) as worker:
        run_one(url, 1)
        relay.delay_s = 5.0
        run_one(url, 2, patience_s=3 * PATIENCE_S)
        worker.send_signal(SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + SIGTERM
    assert "unavailable" not in (folder / "log").read_text()


@pytest.mark.parametrize("kind", EACH[:1])
def test_producers_go_on_when_answers_take_five_seconds(relay: Relay, url: str, kind: str) -> None:
    app = Dueline(relay.url(url))
    note = app.task(name="tasks.note")(lambda number: number)
    note.enqueue(1)
    relay.delay_s = 5.0
    job = note.enqueue(2)
    with pytest.raises(TimeoutError, match="is still ready"):
        job.result(timeout=1)
    relay.delay_s = 0.0
    assert job.status == "ready"
    app.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", EACH[:1])
def test_commands_end_when_answers_take_five_seconds(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    """A new connection takes five answers: more than its default time limit."""
    app = Dueline(url)
    job = app.task(name="tasks.note")(lambda number: number).enqueue(1)
    app.close()
    relay.delay_s = 5.0
    command = ("-m", "dueline", "jobs", "show", job.id)
    with process(folder, relay.url(url), *command) as running:
        assert running.wait(PATIENCE_S) == 3
    assert "connection timeout expired" in (folder / "log").read_text()
    with process(folder, patient(relay.url(url)), *command) as running:
        assert running.wait(PATIENCE_S) == 0
        assert job.id in (running.stdout.read() if running.stdout else "")
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH[1:])
def test_a_worker_with_wake_ups_goes_on_when_its_store_was_mute(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    with process(folder, f"{through(relay, url, kind)}&wake=127.0.0.1", *WORKER) as worker:
        run_one(url, 1)
        relay.mute(new=True)
        wait_for(says(folder, "the store is unavailable"))
        relay.heal()
        run_one(f"{url}?wake=127.0.0.1", 2)
        relay.mute(new=True)
        worker.send_signal(SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + SIGTERM
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH[1:])
def test_a_command_ends_by_the_default_time_limit(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    Dueline(url).close()
    relay.mute(new=True)
    with process(folder, relay.url(url), "-m", "dueline", "queues", "list") as running:
        assert running.wait(PATIENCE_S) == 3
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH)
def test_producers_and_commands_get_an_error(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    app = Dueline(through(relay, url, kind))
    note = app.task(name="tasks.note")(lambda number: number)
    note.enqueue(1)
    relay.mute(new=True)
    with pytest.raises(StoreUnavailable):
        note.enqueue(2)
    app.close()
    command = ("-m", "dueline", "queues", "resume", "default")
    with process(folder, through(relay, url, kind), *command) as running:
        assert running.wait(PATIENCE_S) == 3
    expect_no_traceback(folder)


@pytest.mark.parametrize("kind", EACH)
def test_the_dashboard_and_the_http_api_answer(
    folder: Path, relay: Relay, url: str, kind: str
) -> None:
    port = free_port()
    command = ("-m", "dueline", "web", "--port", str(port))
    with process(folder, through(relay, url, kind), *command) as web:
        wait_for(lambda: status_of(f"http://127.0.0.1:{port}/api/v1/queues") == 200)
        relay.mute(new=True)
        for path in ("api/v1/queues", "jobs"):
            page = f"http://127.0.0.1:{port}/{path}"
            wait_for(lambda page=page: status_of(page) == 503)  # type: ignore[misc]
        web.send_signal(SIGTERM)
        web.wait(PATIENCE_S)
