"""Whatever code of the application raises, workers go on and no job stays behind."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dueline import BadInput, Batch, Dueline, NotFound
from dueline.api.signals import SAME_REQUEST_S, passed_on
from dueline.tasks.hooks import NAMES, Hooks
from tests.harness import hostile
from tests.harness.hostile import KINDS, URL_VARIABLE, Doc, Key, build

SLOTS = 2
HANG_S = 30.0
ROOT = Path(__file__).parents[3]

ERRORS = {
    "text": "NoText",
    "shape": "ValueError",
    "wait": "NoWait",
    "notes": "NoNotes",
    "class": "NoClass",
    "condition": "Asked",
}
"""What handlers raise whose errors raise when they are asked for something."""

GONE = ("gone", "", 0)
HARMLESS = ("callback", "batch_key")
"""Places at which what is raised fails no job."""

pytestmark = pytest.mark.memory


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """Take the log as a worker writes it, and show none of it."""
    logger, text = logging.getLogger("dueline"), io.StringIO()
    handler = logging.StreamHandler(text)
    logger.addHandler(handler)
    logger.propagate = False
    yield text
    logger.propagate = True
    logger.removeHandler(handler)


@contextmanager
def ended_if_it_hangs() -> Iterator[None]:
    """End a worker in this thread that does not end by itself."""

    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SAME_REQUEST_S)
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(HANG_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


EXPIRES_S = 0.2


def put(app: Dueline) -> Mapping[str, str]:
    """Enqueue as many bad jobs of each kind as there are slots, and a good one after them."""
    job_ids: dict[str, str] = {}
    for name in sorted(app.tasks):
        task = app.task_named(name).using()
        if name.startswith("on "):
            task = task.using(expires=EXPIRES_S) if "expired" in name else task
            job_ids |= {f"{name} {number}": task.enqueue().id for number in range(SLOTS)}
            continue
        task = task.using(limits=[]) if "limit" in name else task
        for kind in [*KINDS, ""]:
            what = Doc(Key(kind)) if name == "batch_key" else Key(kind) if name == "limit" else kind
            job_ids |= {f"{name}/{kind} {number}": task.enqueue(what).id for number in range(SLOTS)}
    time.sleep(EXPIRES_S)  # until those have expired that are to
    return job_ids


def wanted(place: str) -> tuple[str, str, int]:
    """Tell how a job ends: its state, the class of its error, and how often it failed."""
    task, _, kind = place.rpartition(" ")[0].partition("/")
    if task in ("on retry", "on dead"):
        return "dead", "ValueError", 2
    if task.startswith("on "):
        name = task.removeprefix("on ")
        return name if name in ("cancelled", "expired") else "done", "", 0
    if not kind or task in HARMLESS:
        return "done", "", 0
    if task == "object":  # a result that cannot be stored
        return "dead", "BadInput", 1
    if task in ERRORS:
        return "dead", ERRORS[task], 2
    return "dead", kind, 2 if issubclass(KINDS[kind], Exception) else 1


def seen(app: Dueline, jobs: Mapping[str, str]) -> Mapping[str, tuple[str, str, int]]:
    """Tell how jobs ended."""
    ends = {}
    for place, job_id in jobs.items():
        try:
            view = app.queues.find(app.job(job_id)._id)
        except NotFound:
            ends[place] = GONE
            continue
        ends[place] = (view.status, "", 0)
        if view.status == "dead":
            assert view.row is not None
            ends[place] = ("dead", re.split(r"\W", view.row.error)[0], view.row.errors)
    return ends


@pytest.mark.long
@pytest.mark.parametrize("keep", [3600, 0])
@pytest.mark.parametrize("plain", [True, False])
def test_whatever_code_raises_other_jobs_run_and_each_ends(*, plain: bool, keep: float) -> None:
    with closing(build("memory://", plain=plain, keep=keep)) as app:
        jobs = put(app)
        with ended_if_it_hangs():
            assert app.run_worker(burst=True, concurrency=SLOTS, monitor=False) is None
        expected = {place: wanted(place) for place in jobs}
        if not keep:  # of jobs that did not die nothing is left, and no result is looked at
            expected = {
                place: end if end[0] == "dead" and "object" not in place else GONE
                for place, end in expected.items()
            }
        assert seen(app, jobs) == expected


@pytest.mark.long
@pytest.mark.sqlite
def test_whatever_code_raises_in_child_processes_other_jobs_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db?synchronous=NORMAL"
    with closing(build(url)) as app:
        jobs = put(app)
        command = [
            *(sys.executable, "-m", "dueline", "worker", "tests.harness.hostile:app", "--burst"),
            *("--processes", "2", "-c", str(SLOTS), "--no-monitor"),
        ]
        environment = os.environ | {URL_VARIABLE: url}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
        ) as worker:
            try:
                assert worker.wait(HANG_S) == 0
            finally:
                worker.kill()
        assert seen(app, jobs) == {place: wanted(place) for place in jobs}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_hook_raises_the_others_are_called(kind: str) -> None:
    hooks = Hooks()
    called: list[object] = []
    for name in NAMES:
        hooks.on(name)(hostile.fail)
        hooks.on(name)(called.append)
    with passed_on(lambda _: None):
        for name in set(NAMES) - {"before_enqueue"}:
            hooks.call(name, kind)
    assert len(called) == len(NAMES) - 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_codec_raises_a_call_is_refused(kind: str) -> None:
    with closing(build("memory://")) as app, passed_on(lambda _: None):
        app.task(name="writes", codec="sealed")(lambda *_words: None)
        with pytest.raises(BadInput, match=f"The codec sealed cannot write.*{kind}"):
            app.task_named("writes").enqueue(kind, "encode")
        assert list(app.queues.engine.lanes_of("default")) == []


def test_a_schedule_goes_on_whatever_its_job_raises() -> None:
    with closing(build("memory://")) as app:
        jobs = {}
        for kind in KINDS:
            name = kind.lower()
            app.schedule(name, app.task_named("sealed"), [kind], every=3600)
            jobs[f"sealed/{kind} 0"] = app.schedules.trigger(name).id
        with ended_if_it_hangs():
            assert app.run_worker(burst=True, concurrency=SLOTS) is None
        assert seen(app, jobs) == {place: wanted(place) for place in jobs}
        assert all(app.schedules.next(kind.lower()) for kind in KINDS)


def test_ctrl_c_ends_a_worker_and_what_code_raises_does_not() -> None:
    heard: list[str] = []
    with closing(Dueline("memory://")) as app:

        @app.task(name="quiet")
        def quiet(word: str) -> None:
            if word == "stop":
                os.kill(os.getpid(), signal.SIGINT)

        @app.on("done")
        def hear(event: object) -> None:  # in the main thread
            heard.append("done")
            raise KeyboardInterrupt

        app.task_named("quiet").enqueue_many([("go on",), ("stop",)])
        with ended_if_it_hangs():
            assert app.run_worker(concurrency=1) == signal.SIGINT
    assert heard == ["done", "done"]


def test_ctrl_c_passes_through_hooks_of_a_caller() -> None:
    with closing(Dueline("memory://")) as app:
        app.task(name="quiet")(lambda: None)
        app.on("after_enqueue")(lambda _: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            app.task_named("quiet").enqueue()


def test_a_consumer_continues_after_any_exception_of_its_handler() -> None:
    handled: set[str] = set()
    seen_before: set[str] = set()
    words = [f"{word} {kind}" for word in ("always", "once", "never") for kind in KINDS]
    bad = {word for word in words if word.startswith("always")}
    with closing(Dueline("memory://")) as app:
        events = app.stream("events", shards=4)

        @events.consumer("group", batch=2, park_after=2, lease=30)
        def handle(batch: Batch) -> None:
            for event in batch.events:
                word, _, kind = event.value.partition(" ")
                if word == "always" or (word == "once" and event.id not in seen_before):
                    seen_before.add(event.id)
                    hostile.fail(kind)
            handled.update(event.value for event in batch.events)

        events.append_many([(word, word) for word in words])
        give_up_s = time.monotonic() + HANG_S
        with app.consuming(threads=4):
            while len(handled) + len(events.parked("group")) < len(words):
                assert time.monotonic() < give_up_s
                time.sleep(0.02)
        assert handled == set(words) - bad
        assert {event.value for event in events.parked("group")} == bad
