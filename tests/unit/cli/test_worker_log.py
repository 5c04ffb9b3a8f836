"""The format and the levels of a worker's log."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.logs import LogSettings, show_as_parent_does
from dueline.api.maintenance import make_maintenance_threads
from dueline.core.logging import enable_loggers, log
from dueline.web import dashboard
from tests.harness.shell import Shell

SHOP = """
import asyncio, logging
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")
log = logging.getLogger("shop")

@app.task
async def send(to: str) -> None:
    await asyncio.sleep(0)
    log.info("sending to %s", to, extra={"order": 7})
    log.debug("a detail")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed\\nINFO forged")
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    (shell.folder / "shop.py").write_text(SHOP, encoding="utf-8")
    assert shell("-A", "shop:app", "enqueue", "shop.send", "ann").code == 0
    return shell


def log_of(shell: Shell, *words: str) -> list[str]:
    worker = shell.spawn("worker", "shop:app", "--burst", *words)
    _, error = worker.communicate(timeout=60)
    assert worker.returncode == 0, error
    return [str(line) for line in error.splitlines()]


@pytest.mark.slow
def test_json_names_the_job_of_each_record_also_in_child_processes(shop: Shell) -> None:
    (job,) = shop.ids()
    words = ("--log-format", "json", "--log-level", "debug", "--processes", "1")
    lines = [json.loads(line) for line in log_of(shop, *words)]
    own = [line for line in lines if line["logger"] == "shop"]
    about = {"job": job, "task": "shop.send", "attempt": 1}
    assert [line["message"] for line in own] == [
        "sending to ann", "a detail", "it failed\nINFO forged",
    ]  # fmt: skip
    for line in own:
        assert about.items() <= line.items()
    assert (own[0]["order"], own[0]["level"]) == (7, "INFO")
    assert own[2]["exception"].endswith("ValueError: no")
    (end,) = [line for line in lines if line.get("outcome") == "done"]
    assert (about | {"queue": "default"}).items() <= end.items()


def test_a_level_holds_for_all_records(shop: Shell) -> None:
    (job,) = shop.ids()
    (line, *traceback) = log_of(shop, "--log-level", "error")
    assert f"Z ERROR job={job} task=shop.send attempt=1 it failed" in line
    assert traceback[-1] == "    ValueError: no"


def test_a_module_that_configures_logging_keeps_its_own(shop: Shell) -> None:
    path = Path("shop.py")
    path.write_text(f"{SHOP}\nlogging.basicConfig(format='mine %(message)s')\n", encoding="utf-8")
    assert [line for line in log_of(shop, "--quiet") if line.startswith("mine ")] == [
        "mine it failed"
    ]


def test_a_record_that_its_own_logger_shows_is_shown_once(shop: Shell) -> None:
    console = """
console = logging.StreamHandler()
console.setFormatter(logging.Formatter("own %(message)s"))
console.addFilter(lambda record: record.levelno < logging.ERROR)
log.addHandler(console)
"""
    Path("shop.py").write_text(SHOP + console, encoding="utf-8")
    lines = log_of(shop, "--processes", "1")
    assert [line for line in lines if "sending to ann" in line] == ["own sending to ann"]
    (filtered,) = [line for line in lines if "it failed" in line]
    assert "task=shop.send attempt=1 it failed" in filtered


def test_options_that_exclude_each_other(shell: Shell) -> None:
    answer = shell("worker", "tasks:app", "--quiet", "--log-level", "info")
    assert (answer.code, "exclude each other" in answer.why) == (2, True)


def test_a_child_without_a_worker_of_the_command_line_configures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DUELINE_WORKER_LOG", raising=False)
    before = logging.getLogger("dueline").handlers
    show_as_parent_does()
    assert logging.getLogger("dueline").handlers is before
    assert LogSettings() == (logging.INFO, logging.INFO, False)


CONFIGURED = """
import logging, logging.config
from dueline import Dueline, Retry

def configure():
    logging.config.dictConfig({{
        "version": 1,
        "disable_existing_loggers": True,
        "formatters": {{"plain": {{"format": "ROOT %(message)s"}}}},
        "handlers": {{"out": {{"class": "logging.StreamHandler", "formatter": "plain"}}}},
        "root": {{"handlers": ["out"], "level": "INFO"}},
    }})

{first}
app = Dueline("sqlite:///jobs.db")

@app.task(name="fail", retry=Retry(attempts=1))
def fail():
    raise ValueError("bad luck")

@app.task(name="configure")
def configure_late():
    configure()
    import time
    time.sleep(1.5)
"""


def enqueued(shell: Shell, task: str) -> str:
    """Enqueue a job, in a process of its own since that configures logging; return its id."""
    out, error = shell.spawn("-A", "shop:app", "enqueue", task).communicate(timeout=60)
    assert out, error
    return str(out.strip())


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_an_application_that_disables_existing_loggers_leaves_those_of_the_worker(
    shell: Shell, processes: str
) -> None:
    (shell.folder / "shop.py").write_text(CONFIGURED.format(first="configure()"), encoding="utf-8")
    job = enqueued(shell, "fail")
    lines = "\n".join(log_of(shell, "--processes", processes))
    assert "INFO worker " in lines
    assert f"ERROR job={job} task=fail attempt=1 dead" in lines
    assert "ValueError: bad luck" in lines
    assert "INFO stopped: no job is due" in lines
    assert "ROOT" not in lines


@pytest.mark.slow
def test_a_handler_that_disables_existing_loggers_silences_the_worker_for_a_moment_only(
    shell: Shell,
) -> None:
    (shell.folder / "shop.py").write_text(CONFIGURED.format(first=""), encoding="utf-8")
    enqueued(shell, "configure")
    lines = "\n".join(log_of(shell, "-v"))
    assert "task=configure attempt=1 done" in lines
    assert "INFO stopped: no job is due" in lines


def test_what_an_application_sets_on_purpose_stays() -> None:
    """Of every logger of dueline: consumers, the dashboard, maintenance, stores."""
    names = [name for name in logging.root.manager.loggerDict if f"{name}.".startswith("dueline.")]
    loggers = [logging.getLogger(name) for name in names]
    other = logging.getLogger("due.line")
    before = [(logger.level, logger.propagate) for logger in loggers]
    try:
        for logger in (*loggers, other):
            logger.disabled = True
            logger.setLevel(logging.CRITICAL)
            logger.propagate = False
        enable_loggers()
        assert len(names) > 3
        assert {(logger.disabled, logger.level, logger.propagate) for logger in loggers} == {
            (False, logging.CRITICAL, False)
        }
        assert other.disabled
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate


def test_consumers_dashboards_and_maintenance_enable_loggers(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    stream = app.stream("orders")
    stream.consumer("all")(print)

    def is_enabled_by(start: Callable[[], object]) -> bool:
        log.disabled = True
        start()
        return not log.disabled

    def consume() -> None:
        with app.consuming():
            pass

    def work() -> None:
        with app.worker():
            pass

    def maintain() -> None:
        with make_maintenance_threads(app.queues, "w"):
            pass

    try:
        assert all(map(is_enabled_by, (consume, work, maintain, lambda: dashboard(app))))
    finally:
        log.disabled = False
        app.close()
