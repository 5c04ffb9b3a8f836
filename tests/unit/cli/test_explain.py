"""`dueline jobs explain` in each situation, beside real workers (V3, V4)."""

import asyncio
import importlib.util
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dueline import Dueline
from dueline.api.job_handle import Job
from dueline.coordination.worker_registry import present
from dueline.jobs.explanation import Explanation
from tests.harness.forked import Process
from tests.harness.shell import STORE, WAIT_S, Shell

APP = """
import time
from pathlib import Path

from dueline import BatchOptions, Call, Context, Dueline, Retry, Snooze, Throttled
from dueline import pipeline, wait_for

app = Dueline("sqlite:///jobs.db?synchronous=NORMAL")
app.queue("aging", aging=0.1)
app.queue("once", deliver="at_most_once")


@app.task(name="hold")
def hold(name: str) -> None:
    with open("ran", "a") as file:
        file.write(f"{name}\\n")
    while not Path(f"go-{name}").exists():
        time.sleep(0.01)


@app.task(name="note")
def note(name: str) -> None:
    with open("ran", "a") as file:
        file.write(f"{name}\\n")


@app.task(name="gather", batch=BatchOptions(size=50, within=600))
def gather(calls: list[Call[str]]) -> None:
    pass


@app.task(name="doze", retry=Retry(base=0))
def doze(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise OSError("no route")
    raise Snooze(600)


@app.task(name="flaky", retry=Retry(attempts=3, base=1e6, cap=1e6))
def flaky() -> None:
    raise TimeoutError("busy")


@app.task(name="fail", retry=Retry(attempts=1))
def fail() -> None:
    raise ValueError("no")


@app.task(name="limited", limits=["host"])
def limited(name: str) -> None:
    with open("ran", "a") as file:
        file.write(f"{name}\\n")
    time.sleep(600)


@app.task(name="closing", limits=["door"])
def closing() -> None:
    raise Throttled(600)
"""


class Scene:
    """A folder with an app, its workers, and what is said of its jobs."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        (shell.folder / "scene.py").write_text(APP)
        spec = importlib.util.spec_from_file_location("scene", shell.folder / "scene.py")
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.app: Dueline = self.module.app
        self._workers: list[Process] = []

    def worker(self, *words: str) -> Process:
        """Start a worker, and wait until it is there."""
        count = len(present(self.app.store))
        process = self.spawn(*words)
        self.until(lambda: len(present(self.app.store)) > count)
        return process

    def spawn(self, *words: str) -> Process:
        """Start a worker."""
        process = self.shell.spawn("worker", "scene:app", *words)
        self._workers.append(process)
        return process

    def busy(self, name: str, queue: str = "default") -> Job[Any]:
        """Have a worker run a job until `go`."""
        job: Job[Any] = self.module.hold.using(queue=queue).enqueue(name)
        self.until(lambda: name in self.ran())
        self.until(lambda: job.explain().reason == "running")
        return job

    def go(self, name: str) -> None:
        (self.shell.folder / f"go-{name}").touch()

    def ran(self) -> Sequence[str]:
        path = self.shell.folder / "ran"
        return path.read_text().split() if path.exists() else []

    def until(self, is_so: Callable[[], object]) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < give_up_s, "it never came to be"
            time.sleep(0.02)

    def why(self, job: Job[Any], reason: str) -> Explanation:
        """Explain a job, in Python and by the command, which say the same."""
        explanation = job.explain()
        assert explanation.reason == reason, explanation
        answer = self.shell("--store", STORE, "jobs", "explain", job.id, "-o", "json")
        assert answer.data["reason"] == reason
        assert answer.data["sentence"].split()[:4] == str(explanation).split()[:4]
        return explanation

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()
        self.app.close()


@pytest.fixture
def scene(shell: Shell) -> Iterator[Scene]:
    made = Scene(shell)
    yield made
    made.close()


# --- the place in the queue -----------------------------------------------------------------------


def test_a_job_that_has_aged_stands_before_more_urgent_ones(scene: Scene) -> None:
    scene.worker("-q", "aging", "-c", "1")
    scene.busy("first", "aging")
    note = scene.module.note
    old = note.using(queue="aging").enqueue("old")
    time.sleep(0.6)
    for number in range(5):
        note.using(queue="aging", priority=2).enqueue(f"new-{number}")
    assert scene.why(old, "waiting").facts["position"] == 1
    scene.go("first")
    scene.until(lambda: len(scene.ran()) == 7)
    assert scene.ran()[1] == "old"


def test_a_tenant_with_one_job_does_not_wait_for_all_of_another(scene: Scene) -> None:
    scene.worker("-c", "1")
    scene.busy("first")
    note = scene.module.note
    note.using(tenant="a").enqueue_many([(f"a-{number}",) for number in range(300)])
    job = note.using(tenant="b").enqueue("b")
    explanation = scene.why(job, "waiting")
    assert explanation.facts["position"] == 2
    assert "at position 2 of the queue default, where others take turns" in str(explanation)
    scene.go("first")
    scene.until(lambda: "b" in scene.ran())
    assert scene.ran().index("b") in (1, 2)


def test_a_job_waits_for_the_slot_that_its_queue_has(scene: Scene) -> None:
    scene.worker("-q", "own:1", "-q", "other")
    scene.busy("first", "own")
    explanation = scene.why(scene.module.note.using(queue="own").enqueue("next"), "waiting")
    assert str(explanation).startswith(
        "It is ready, at position 1 of the queue own; live workers: 1, jobs that they hold: 1, "
        "slots: 16 of which the queue may take 1, none free. There is no forecast: fewer than 20 "
    )
    assert (explanation.facts["own_slots"], explanation.facts["own_taken"]) == (1, 1)


def test_a_job_waits_for_a_slot_that_all_queues_share(scene: Scene) -> None:
    scene.worker("-c", "1")
    scene.busy("first")
    explanation = scene.why(scene.module.note.enqueue("next"), "waiting")
    assert str(explanation).startswith(
        "It is ready, at position 1 of the queue default; live workers: 1, jobs that they hold: "
        "1, slots: 1, none free. There is no forecast: "
    )


def test_a_job_waits_behind_those_of_another_queue_of_its_worker(scene: Scene) -> None:
    scene.worker("-q", "hiq", "-q", "loq", "-c", "1")
    scene.busy("first", "hiq")
    note = scene.module.note
    job = note.using(queue="loq").enqueue("low")
    for number in range(6):
        note.using(queue="hiq", priority=9).enqueue(f"high-{number}")
    explanation = scene.why(job, "waiting")
    assert (explanation.facts["position"], explanation.facts["before_in_other_queues"]) == (1, 6)
    assert "behind jobs of other queues that share its slots (hiq: 6)" in str(explanation)
    scene.go("first")
    scene.until(lambda: "low" in scene.ran())
    assert scene.ran()[-1] == "low"


# --- claimed --------------------------------------------------------------------------------------


def test_a_job_waits_for_its_batch_to_fill(scene: Scene) -> None:
    scene.worker()
    job = scene.module.gather.enqueue("one")
    scene.until(lambda: job.status == "running")
    explanation = scene.why(job, "batch")
    assert "gathers a batch of up to 50 jobs of its task" in str(explanation)
    assert "(in " in str(explanation)


def test_a_job_runs(scene: Scene) -> None:
    scene.worker()
    assert "attempt 1, in worker" in str(scene.why(scene.busy("it"), "running"))


def test_a_worker_that_was_killed_runs_nothing(scene: Scene) -> None:
    worker = scene.worker("--no-monitor", "-c", "1")
    running = scene.busy("it")
    waiting = scene.module.note.enqueue("next")
    worker.kill()
    worker.wait()
    assert "is gone; it is due again when the lease ends" in str(scene.why(running, "worker gone"))
    scene.why(waiting, "no worker")


def test_a_job_at_most_once_of_a_killed_worker_ends_as_lost(scene: Scene) -> None:
    worker = scene.worker("--no-monitor", "-q", "once")
    job = scene.busy("it", "once")
    worker.kill()
    worker.wait()
    explanation = scene.why(job, "worker gone")
    assert explanation.ends_as == "lost"
    assert "it ends as lost and is never due again, since once delivers at most" in str(explanation)
    scene.spawn("-q", "once")
    scene.until(lambda: job.status == "lost")
    assert scene.ran() == ["it"]


def test_a_worker_that_is_stopping_claims_nothing(scene: Scene) -> None:
    worker = scene.worker("-c", "1")
    scene.busy("it")
    job = scene.module.note.enqueue("next")
    scene.why(job, "waiting")
    worker.send_signal(signal.SIGTERM)
    scene.until(lambda: job.explain().reason != "waiting")
    assert "those that did are stopping, and claim nothing" in str(scene.why(job, "no worker"))
    scene.go("it")


def test_a_worker_whose_process_is_stopped_is_named(scene: Scene) -> None:
    worker = scene.worker("--no-monitor", "-c", "1")
    running = scene.busy("it")
    waiting = scene.module.note.enqueue("next")
    worker.send_signal(signal.SIGSTOP)
    scene.until(lambda: running.explain().reason == "worker silent")
    explanation = scene.why(running, "worker silent")
    assert explanation.conditions[0].command == f"kill -CONT {worker.pid}"
    assert f"its process {worker.pid} here is stopped (`kill -CONT {worker.pid}`)" in str(
        explanation
    )
    assert f"kill -CONT {worker.pid}" in str(scene.why(waiting, "worker silent"))
    worker.send_signal(signal.SIGCONT)
    scene.until(lambda: running.explain().reason == "running")
    scene.go("it")
    scene.until(lambda: "next" in scene.ran())


def test_the_commands_that_start_a_job_by_a_time_are_named(scene: Scene) -> None:
    scene.app.pause("default")
    job = scene.module.note.using(after=3600).enqueue("later")
    words = ["--store", STORE, "jobs", "explain", job.id, "--until", "10m", "-o", "json"]
    until = scene.shell(*words).data["until"]
    assert until["starts"] == "no"
    assert until["commands"] == [
        f"dueline jobs retry {job.id}",
        "dueline queues resume default",
        "dueline worker -q default",
    ]
    for command in until["commands"][:2]:
        assert scene.shell("--store", STORE, *command.split()[1:]).code == 0
    scene.worker()
    scene.until(lambda: scene.ran() == ["later"])


# --- its time has not come ------------------------------------------------------------------------


def test_a_job_that_failed_before_is_snoozed(scene: Scene) -> None:
    scene.worker()
    job = scene.module.doze.enqueue()
    scene.until(lambda: job.explain().reason == "put back")
    text = str(scene.why(job, "put back"))
    assert text.startswith("Its handler snoozed it until 20")
    assert text.endswith("Attempts that failed before: 1 (OSError: no route).")


def test_a_job_is_not_due(scene: Scene) -> None:
    scene.worker()
    job = scene.module.note.using(after=600).enqueue("later")
    assert str(scene.why(job, "scheduled")).startswith("It is not due until 20")


def test_a_retry_or_a_time_in_a_paused_queue_comes_after_the_pause(scene: Scene) -> None:
    scene.worker()
    job = scene.module.flaky.enqueue()
    scene.until(lambda: job.status == "retrying")
    later = scene.module.note.using(after=600).enqueue("later")
    scene.app.pause("default")
    end = "Also, the queue default is paused (`dueline queues resume default`)."
    explanation = scene.why(job, "retrying")
    assert str(explanation).startswith("Attempt 1 failed (TimeoutError: busy); it is retried at")
    assert str(explanation).endswith(end)
    assert str(scene.why(later, "scheduled")).endswith(end)


@pytest.mark.slow
def test_a_ready_job_of_a_paused_queue_waits_for_the_end_of_the_pause(scene: Scene) -> None:
    scene.worker()
    scene.app.pause("default")
    assert "dueline queues resume" in str(scene.why(scene.module.note.enqueue("it"), "paused"))


# --- limits, steps --------------------------------------------------------------------------------


def test_a_job_waits_for_the_holder_of_a_permit(scene: Scene) -> None:
    scene.worker()
    scene.module.limited.enqueue("it")
    scene.until(lambda: "it" in scene.ran())
    explanation = scene.why(scene.module.limited.enqueue("next"), "limit")
    assert f"{explanation.facts['limit']} has no free permit (capacity 1" in str(explanation)
    assert " holds 1 until " in str(explanation)


def test_a_job_waits_for_a_rate(scene: Scene) -> None:
    scene.app.rate("host", 1, per=3600)
    scene.worker()
    scene.module.limited.enqueue("it")
    scene.until(lambda: "it" in scene.ran())
    explanation = scene.why(scene.module.limited.enqueue("next"), "limit")
    assert "(1 in 1h) lets the next job start at" in str(explanation)


def test_a_job_waits_for_a_limit_that_is_closed(scene: Scene) -> None:
    scene.worker()
    job = scene.module.closing.enqueue()
    scene.until(lambda: job.status == "scheduled")
    explanation = scene.why(scene.module.closing.enqueue(), "limit")
    assert "its limit door is closed until" in str(explanation)


def test_a_step_is_held_by_a_dead_one(scene: Scene) -> None:
    scene.worker()
    module = scene.module
    flow = scene.app.start(module.pipeline(module.fail.step(), module.note.step()))
    last = flow.step(1)
    scene.until(lambda: last.explain().reason == "held")
    assert "which is dead because of ValueError: no" in str(scene.why(last, "held"))


def test_a_step_waits_for_a_signal(scene: Scene) -> None:
    scene.worker()
    module = scene.module
    flow = scene.app.start(module.pipeline(module.wait_for("yes"), module.note.step()))
    first = flow.step(0)
    scene.until(lambda: first.explain().reason == "signal")
    assert "It waits for the signal yes" in str(scene.why(first, "signal"))


# --- nobody ---------------------------------------------------------------------------------------


def test_a_queue_has_no_worker(scene: Scene) -> None:
    scene.worker("-q", "other")
    explanation = scene.why(scene.module.note.enqueue("it"), "no worker")
    assert str(explanation) == (
        "It is ready, but no live worker serves the queue default (`dueline worker -q default`)."
    )


def test_an_id_is_not_known(scene: Scene) -> None:
    explanation = scene.app.job("0" * 32).explain()
    assert (explanation.reason, str(explanation)[:7]) == ("unknown", "No job ")
    assert scene.shell("--store", STORE, "jobs", "explain", "0" * 32).code == 4


def test_the_next_jobs_are_those_that_start(scene: Scene) -> None:
    note = scene.module.note
    for number, (priority, tenant) in enumerate([(0, ""), (9, ""), (3, ""), (3, ""), (3, "b")]):
        note.using(priority=priority, tenant=tenant).enqueue(str(number))
    answer = scene.shell("--store", STORE, "jobs", "peek", "-o", "json")
    assert [(job["priority"], job["tenant"]) for job in answer.data] == [
        (9, ""), (3, ""), (3, "b"), (3, ""), (0, ""),
    ]  # fmt: skip
    scene.worker("-c", "1")
    scene.until(lambda: len(scene.ran()) == 5)
    assert scene.ran()[0] == "1"
    assert scene.ran()[-1] == "0"
    listed = scene.shell("--store", STORE, "jobs", "peek", "-q", "default", "--limit", "2")
    assert listed.err == "No jobs match.\n"


def test_an_explanation_is_awaited(scene: Scene) -> None:
    job = scene.module.note.enqueue("it")
    assert asyncio.run(job.aexplain()).reason == "no worker"
