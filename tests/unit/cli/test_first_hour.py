"""What a new user sees: the worker's banner, its log, and words of other queues (H11)."""

import re
import subprocess
import sys
from copy import copy

import pytest

from dueline import BadInput, Dueline, pipeline
from tests.harness.shell import Shell

SHOP = """
import asyncio, logging
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")
log = logging.getLogger("shop")

@app.task(queue="mail")
def send(to: str) -> None:
    log.info("sending to %s", to)

@app.task(queue="mail")
async def asend(to: str) -> None:
    await asyncio.sleep(0)
    log.info("sending to %s", to)
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    (shell.folder / "shop.py").write_text(SHOP, encoding="utf-8")
    return shell


def log_of(shell: Shell, *words: str) -> list[str]:
    worker = shell.spawn("worker", *words, "--burst")
    _, error = worker.communicate(timeout=60)
    assert worker.returncode in (0, 8), error
    lines = error.splitlines()
    assert all(re.match(r"[0-9-]{10}T[0-9:.]{12}Z (INFO|WARNING) ", line) for line in lines)
    return [line.partition("Z ")[2] for line in lines]


@pytest.mark.slow
def test_a_worker_says_what_it_serves_and_why_it_stops(shop: Shell) -> None:
    lines = log_of(shop, "shop:app")
    assert re.fullmatch(
        r"INFO dueline \S+ on sqlite:///jobs.db: 16 slots, no child processes", lines[0]
    )
    assert lines[1] == "INFO tasks: shop.asend, shop.send"
    assert re.fullmatch(r"INFO worker \S+ serves default, mail", lines[2])
    assert lines[-1] == "INFO stopped: no job is due"
    assert not any("WARNING" in line for line in lines)
    assert log_of(shop, "shop:app", "--no-monitor")[0].endswith(", no maintenance")
    assert log_of(shop, "shop:app", "--no-prefetch")[0].endswith(", no prefetch")
    assert log_of(shop, "shop:app", "--quiet") == []


def test_a_worker_logs_a_line_a_job_and_one_for_many_short_ones(shop: Shell) -> None:
    jobs = [shop("-A", "shop:app", "enqueue", "shop.send", "ann").out.strip() for _ in range(3)]
    lines = log_of(shop, "shop:app")
    for job in jobs:
        start = f"INFO job={job} task=shop.send attempt=1 done after "
        assert len([line for line in lines if line.startswith(start)]) == 1


def test_names_that_nothing_declares_are_warned_of(shop: Shell) -> None:
    (shop.folder / "shop.py").write_text(
        SHOP + "app.task(name='a', limits=['hots:{to}', 'ok'])(send.handler.function)\n"
        "app.semaphore('ok', capacity=2)\napp.schedule('nightly', send, ['x'], every=3600)\n",
        encoding="utf-8",
    )
    warnings = [line for line in log_of(shop, "shop:app") if "WARNING" in line]
    text = "The limit hots of a is not declared, so one job runs at a time: is the name right?"
    assert warnings == [f"WARNING {text}"]
    assert shop("-A", "shop:app", "enqueue", "a", "ann").code == 0
    checks = shop.app("doctor", "-o", "json").data["checks"]
    (check,) = [check for check in checks if check["check"] == "limit hots"]
    assert check["finding"] == "jobs name it and nothing declares it, so one runs at a time"
    (shop.folder / "shop.py").write_text(SHOP.replace("def send", "def sell"), encoding="utf-8")
    warnings = [line for line in log_of(shop, "shop:app") if "WARNING" in line]
    assert warnings == [
        "WARNING The schedule nightly: no live worker knows task shop.send",
        "WARNING no live worker knows task a in the queue default; its jobs wait",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("place", [".", "docs"])
def test_a_worker_starts_again_when_a_file_changes(shop: Shell, place: str) -> None:
    # in a folder below, the application is that of dueline.toml
    (shop.folder / place).mkdir(exist_ok=True)
    (shop.folder / "dueline.toml").write_text('app = "shop:app"', encoding="utf-8")
    inside = copy(shop)
    inside.folder = shop.folder / place
    worker = inside.spawn("worker", "--reload")
    assert worker.stderr is not None
    lines = iter(worker.stderr.readline, "")
    assert any("serves" in line for line in lines)
    changed = SHOP.replace("def send", "def resell")  # Python may take a text of one size for old
    (shop.folder / "shop.py").write_text(changed, encoding="utf-8")
    assert any("shop.py changed: the worker starts again" in line for line in lines)
    assert any("tasks: shop.asend, shop.resell" in line for line in lines)
    assert any("serves" in line for line in lines)
    worker.terminate()
    assert "stopped: SIGTERM" in worker.communicate(timeout=60)[1]
    assert worker.returncode == 143


@pytest.mark.parametrize("task", ["shop.send", "shop.asend"])
def test_what_a_handler_logs_is_shown_with_its_job(shop: Shell, task: str) -> None:
    job = shop("--app", "shop:app", "enqueue", task, "ann").out.strip()
    lines = log_of(shop, "shop:app")
    assert f"INFO job={job} task={task} attempt=1 sending to ann" in lines


def test_a_queue_that_nothing_uses_is_warned_of(shop: Shell) -> None:
    lines = log_of(shop, "shop:app", "-q", "mial")
    assert "WARNING The queue mial is new, and no task uses it: is the name right?" in lines


def test_a_pause_that_outlives_a_deployment_is_named(shop: Shell) -> None:
    shop("--app", "shop:app", "enqueue", "shop.send", "ann")
    assert shop.app("queues", "pause", "mail").code == 0
    assert "WARNING The queue mail is paused: all of it." in log_of(shop, "shop:app")


def test_the_pause_of_jobs_without_a_tenant_is_named(shop: Shell) -> None:
    shop("--app", "shop:app", "enqueue", "shop.send", "ann")
    for pause in (("--tenant", ""), ("--tenant", "acme"), ("--task", "shop.send")):
        assert shop.app("queues", "pause", "mail", *pause).code == 0
    what = "jobs without a tenant, tenant acme, task shop.send"
    assert f"WARNING The queue mail is paused: {what}." in log_of(shop, "shop:app")


def test_a_store_that_no_other_process_sees_is_warned_of(shop: Shell) -> None:
    text = "memory:// keeps jobs in this process: no other process sees them, and they end with it."
    where = ("--store", "memory://")
    worker = shop.spawn(*where, "worker", "shop:app", "--burst")
    assert f"WARNING {text}\n" in worker.communicate(timeout=60)[1]
    assert text not in shop("-A", "shop:app", "enqueue", "shop.send", "ann").err
    assert text in shop(*where, "-A", "shop:app", "enqueue", "shop.send", "ann").err


def test_an_application_without_tasks_is_warned_of(shop: Shell) -> None:
    (shop.folder / "bare.py").write_text(SHOP.partition("@")[0], encoding="utf-8")
    assert any("has no tasks: import" in line for line in log_of(shop, "bare:app"))


def test_the_application_is_named_as_in_celery(shop: Shell) -> None:
    assert shop("-A", "shop:app", "enqueue", "shop.send", "ann").code == 0
    assert shop("enqueue", "shop.send", "ann", "-A", "shop:app").code == 0


def test_an_interval_is_listed_like_a_cron_expression(shell: Shell) -> None:
    assert shell.app("schedules", "add", "often", "tasks.add", "1", "--every", "90s").code == 0
    assert (
        shell.app("schedules", "add", "nightly", "tasks.add", "1", "--cron", "0 3 * * *").code == 0
    )
    assert "every 1m30s" in shell.app("schedules", "list").out
    nightly, often = shell.app("schedules", "list", "-o", "json").data
    assert nightly.keys() == often.keys()
    assert (nightly["cron"], nightly["tz"], nightly["every_s"]) == ("0 3 * * *", "UTC", None)
    assert (often["cron"], often["tz"], often["every_s"]) == (None, None, 90)


def test_a_failure_step_cannot_omit_the_failure() -> None:
    app = Dueline("memory://")
    step = app.task(name="tell")(lambda failure: failure).step()
    with pytest.raises(BadInput, match="gets the description of the failure") as raised:
        pipeline(step, on_failure=step.alone())
    assert "first argument" in raised.value.hint


def test_the_pytest_plugin_loads_no_store() -> None:
    code = "import sys, dueline.testing.plugin; print('dueline.testing.bench' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_first_digits_of_an_id_name_a_job(shell: Shell) -> None:
    waiting, other = (
        shell.enqueue("tasks.add", "1"),
        shell.enqueue("tasks.add", "2", "--after", "1h"),
    )
    shell.enqueue("tasks.fail", "no")
    for job in (waiting, other):
        assert shell.app("jobs", "show", job[:31]).code == 0
    assert shell.app("jobs", "show", "0" * 8).code == 4
    answer = shell.app("jobs", "show", other[:4])
    assert (answer.code, "Use more digits" in answer.err) == (2, True)
    assert shell.app("jobs", "show", "12").code == 2
    shell.work()
    for words in (("show",), ("history",), ("explain",)):
        assert shell.app("jobs", *words, waiting[:31]).code == 0, words
    (dead,) = [job["id"] for job in shell.app("dead", "list", "-o", "json").data]
    assert shell.app("dead", "show", dead[:31].upper()).code == 0


def test_a_queue_that_is_created_by_accident_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Dueline("memory://")
    send = app.task(name="send", queue="mail")(lambda: None)
    app.queue("reports")
    for queue in ("mail", "reports", "mial", "mial"):
        send.using(queue=queue).enqueue()
    send.enqueue()
    assert caplog.messages == ["The queue mial is new: is the name right?"]


def test_a_limit_that_only_a_call_names_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    app = Dueline("memory://")
    send = app.task(name="send", limits=["host:{host}"])(lambda host: host)
    app.semaphore("smtp", capacity=2)
    app.rate("api", 5, per=1)
    for limit in ("smtp", "api", "api:{host}", "host:{host}", "smpt", "smpt:{host}"):
        send.using(limits=[limit]).enqueue("a")
    app.semaphore("later", capacity=1)
    app.enqueue_many([send.using(limits=["later", "mialer"]).call("a")])
    send.enqueue("a")
    text = "The limit {} is not declared, so one job runs at a time: is the name right?"
    assert caplog.messages == [text.format("smpt"), text.format("mialer")]


def test_a_queue_of_a_call_with_options_of_its_own_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Dueline("memory://")
    send = app.task(name="send")(lambda: None)
    app.enqueue_many([send.call(), send.using(queue="mial").call()])
    assert caplog.messages == ["The queue mial is new: is the name right?"]
