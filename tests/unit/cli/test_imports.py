"""`dueline import`: schedules of the real libraries (A8)."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from apscheduler.triggers.cron import CronTrigger
from redis import Redis
from rq.cron import CronJob, CronScheduler

from dueline import Dueline
from dueline.api.schedules import timing_of
from dueline.contrib.schedule_sources.apscheduler import _timing_of
from dueline.core.clock import to_datetime, to_us
from dueline.schedules.schedule import times_after
from tests.harness.shell import Shell

TARGET = """
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")


@app.task(name="shop.report")
def report(day: str = "all", limit: int = 5) -> None: ...


@app.task(name="shop.ping")
def ping(host: str) -> None: ...
"""

CELERY = """
from datetime import timedelta
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule


class Moon(BaseSchedule):
    pass


app = Celery("shop", broker="redis://localhost")
app.conf.timezone = "Europe/Vilnius"
app.conf.beat_schedule = {
    "every night": {"task": "shop.report", "schedule": crontab(minute=0, hour="1-3,*/8")},
    "weekdays": {
        "task": "shop.report", "args": ["mail"], "kwargs": {"limit": 3},
        "schedule": crontab(minute="*/15", day_of_week="monday-friday"),
        "options": {"queue": "mail", "priority": 3, "expires": 60},
    },
    "often": {"task": "shop.ping", "schedule": 30.0, "args": ("db1",)},
    "hourly": {"task": "shop.ping", "schedule": schedule(timedelta(hours=1)), "args": ("db2",)},
    "sun": {"task": "shop.report", "schedule": Moon()},
    "first-monday": {
        "task": "shop.report", "schedule": crontab(0, 3, day_of_week=1, day_of_month="1-7")
    },
    "unknown": {"task": "shop.gone", "schedule": 30},
    "misfit": {"task": "shop.ping", "schedule": 30, "args": ["a", "b"]},
    "odd": {"task": "shop.report", "schedule": 30, "options": {"countdown": 5}},
}


@app.on_after_finalize.connect
def add(sender, **_):
    sender.add_periodic_task(crontab(hour=9), sender.signature("shop.ping", ("x",)), name="added")
"""

HUEY = """
from huey import MemoryHuey, crontab

huey = MemoryHuey()


@huey.periodic_task(crontab(minute="*/15", hour="3", day_of_week="1-5"))
def report():
    pass


@huey.periodic_task(lambda now: now.day == 13)
def odd():
    pass
"""

CRON_CONFIG = """
from rq import cron
from rq_jobs import ping, report

cron.register(report, queue_name="mail", cron="0 3 * * *", kwargs={"limit": 3})
cron.register(ping, queue_name="default", args=("db1",), interval=30, job_timeout=60)
cron.register(ping, queue_name="default", args=("db2",), interval=60)
cron.register(ping, queue_name="default", args=("db3",))
"""

APSCHEDULER = """
from datetime import datetime, timezone
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

scheduler = BackgroundScheduler(
    timezone="Europe/Vilnius",
    jobstores={"stored": SQLAlchemyJobStore(url="sqlite:///old.sqlite")},
)


def report(day="all", limit=5):
    pass


add = scheduler.add_job
add(report, "cron", hour=3, day_of_week="0-4", id="weekdays", misfire_grace_time=None)
add(report, "cron", hour=3, day="last fri", id="last", max_instances=3)
add(report, "cron", day="1", day_of_week="mon", id="both")
add(report, "cron", second="*/10", id="seconds")
add(report, "interval", seconds=30, args=["x"], id="often", jitter=5, next_run_time=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc))
add(report, "date", run_date=datetime(2035, 1, 1, tzinfo=timezone.utc), id="once")
add(report, "cron", hour=5, end_date=datetime(2035, 1, 1, tzinfo=timezone.utc), id="ending")
"""


@pytest.fixture
def folder(shell: Shell) -> Shell:
    """Make a folder with an application that has the tasks."""
    write(shell, target=TARGET)
    return shell


def write(shell: Shell, **modules: str) -> None:
    for name, text in modules.items():
        (shell.folder / f"{name}.py").write_text(text, encoding="utf-8")
        sys.modules.pop(name, None)


def entries(shell: Shell, *words: str, code: int = 5) -> dict[str, Any]:
    sys.modules.pop("target", None)
    answer = shell("--app", "target:app", "import", *words, "-o", "json")
    assert answer.code == code, answer.err
    return {entry["schedule"]: entry for entry in answer.data}


def stored() -> dict[str, Any]:
    app = Dueline("sqlite:///jobs.db")
    try:
        return {schedule.name: schedule for schedule in app.schedules.list()}
    finally:
        app.close()


def test_a_beat_schedule_is_shown_and_written(folder: Shell) -> None:
    write(folder, celery_shop=CELERY)
    by_name = entries(folder, "celery", "celery_shop:app")
    whens = {name: entry["when"] for name, entry in by_name.items() if entry["verdict"] == "maps"}
    assert whens == {
        "every-night": "0 0-3,8,16 * * * (Europe/Vilnius)".replace("0-3,8,16", "0,1,2,3,8,16"),
        "weekdays": "*/15 * * * 1-5 (Europe/Vilnius)",
        "often": "every 30s",
        "hourly": "every 1h",
        "added": "* 9 * * * (Europe/Vilnius)",
    }
    assert by_name["weekdays"]["finding"].startswith("queue=mail, priority=-3, expires=60")
    refused = {name: entry["finding"] for name, entry in by_name.items() if name not in whens}
    assert sorted(refused) == ["first-monday", "misfit", "odd", "sun", "unknown"]
    assert "kind Moon" in refused["sun"]
    assert "cron would run on either" in refused["first-monday"]
    assert "no task 'shop.gone'" in refused["unknown"]
    assert "do not fit shop.ping" in refused["misfit"]
    assert "`countdown`" in refused["odd"]
    assert stored() == {}
    assert entries(folder, "celery", "celery_shop:app", "--apply")["often"]["verdict"] == "written"
    assert sorted(stored()) == sorted(whens)
    assert stored()["weekdays"].queue == "mail"
    assert stored()["hourly"].every == timedelta(hours=1)


def test_without_an_application_tasks_are_not_checked(folder: Shell) -> None:
    write(folder, celery_shop=CELERY)
    answer = folder("import", "celery", "celery_shop:app")
    assert "no application is named" in answer.err
    assert "shop.gone" in answer.out
    assert folder("import", "celery", "celery_shop:app", "--apply").code == 7
    answer = folder("import", "celery", "target:app")
    assert "not a Celery application" in answer.err


def test_periodic_tasks_of_huey(folder: Shell) -> None:
    write(folder, shop=HUEY)
    by_name = entries(folder, "huey", "shop:huey")
    assert by_name["shop.report"]["when"] == "*/15 3 * * 1-5 (UTC)"
    assert by_name["shop.report"]["verdict"] == "maps"
    assert "a function of its own" in by_name["shop.odd"]["finding"]
    named = entries(folder, "huey", "shop:huey", "--task", "shop.odd=shop.ping")
    assert named["shop.odd"]["task"] == "shop.ping"
    assert "not OLD=NEW" in folder("import", "huey", "shop:huey", "--task", "shop.odd").err
    entries(folder, "huey", "shop:huey", "--apply")
    assert stored()["shop.report"].cron == "*/15 3 * * 1-5"


def test_a_configuration_of_rq_cron(folder: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Vilnius")
    renamed = TARGET.replace("shop.", "rq_jobs.")
    jobs = "def report(day='all', limit=5): ...\n\n\ndef ping(host): ...\n"
    write(folder, target=renamed, rq_jobs=jobs, cron_config=CRON_CONFIG)
    by_name = entries(folder, "rq", "cron_config.py", "--apply")
    assert by_name["rq_jobs.report"]["when"] == "0 3 * * * (Europe/Vilnius)"
    assert by_name["rq_jobs.ping"]["finding"] == "queue=default, @app.task(timeout=) of the task"
    assert stored()["rq_jobs.report"].tz == "Europe/Vilnius"
    assert stored()["rq_jobs.ping"].every == timedelta(seconds=30)
    assert by_name["rq_jobs.ping-2"]["when"] == "every 1m"
    assert "Must specify either interval or cron" in by_name["rq_jobs.ping-3"]["finding"]
    assert "cannot be loaded" in folder("import", "rq", "gone.py").err


def test_schedulers_of_rq_on_a_redis(folder: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def scheduler(*jobs: CronJob) -> CronScheduler:
        made = CronScheduler(connection=Redis())
        made.restore({"cron_jobs": json.dumps([job.to_dict() for job in jobs])})
        return made

    report = CronJob("mail", func_name="shop.report", args=("a",), cron="0 3 * * *")
    odd = CronJob("mail", func_name="shop.ping", args=(object(),), interval=60)
    running = [scheduler(report, odd), scheduler(report)]  # two processes, one configuration
    monkeypatch.setattr(CronScheduler, "all", lambda *_, **__: running)
    by_name = entries(folder, "rq", "redis://localhost:6379/1")
    assert sorted(by_name) == ["shop.ping", "shop.report"]
    assert by_name["shop.report"]["verdict"] == "maps"
    assert "not in Redis" in by_name["shop.ping"]["finding"]


BEAT_TABLES = """
CREATE TABLE django_celery_beat_periodictask (
  id integer PRIMARY KEY, name text, task text, args text, kwargs text, queue text,
  expires datetime, enabled bool, crontab_id integer, interval_id integer, solar_id integer,
  one_off bool, start_time datetime, priority integer, clocked_id integer, expire_seconds integer);
CREATE TABLE django_celery_beat_intervalschedule (
  id integer PRIMARY KEY, every integer, period text);
CREATE TABLE django_celery_beat_crontabschedule (
  id integer PRIMARY KEY, minute text, hour text, day_of_week text, day_of_month text,
  month_of_year text, timezone text);
CREATE TABLE django_celery_beat_clockedschedule (id integer PRIMARY KEY, clocked_time datetime);
INSERT INTO django_celery_beat_intervalschedule VALUES (1, 10, 'seconds');
INSERT INTO django_celery_beat_crontabschedule
  VALUES (1, '*/15', '3', 'mon-fri', '*', '*', 'Europe/Vilnius');
INSERT INTO django_celery_beat_clockedschedule VALUES (1, '2030-01-01 00:00:00');
INSERT INTO django_celery_beat_periodictask (name, task, args, kwargs, queue, priority, enabled,
  one_off, interval_id, crontab_id, clocked_id, solar_id, expires, expire_seconds) VALUES
  ('ping', 'shop.ping', '["db"]', '{}', NULL, NULL, 1, 0, 1, NULL, NULL, NULL, NULL, NULL),
  ('night', 'shop.report', '[]', '{"limit": 3}', 'mail', 3, 0, 0, NULL, 1, NULL, NULL, NULL, 60),
  ('once', 'shop.report', '', '', NULL, NULL, 1, 1, NULL, NULL, 1, NULL, NULL, NULL),
  ('sun', 'shop.report', '[]', '{}', NULL, NULL, 1, 0, NULL, NULL, NULL, 1, NULL, NULL),
  ('next', 'shop.ping', '["a"]', '{}', NULL, NULL, 1, 1, 1, NULL, NULL, NULL, NULL, NULL),
  ('date', 'shop.ping', '["a"]', '{}', NULL, NULL, 1, 0, 1, NULL, NULL, NULL, '2030-01-01', NULL),
  ('later', 'shop.ping', '["a"]', '{}', NULL, NULL, 1, 0, NULL, 1, NULL, NULL, NULL, NULL),
  ('odd', 'shop.ping', 'a', '{}', NULL, NULL, 1, 0, 1, NULL, NULL, NULL, NULL, NULL);
UPDATE django_celery_beat_periodictask SET start_time = '2029-01-01' WHERE name = 'date';
UPDATE django_celery_beat_periodictask SET start_time = '2099-01-01' WHERE name = 'later';
"""

DJANGO_SETTINGS = """
SECRET_KEY, INSTALLED_APPS, CELERY_BROKER_URL = "x", [], "redis://localhost"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3"}}
"""


@pytest.mark.slow
def test_periodic_tasks_of_django_celery_beat(folder: Shell) -> None:
    """Their tables as version 2.9 makes them, without columns that are not read."""
    write(folder, beat_settings=DJANGO_SETTINGS)
    with closing(sqlite3.connect(folder.folder / "site.sqlite3")) as database:
        database.executescript(BEAT_TABLES)
    command = ("--app", "target:app", "import", "django-celery-beat", "beat_settings", "--apply")
    ended = subprocess.run(  # since a process sets Django up once
        [sys.executable, "-m", "dueline", *command, "-o", "json"],
        cwd=folder.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 5, ended.stderr
    by_name = {entry["schedule"]: entry for entry in json.loads(ended.stdout)["data"]}
    refused = {
        name: entry["finding"] for name, entry in by_name.items() if entry["verdict"] == "refused"
    }
    assert sorted(refused) == ["later", "next", "odd", "sun"]
    assert refused["later"].startswith("It starts on 2099-01-01")
    assert refused["sun"] == "It follows the sun."
    assert refused["odd"].startswith("Its args are not JSON: ")
    assert by_name["night"]["finding"].startswith("queue=mail, priority=-3, expires=60")
    assert sorted(stored()) == ["date", "night", "once", "ping"]
    assert by_name["date"]["finding"] == (
        "until=2030-01-01T00:00:00+00:00, catch_up=last, start=2029-01-01T00:00:00+00:00"
    )
    assert stored()["date"].next == datetime(2029, 1, 1, tzinfo=UTC)
    night = stored()["night"]
    assert (night.cron, night.tz) == ("*/15 3 * * 1-5", "Europe/Vilnius")
    assert night.is_paused
    assert stored()["ping"].every == timedelta(seconds=10)
    assert stored()["once"].next == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.slow
def test_jobs_of_apscheduler(folder: Shell) -> None:
    write(folder, target=TARGET.replace("shop.", "old_jobs."), old_jobs=APSCHEDULER)
    (folder.folder / "old.sqlite").touch()
    answer = folder("--app", "target:app", "import", "apscheduler", "old_jobs:scheduler")
    assert "There is no table apscheduler_jobs" in answer.err
    assert (folder.folder / "old.sqlite").stat().st_size == 0  # nothing was written
    fill(folder, APSCHEDULER)
    by_object = entries(folder, "apscheduler", "old_jobs:scheduler")
    by_name = entries(folder, "apscheduler", "sqlite:///old.sqlite")
    assert by_object.keys() >= by_name.keys() == {"stored", "lost", "paused"}
    by_name = by_object | by_name
    assert by_name["weekdays"]["when"] == "0 3 * * mon,tue,wed,thu,fri (Europe/Vilnius)"
    assert by_name["weekdays"]["finding"] == "catch_up=last, overlap=skip"
    assert by_name["last"]["when"] == "0 3 * * 5L (Europe/Vilnius)"
    assert by_name["often"]["when"] == "every 30s"
    assert by_name["stored"]["verdict"] == "maps"
    refused = {
        name: entry["finding"] for name, entry in by_name.items() if entry["verdict"] == "refused"
    }
    assert sorted(refused) == ["both", "lost", "seconds"]
    assert "cron would run on either" in refused["both"]
    assert "no second" in refused["seconds"]
    assert by_name["once"]["when"] == "at 2035-01-01T00:00:00+00:00"
    assert "until=2035-01-01T00:00:00+00:00" in by_name["ending"]["finding"]
    assert "cannot be loaded" in refused["lost"]
    entries(folder, "apscheduler", "old_jobs:scheduler", "--apply")
    assert stored()["often"].is_paused
    assert stored()["paused"].is_paused
    assert stored()["last"].next is not None
    assert stored()["once"].next == datetime(2035, 1, 1, tzinfo=UTC)
    assert entries(folder, "apscheduler", "sqlite:///old.sqlite")["lost"]  # still there


def fill(shell: Shell, module: str) -> None:
    """Run the old scheduler for a moment, so that its store has jobs."""
    write(shell, old_jobs=f"{module}\n\ndef lost():\n    pass\n")
    scheduler: Any = import_module("old_jobs").scheduler
    for job in scheduler.get_jobs():
        job.remove()
    scheduler.start(paused=True)
    try:
        add = scheduler.add_job
        add("old_jobs:report", "cron", hour=4, id="stored", jobstore="stored")
        add("old_jobs:lost", "cron", hour=4, id="lost", jobstore="stored")
        add("old_jobs:report", "interval", hours=1, id="paused", jobstore="stored")
        scheduler.pause_job("paused")
    finally:
        scheduler.shutdown()
        scheduler._jobstores["stored"].engine.dispose()  # its thread may have connected again
    write(shell, old_jobs=module)


def test_weekdays_and_steps_mean_the_same_days() -> None:
    start = datetime(2026, 1, 30, 12, tzinfo=UTC)
    cases: list[Mapping[str, Any]] = [
        {"day_of_week": "*/2"}, {"day_of_week": "2/2"}, {"day_of_week": "sat-sun"},
        {"day_of_week": 6, "hour": "*/7"}, {"day": "last"}, {"day": "2nd mon,4th wed", "hour": 1},
        {"month": "jan-mar", "day": "*/10"}, {"minute": "5/20", "hour": "8-18/3"},
    ]  # fmt: skip
    for fields in cases:
        trigger = CronTrigger(timezone="UTC", **fields)
        timing = timing_of(cron=_timing_of(trigger)["cron"], every=None, tz="UTC", start=None)
        ours = times_after(timing, to_us(start))
        last = start
        for _ in range(20):
            theirs = trigger.get_next_fire_time(None, last + timedelta(seconds=1))
            assert to_datetime(next(ours)) == theirs, fields
            last = theirs


def test_a_library_that_is_absent_is_named(
    folder: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    assert "redis" in folder("import", "rq", "cron_config.py").err
