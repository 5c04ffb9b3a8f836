"""Celery's words on dueline (A8)."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from dueline import BadInput, JobFailed, JobTimeout, Retry
from dueline.contrib.celery import (
    AsyncResult,
    Celery,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    application,
    calls,
    chain,
    chord,
    crontab,
    group,
    schedule,
    shared_task,
    signals,
    signature,
)
from dueline.contrib.celery.task import BoundTask, CeleryTask
from dueline.core.call_options import read_options
from dueline.core.job import Job
from dueline.limits.rate import check_rate
from tests.harness.programs import wait_for

Make = Callable[..., Celery]
Call = Callable[[Celery, CeleryTask], object]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make applications that no other test sees."""
    made: list[Celery] = []
    monkeypatch.setattr(calls, "apps", made)
    monkeypatch.setattr(application, "apps", made)
    monkeypatch.setattr(application, "_shared", [])
    monkeypatch.setattr(signals, "apps", made)
    monkeypatch.setattr(signals, "_receivers", [])
    yield lambda **options: Celery("shop", broker="memory://", **options)
    for app in made:
        app.close()


@pytest.fixture
def app(make: Make) -> Celery:
    return make(priorities="redis")


@pytest.fixture
def add(app: Celery) -> CeleryTask:
    @app.task(name="add")
    def add(x: int, y: int = 1) -> int:
        return x + y

    return add


def work(app: Celery) -> None:
    app.run_worker(burst=True)


# --- tasks and calls ---


def test_delay_and_apply_async_enqueue(app: Celery, add: CeleryTask) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    first, second = add.delay(2, y=3), add.apply_async((4,), {"y": 5}, countdown=0)
    later = add.apply_async((1,), eta=soon.replace(tzinfo=None), expires=soon + timedelta(days=1))
    assert (first.status, first.ready(), first.result) == ("PENDING", False, None)
    work(app)
    assert (first.get(timeout=5), second.get(timeout=5)) == (5, 9)
    assert first.successful()
    assert AsyncResult(first.id).get(0) == app.AsyncResult(first.id).result == 5
    assert AsyncResult("0" * 32).status == "PENDING"  # as Celery says of an unknown id
    later.revoke()
    assert (later.state, later.ready(), later.failed()) == ("REVOKED", True, False)
    first.revoke()  # too late, and no error
    assert add(1) == 2


def test_names_are_sent_without_their_code(app: Celery, add: CeleryTask) -> None:
    result = app.send_task("add", [1], {"y": 2}, queue="default")
    other = app.send_task("shop.elsewhere", [1])
    work(app)
    assert result.get(timeout=5) == 3
    assert other.status == "PENDING"


def test_a_bound_task_retries_and_at_last_raises_what_it_was_given(app: Celery) -> None:
    seen = []

    @app.task(bind=True, name="flaky", max_retries=2, default_retry_delay=0)
    def flaky(self: BoundTask, text: str) -> None:
        seen.append((self.request.id, self.request.retries, self.name, text))
        try:
            int(text)
        except ValueError as error:
            raise self.retry(exc=error) from error

    result = flaky.delay("x")
    work(app)
    assert seen == [(result.id, n, "flaky", "x") for n in range(3)]
    with pytest.raises(JobFailed, match="dead: ValueError: invalid literal"):
        result.get(timeout=5)
    assert result.failed()
    assert isinstance(result.get(propagate=False), JobFailed)


def test_the_last_retry_can_be_caught(app: Celery) -> None:
    @app.task(bind=True, name="patient", max_retries=5, default_retry_delay=3600)
    def patient(self: BoundTask) -> str:
        try:
            self.retry(countdown=0, max_retries=1)
        except self.MaxRetriesExceededError:
            return f"gave up after {self.request.retries}"

    @app.task(bind=True, name="later")
    def later(self: BoundTask) -> None:
        self.retry(eta=datetime.now(UTC) + timedelta(hours=1))

    @app.task(bind=True, name="more")
    def more(self: BoundTask) -> None:
        self.retry(max_retries=100)

    results = [task.delay() for task in (patient, later, more)]
    work(app)
    assert results[0].get(timeout=5) == "gave up after 1"
    assert results[1].status == "RETRY"
    with pytest.raises(JobFailed, match="`max_retries` must be an integer from 0 to 99"):
        results[2].get(timeout=5)
    assert MaxRetriesExceededError is patient.MaxRetriesExceededError


@pytest.mark.parametrize("error", [None, OSError("no route")])
def test_a_retry_may_have_more_retries_than_its_task(app: Celery, error: OSError | None) -> None:
    seen = []

    @app.task(bind=True, name="stubborn", max_retries=1, default_retry_delay=0)
    def stubborn(self: BoundTask) -> str:
        seen.append(self.request.retries)
        if self.request.retries < 4:
            self.retry(exc=error, max_retries=5)
        return "done at last"

    result = stubborn.delay()
    work(app)
    assert result.get(timeout=5) == "done at last"
    assert seen == [0, 1, 2, 3, 4]


def test_retry_policies_are_those_of_celery(app: Celery) -> None:
    def policy(**options: object) -> Retry:
        task = app.task(name=f"t{len(app.tasks)}", **options)(lambda: None)
        return task.task.handler.retry

    plain = policy()
    assert (plain.attempts, plain.on) == (4, ())  # not retried but by self.retry
    auto = policy(autoretry_for=(OSError,), dont_autoretry_for=(TimeoutError,), max_retries=7)
    assert (auto.attempts, auto.on, auto.unless) == (8, (OSError,), (TimeoutError,))
    assert [auto.wait_us(n, 0.5) for n in (1, 5)] == [180_000_000] * 2
    backoff = policy(autoretry_for=(OSError,), retry_backoff=True, max_retries=20)
    assert [backoff.wait_us(n, 0.999999) // 1_000_000 for n in (1, 2, 3, 15)] == [0, 1, 3, 599]
    exact = policy(
        autoretry_for=(OSError,), retry_backoff=5, retry_backoff_max=7, retry_jitter=False
    )
    assert [exact.wait_us(n, 0.1) for n in (1, 2)] == [5_000_000, 7_000_000]
    kwargs = policy(autoretry_for=(OSError,), retry_kwargs={"max_retries": 1, "countdown": 3})
    assert (kwargs.attempts, kwargs.wait_us(1, 0)) == (2, 3_000_000)


def test_priorities_keep_the_order_of_the_broker(make: Make) -> None:
    for priorities, expected in (("redis", -3), ("rabbitmq", 3)):
        app = make(priorities=priorities)

        @app.task(name="t", priority=3)
        def task() -> None: ...

        for result in (task.delay(), task.apply_async(priority=3)):
            assert app.queues.find(bytes.fromhex(result.id)).row.lane.priority == expected  # type: ignore[arg-type, union-attr]
    with pytest.raises(BadInput, match="On Redis, the priority 0 is the highest"):
        make().send_task("t", priority=3)


def test_limits_and_times_are_those_of_dueline(app: Celery) -> None:
    @app.task(name="shop.Call", rate_limit="10/m", soft_time_limit=5, time_limit=9)
    def call() -> None: ...

    handler = app.tasks["shop.Call"]
    assert handler.limits == ("rate-shop-call",)
    assert (handler.timeout_us, handler.kill_after_us) == (5_000_000, 9_000_000)
    # One each six seconds, as a worker of Celery does.
    assert app._rates["rate-shop-call"] == check_rate("r", 10, 60_000_000, 1)


def test_an_ignored_result_is_not_kept_but_passed_on(app: Celery, add: CeleryTask) -> None:
    @app.task(name="quiet", ignore_result=True)
    def quiet(x: int) -> int:
        return x

    ignored, other = quiet.delay(1), add.apply_async((1,), ignore_result=True)
    passed = chain(quiet.s(4), add.s()).delay()
    short = add.apply_async((1,), soft_time_limit=5, time_limit=9)
    work(app)
    assert (ignored.status, other.status) == ("PENDING", "PENDING")  # as Celery says
    assert (ignored.get(timeout=5), other.get(timeout=5), ignored.result) == (None, None, None)
    assert (passed.get(timeout=5), short.get(timeout=5)) == (5, 2)


def test_shared_tasks_belong_to_the_application_that_comes_later(make: Make) -> None:
    @shared_task(name="twice", bind=True)
    def twice(self: BoundTask, x: int) -> int:
        return 2 * x

    @shared_task(name="once")
    def once(x: int) -> int:
        return x

    with pytest.raises(BadInput, match="No application was created"):
        twice.delay(1)
    app = make()
    result = twice.delay(4)
    work(app)
    assert result.get(timeout=5) == 8
    assert twice(3) == 6
    assert chain(twice.s(1), once.s()).app is app
    assert once.name == "once"


# --- workflows ---


def test_chains_groups_and_chords(app: Celery, add: CeleryTask) -> None:
    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    results = {
        4: chain(add.s(1), add.s(1), add.s()).delay(),
        13: (add.s(2) | add.s(10)).apply_async(),
        22: (add.s(1) | add.si(20, 2))(),
        9: chord([add.s(1), add.s(2), add.s(3)])(total.s()),
        11: chord((add.s(n) for n in (4, 5)), total.s()).delay(),
        15: chain(group(add.s(1), add.s(2)), total.s(), signature("add", [10])).delay(),
        7: chain(add.s(5), add.s()).delay(1),
    }
    both = group([add.s(1), add.s(2)])
    assert len(both) == 2
    each, nothing = both(), group([]).apply_async()
    none = chord([])(total.s())
    group(add.s(1), add.s(2)).apply_async(queue="other", countdown=0)
    work(app)
    assert (nothing.get(timeout=5), none.get(timeout=5)) == ([], 0)
    assert [app.queues.engine.catalog.names()] == [["default", "other"]]
    for expected, result in results.items():
        assert result.get(timeout=5) == expected
        assert AsyncResult(result.id).get(0) == expected  # of a workflow, too
    assert each.join(timeout=5) == [2, 3]
    assert add.s(1)(5) == 6
    assert add.signature((1,), immutable=True).clone((9,)).args == (1,)


def test_links_run_with_the_result_or_the_failure(app: Celery, add: CeleryTask) -> None:
    seen: list[object] = []

    @app.task(name="note")
    def note(what: object) -> None:
        seen.append(what)

    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("no")

    result = add.apply_async((1,), link=[note.s(), add.s(5)], countdown=0)
    add.s(3).set(link=note.s()).delay()
    failed = fail.apply_async(link_error=note.s())
    chain(fail.s(), add.s()).apply_async(link_error=note.s())
    work(app)
    assert result.get(timeout=5) == 2
    assert failed.failed()
    numbers = [one for one in seen if isinstance(one, int)]
    failures = [one for one in seen if isinstance(one, dict)]
    assert sorted(numbers) == [2, 4]
    assert len(failures) == 2
    assert all("no" in one["error"] for one in failures)


# --- schedules ---


def test_a_beat_schedule_is_stored(app: Celery, add: CeleryTask) -> None:
    app.conf.update(timezone="Europe/Vilnius", enable_utc=True)
    app.conf.beat_schedule = {
        "every night": {
            "task": "add",
            "schedule": crontab(minute=0, hour="3", day_of_week="monday-fri"),
            "args": (1,),
            "kwargs": {"y": 2},
            "options": {"queue": "nightly", "expires": 60, "priority": 5},
        },
        "often": {"task": "add", "schedule": 30.0, "args": [1]},
    }
    app.add_periodic_task(schedule(timedelta(minutes=5)), add.s(7), name="five")
    night, five, often = (
        app.schedules.get("every-night"),
        app.schedules.get("five"),
        app.schedules.get("often"),
    )
    assert (night.name, night.cron, night.tz) == (
        "every-night",
        "0 3 * * mon-fri",
        "Europe/Vilnius",
    )
    assert (night.queue, five.every, often.every) == (
        "nightly", timedelta(minutes=5), timedelta(seconds=30),
    )  # fmt: skip
    job = app.schedules.trigger("every-night")
    app.run_worker(["nightly"], burst=True)
    assert job.result(timeout=5) == 3
    app.conf["beat_schedule"] = app.conf.beat_schedule | {
        "later": {"task": "add", "schedule": crontab(), "args": [1]}
    }
    assert "later" in app.schedules.names()


def test_schedules_of_the_real_celery_are_read_too(app: Celery, add: CeleryTask) -> None:
    theirs = import_module("celery.schedules")
    app.add_periodic_task(theirs.crontab(hour={1, 2, 3}, minute="*/30"), add.s(1), name="a")
    assert app.schedules.get("a").cron == "*/30 1-3 * * *"


# --- what has no counterpart ---


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda app, add: Celery("x", broker="redis://localhost"), "DUELINE_STORE"),
        (lambda app, add: Celery("x", backend="redis://"), "results are in the store"),
        (lambda app, add: app.task(base=object)(len), "`base`"),
        (lambda app, add: app.task(acks_late=False)(len), "at_most_once"),
        (lambda app, add: app.task(max_retries=None)(len), "max_retries=99"),
        (lambda app, add: app.task(rate_limit="often")(len), "10/m"),
        (lambda app, add: app.task(colour=1)(len), "Remove it"),
        (lambda app, add: app.task(bind=True, name="x")(lambda: 1), "parameter `self`"),
        (lambda app, add: add.apply_async((1,), task_id="x"), "unique="),
        (lambda app, add: add.apply_async((1,), routing_key="x"), "queue="),
        (lambda app, add: chain(add.s(1)).apply_async(countdown=3), "set"),
        (lambda app, add: chain().delay(), "no tasks"),
        (lambda app, add: chord([add.s(1)]).delay(), "no callback"),
        (lambda app, add: group(add.s(1)).delay().revoke(terminate=True), "of a workflow"),
        (lambda app, add: add.delay(1).revoke(signal="SIGTERM"), "terminate=True"),
        (lambda app, add: add.delay(1).get(interval=3), "`interval`"),
        (lambda app, add: setattr(app.conf, "worker_concurrency", 4), "dueline worker"),
        (lambda app, add: app.conf.update(task_serializer="pickle"), "'json', which always"),
        (lambda app, add: app.conf.update({"task_routes": {}}), "above the first task"),
        (lambda app, add: setattr(app.conf, "imports", ["shop"]), "Celery(include=[...])"),
        (lambda app, add: setattr(app.conf, "task_queues", []), "without kombu.Queue"),
        (lambda app, add: setattr(app.conf, "result_expires", None), "a duration in seconds"),
        (lambda app, add: setattr(app.conf, "CELERY_TIMEZONE", "UTC"), "lower-case name"),
        (lambda app, add: signals.task_failure.connect(lambda einfo=None: None), "`einfo`"),
        (lambda app, add: app.autodiscover_tasks(), "not named"),
        (lambda app, add: crontab(day_of_week=1, day_of_month="1-7"), "mon#1"),
        (lambda app, add: app.add_periodic_task(object(), add.s(1)), "kind object"),
    ],
)
def test_options_without_a_counterpart_are_refused(
    app: Celery, add: CeleryTask, call: Call, said: str
) -> None:
    with pytest.raises(BadInput) as raised:
        call(app, add)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda app, add: app.config_from_object("x"), r"app\.conf\.update"),
        (lambda app, add: app.control.purge(), "dueline workers"),
        (lambda app, add: app.on_after_configure.connect, "add_periodic_task"),
        (lambda app, add: app.gone, "no attribute 'gone'"),
        (lambda app, add: app.conf.gone, "no attribute 'gone'"),
        (lambda app, add: add.delay_on_commit(1), "tx=connection"),
        (lambda app, add: add.request, "bind=True"),
        (lambda app, add: add.delay(1).forget(), "keep="),
        (lambda app, add: chain(add.s(1)).on_error(add.s()), "link_error= of `apply_async`"),
        (lambda app, add: add.s(1).link(add.s(2)), "chain"),
        (lambda app, add: group(add.s(1)).gone, "no attribute 'gone'"),
    ],
)
def test_methods_without_a_counterpart_are_refused(
    app: Celery, add: CeleryTask, call: Call, said: str
) -> None:
    with pytest.raises(AttributeError, match=said):
        call(app, add)


def test_a_schedule_of_an_unknown_task_is_refused(app: Celery, add: CeleryTask) -> None:
    app.conf.beat_schedule = {"typo": {"task": "ad", "schedule": 30}}
    with pytest.raises(LookupError, match="Did you mean add"):
        app.schedules.list()


def test_names_that_are_not_there_say_what_to_write() -> None:
    module: Any = sys.modules["dueline.contrib.celery"]
    with pytest.raises(ImportError, match="AsyncResult"):
        _ = module.GroupResult
    with pytest.raises(AttributeError, match="no attribute"):
        _ = module.gone


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("signals", "worker_process_init", "lazily"),
        ("exceptions", "Retry", r"self\.retry"),
        ("schedules", "solar", "runs daily"),
        ("canvas", "signature", "from dueline.contrib.celery import signature"),
        ("result", "GroupResult", "AsyncResult"),
    ],
)
def test_names_of_submodules_say_what_to_write(module: str, name: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        exec(f"from dueline.contrib.celery.{module} import {name}", {})  # noqa: S102
    with pytest.raises(ImportError, match="cannot import name 'gone'"):
        exec(f"from dueline.contrib.celery.{module} import gone", {})  # noqa: S102


def test_the_logger_of_celery_names_that_of_python() -> None:
    with pytest.raises(ImportError, match=r"Use logging\.getLogger\(__name__\) instead of"):
        exec("from dueline.contrib.celery.utils.log import get_task_logger", {})  # noqa: S102


def test_exceptions_have_the_module_of_celery() -> None:
    exceptions = import_module("dueline.contrib.celery.exceptions")
    assert exceptions.MaxRetriesExceededError is MaxRetriesExceededError
    assert exceptions.SoftTimeLimitExceeded is JobTimeout
    assert exceptions.TimeoutError is TimeoutError


def row_of(app: Celery, result: AsyncResult) -> Job:
    row = app.engine.store.find([bytes.fromhex(result.id)])[0]  # type: ignore[list-item]
    assert row is not None
    return row


# --- what maps since it was first left out ---


def test_settings_of_all_tasks_and_routes_and_annotations(make: Make) -> None:
    app = make(priorities="rabbitmq")
    app.conf.update(
        task_time_limit=30,
        task_soft_time_limit=20,
        task_default_queue="main",
        task_track_started=True,
        result_expires=7,
        task_routes=[{"shop.mail.*": {"queue": "mail", "priority": 3}}, ("shop.cpu", "cpu")],
        task_annotations={"*": {"max_retries": 1}, "shop.cpu": {"rate_limit": "10/s"}},
    )
    plain = app.task(name="shop.plain")(lambda: 1)
    mail = app.task(name="shop.mail.send", soft_time_limit=5)(lambda: 2)
    cpu = app.task(name="shop.cpu", queue="own")(lambda: 3)
    handlers = {task.name: task.task.handler for task in (plain, mail, cpu)}
    assert {handler.retry.attempts for handler in handlers.values()} == {2}
    for task, queue in ((plain, "main"), (mail, "mail"), (cpu, "own")):
        result = task.delay()
        assert app.admin.get(result.id).summary.queue == queue
        terms = read_options(row_of(app, result).opts).terms
        assert terms is not None
        assert terms.keep_us == 7_000_000
    assert app.admin.get(mail.delay().id).summary.priority == 3
    assert app.admin.get(cpu.delay().id).summary.limits == ("rate-shop-cpu",)


@pytest.mark.parametrize(
    "routes", [lambda name: None, ["shop.routes.route"], {"shop.*": {"exchange": "x"}}]
)
def test_routes_that_cannot_map_are_refused_when_they_are_set(make: Make, routes: object) -> None:
    with pytest.raises(BadInput, match=r"no counterpart"):
        make().conf.task_routes = routes


def test_update_state_is_seen_while_the_task_runs(app: Celery) -> None:
    seen: list[object] = []

    @app.task(bind=True, name="slow")
    def slow(self: BoundTask) -> str:
        self.update_state(state="PROGRESS", meta={"done": 3, "total": 9})
        result = app.AsyncResult(self.request.id)
        wait_for(lambda: result.info, "the note is stored")
        seen.extend([result.state, result.info])
        return "done"

    result = slow.delay()
    assert (result.state, result.info) == ("PENDING", None)
    work(app)
    assert seen == ["PROGRESS", {"done": 3, "total": 9}]
    assert (result.state, result.info) == ("SUCCESS", "done")


def test_ignored_and_rejected_tasks_end_or_run_again(app: Celery) -> None:
    runs: list[str] = []

    @app.task(name="odd")
    def odd(how: str) -> None:
        runs.append(how)
        if how == "ignore":
            raise Ignore
        if how == "reject":
            raise Reject("bad data")
        if runs.count(how) < 2:
            raise Reject("later", requeue=True)

    results = [odd.delay(how) for how in ("ignore", "reject", "requeue")]
    work(app)
    results[2].handle.retry()  # its second is not over
    work(app)
    assert [result.state for result in results] == ["REVOKED", "REVOKED", "SUCCESS"]
    assert runs.count("requeue") == 2


def test_headers_and_expires_travel_with_the_call(app: Celery) -> None:
    @app.task(bind=True, name="told", expires=60)
    def told(self: BoundTask) -> str:
        return str(self.request.headers["trace"])

    result = told.apply_async(headers={"trace": "abc"})
    assert app.admin.get(result.id).expires_us > 0
    work(app)
    assert result.get(5) == "abc"


def test_signals_call_their_receivers(make: Make) -> None:
    said: list[tuple[object, ...]] = []

    @signals.task_failure.connect
    def failed(sender: CeleryTask, task_id: str, exception: Exception, **_: object) -> None:
        said.append(("failed", sender.name, task_id, str(exception)))

    app = make()

    @app.task(name="good")
    def good() -> int:
        return 1

    @app.task(name="bad", max_retries=0)
    def bad() -> None:
        raise ValueError("no")

    signals.task_prerun.connect(lambda task_id: said.append(("ran", task_id)), sender=good)
    signals.task_postrun.connect(lambda state, **_: said.append(("post", state)))
    signals.after_task_publish.connect(lambda headers: said.append(("sent", headers["task"])))
    first, second = good.delay(), bad.delay()
    work(app)
    assert ("failed", "bad", second.id, "ValueError: no") in said
    assert ("ran", first.id) in said
    assert ("ran", second.id) not in said
    assert said.count(("post", "SUCCESS")) == said.count(("post", "FAILURE")) == 1
    assert said[:2] == [("sent", "good"), ("sent", "bad")]
