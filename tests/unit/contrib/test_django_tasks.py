"""The contract of Django's tasks, as its own tests of backends have it (A9).

From tests/tasks of Django and tests of django-tasks and django-tasks-db: what is asked of a backend
that stores tasks for workers. Left out is what these say of their own tables and of a backend that
runs a task at once.
"""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django")

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from dueline.api.config import place_of
from dueline.api.loading import load_app
from dueline.api.raw_queue import RawQueue
from dueline.contrib.django import contract
from dueline.contrib.django.application import url_of
from dueline.contrib.django.backend import DuelineBackend
from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError
from dueline.core.queue_settings import History
from dueline.core.retry import Retry
from tests.harness import django_site
from tests.harness.clocks import HandClock
from tests.harness.django_site import tasks

READY, RUNNING = contract.TaskResultStatus.READY, contract.TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = contract.TaskResultStatus.FAILED, contract.TaskResultStatus.SUCCESSFUL


@pytest.fixture
def backend() -> Iterator[DuelineBackend]:
    """The backend, on a store of its own."""
    found = contract.task_backends["default"]
    with found.app.switched("memory://", clock=SystemClock()):
        yield found


@pytest.fixture
def sent() -> Iterator[list[tuple[str, str, str]]]:
    """What the signals say: their name, the id and the status of the result."""
    seen: list[tuple[str, str, str]] = []

    def receiver(name: str) -> Callable[..., None]:
        def receive(sender: object, task_result: contract.TaskResult, **_: object) -> None:
            assert sender is type(contract.task_backends["default"])
            seen.append((name, task_result.id, str(task_result.status)))

        return receive

    names = ("task_enqueued", "task_started", "task_finished")
    receivers = {name: receiver(name) for name in names}
    for name, receive in receivers.items():
        getattr(contract, name).connect(receive)
    yield seen
    for name, receive in receivers.items():
        getattr(contract, name).disconnect(receive)


def run(backend: DuelineBackend) -> None:
    backend.app.run_worker(burst=True)


def test_the_backend_is_that_of_the_settings_and_has_every_ability(backend: DuelineBackend) -> None:
    assert (backend.alias, backend.options) == ("default", {"STORE": "memory://"})
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert list(backend.check()) == []


@pytest.mark.parametrize("name", ["echo", "echo_later"])
def test_an_enqueued_task_is_ready(backend: DuelineBackend, name: str) -> None:
    task = getattr(tasks, name)
    result = task.enqueue(1, two=3)
    assert (result.status, result.is_finished, result.attempts) == (READY, False, 0)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.task, result.args, result.kwargs) == (task, [1], {"two": 3})
    assert result.enqueued_at <= timezone.now()
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    assert backend.get_result(result.id) == result
    assert task.get_result(result.id) == result


def test_coroutines_enqueue_and_find_results(backend: DuelineBackend) -> None:
    async def both() -> None:
        result = await tasks.add.aenqueue(1, second=2)
        assert await backend.aget_result(result.id) == result
        assert await tasks.add.aget_result(result.id) == result
        await result.arefresh()
        with pytest.raises(contract.TaskResultDoesNotExist):
            await backend.aget_result("123")

    asyncio.run(both())


@pytest.mark.parametrize("job_id", ["123", "0" * 32, ""])
def test_a_result_that_is_not_there(backend: DuelineBackend, job_id: str) -> None:
    with pytest.raises(contract.TaskResultDoesNotExist):
        backend.get_result(job_id)


def test_the_result_of_another_task_is_a_mismatch(backend: DuelineBackend) -> None:
    result = tasks.echo.enqueue()
    with pytest.raises(Exception, match="Task does not match"):
        tasks.add.get_result(result.id)


def test_a_job_of_dueline_itself_has_no_result_for_django(backend: DuelineBackend) -> None:
    own = backend.app.unchecked("shop.tasks.nowhere").enqueue()
    with pytest.raises(contract.TaskResultDoesNotExist):
        backend.get_result(own.id)


@pytest.mark.parametrize("argument", [datetime.now(UTC), {1}, object()])
def test_an_argument_that_json_cannot_carry_is_refused(
    backend: DuelineBackend, argument: object
) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.echo.enqueue(argument)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "priority must be a whole number between -100 and 100"),
        ({"priority": -101}, "priority must be a whole number between -100 and 100"),
        ({"priority": 3.1}, "priority must be a whole number between -100 and 100"),
        ({"queue_name": "other"}, "Queue 'other' is not valid for backend"),
        ({"run_after": datetime(2040, 1, 1)}, "run_after must be an aware datetime"),  # noqa: DTZ001
    ],
)
def test_options_are_checked(
    backend: DuelineBackend, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        tasks.echo.using(**options)


def test_functions_that_workers_cannot_find_are_refused(backend: DuelineBackend) -> None:
    def inside() -> None: ...

    for function in (inside, lambda: None, any):
        with pytest.raises(Exception, match="must be defined at a module level"):
            contract.task(function)


def test_options_of_the_settings_are_checked_at_the_call_too(backend: DuelineBackend) -> None:
    with override_settings(
        TASKS={"default": {"BACKEND": django_site.BACKEND, "QUEUES": [], "OPTIONS": {}}}
    ):
        other = tasks.echo.using(queue_name="other")
        assert other.queue_name == "other"
    with pytest.raises(Exception, match="Queue 'other' is not valid for backend"):
        other.enqueue()


def test_priority_queue_and_time_are_those_of_the_call(backend: DuelineBackend) -> None:
    due = timezone.now() + timedelta(hours=10)
    result = tasks.add.using(priority=-100, run_after=due).enqueue(1)
    found = backend.get_result(result.id)
    assert found.task == tasks.add.using(priority=-100, run_after=due)
    assert found.status == READY
    run(backend)
    assert backend.get_result(result.id).status == READY  # not due
    backend.app.job(result.id).reschedule(after=0)
    run(backend)
    assert backend.get_result(result.id).return_value == 2


def test_a_larger_priority_runs_first(
    backend: DuelineBackend, sent: list[tuple[str, str, str]]
) -> None:
    now = timezone.now()
    calls = {name: tasks.echo.using(priority=priority).enqueue() for name, priority in
             {"low": -2, "middle": 0, "high": 10}.items()}  # fmt: skip
    calls["past"] = tasks.echo.using(priority=20, run_after=now - timedelta(hours=2)).enqueue()
    backend.app.run_worker(burst=True, concurrency=1)
    order = [job_id for name, job_id, _ in sent if name == "task_started"]
    assert order == [calls[name].id for name in ("past", "high", "middle", "low")]


def test_times_are_naive_without_time_zones(backend: DuelineBackend) -> None:
    with override_settings(USE_TZ=False):
        due = datetime.now() + timedelta(hours=1)  # noqa: DTZ005  (what Django wants then)
        result = tasks.echo.using(run_after=due).enqueue()
        assert backend.get_result(result.id).task.run_after == due
        assert timezone.is_naive(result.enqueued_at)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "value"),
    [
        ("echo", [1, {"a": [None]}], {"two": 3}, [[1, {"a": [None]}], {"two": 3}]),
        ("echo_later", [1], {"context": 3}, [[1], {"context": 3}]),
        ("add", [1], {"second": 5}, 6),
    ],
)
def test_a_worker_runs_it(
    backend: DuelineBackend, name: str, args: list[Any], kwargs: dict[str, Any], value: object
) -> None:
    task = getattr(tasks, name)
    result = task.enqueue(*args, **kwargs)
    run(backend)
    assert result.status == READY
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (SUCCESSFUL, True, 1)
    assert result.return_value == value
    assert result.enqueued_at <= result.started_at == result.last_attempted_at
    assert result.started_at <= result.finished_at
    assert len(result.worker_ids) == 1
    assert result.worker_ids[0]
    again = backend.get_result(result.id)
    assert again == result
    assert (again.task, again.args, again.kwargs) == (task, args, kwargs)


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("refuse", "tests.harness.django_site.tasks.RefusedError", "not today\nnor tomorrow"),
        ("refuse_later", "builtins.ValueError", "not today"),
        ("leave", "builtins.SystemExit", "This task failed due to SystemExit"),
        ("return_a_function", "builtins.TypeError", "Unsupported type: <class 'function'>"),
    ],
)
def test_a_task_that_raises_has_failed(
    backend: DuelineBackend, caplog: pytest.LogCaptureFixture, name: str, path: str, text: str
) -> None:
    result = getattr(tasks, name).enqueue()
    run(backend)
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (FAILED, True, 1)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert result.started_at <= result.finished_at
    (error,) = result.errors
    assert error.exception_class_path == path
    assert issubclass(error.exception_class, BaseException)
    assert error.traceback.startswith("Traceback")
    assert error.traceback.endswith(f"{path.removeprefix('builtins.')}: {text}\n")
    (logged,) = [one for one in caplog.records if "state=FAILED" in one.getMessage()]
    assert logged.exc_info
    assert str(logged.exc_info[1]) == text


def test_each_attempt_has_its_worker_and_error(backend: DuelineBackend) -> None:
    result = tasks.refuse_thrice.enqueue()
    run(backend)
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 3)
    assert [one.exception_class for one in result.errors] == [tasks.RefusedError] * 3
    assert len(set(result.worker_ids)) == 1
    assert result.started_at < result.last_attempted_at


@pytest.mark.parametrize("history", ["attempts", "all"])
def test_attempts_are_those_that_count(backend: DuelineBackend, history: History) -> None:
    # rule F3: neither the success nor a snooze, nor other events of the history
    backend.app.queue("default", history=history)
    result = tasks.refuse_snooze_and_return.enqueue()
    job = backend.app.job(result.id)
    for _ in range(2):
        (leased,) = RawQueue(backend.app, "default").claim(1)  # it holds the job meanwhile
        RawQueue(backend.app, "default").release([leased])
        job.change(tags=["late"])
    run(backend)
    result.refresh()
    assert (result.status, result.attempts, result.return_value) == (SUCCESSFUL, 2, 2)
    (error,) = result.errors  # the history has no traceback, so not the module of its class
    assert error.exception_class is Exception
    assert error.traceback.startswith("RefusedError")
    assert all(result.worker_ids)
    assert len(set(result.worker_ids)) == 1


def test_the_context_is_that_of_the_call(backend: DuelineBackend) -> None:
    result = tasks.context_of.enqueue(shout=True)
    run(backend)
    result.refresh()
    assert result.return_value == [result.id, "RUNNING", 1, "default", True]
    with pytest.raises(Exception, match="first argument of 'context'"):
        contract.task(takes_context=True)(tasks.add.func)


def test_signals_tell_of_each_step(
    backend: DuelineBackend, sent: list[tuple[str, str, str]]
) -> None:
    done, failed = tasks.add.enqueue(1), tasks.refuse_thrice.enqueue()
    run(backend)
    for result, end in ((done, "SUCCESSFUL"), (failed, "FAILED")):
        steps = [(name, status) for name, job_id, status in sent if job_id == result.id]
        assert steps[0] == ("task_enqueued", "READY")
        assert set(steps[1:-1]) == {("task_started", "RUNNING")}
        assert steps[-1] == ("task_finished", end)
    assert len(sent) == 8


def test_a_cancelled_job_has_failed_and_its_call_is_unknown(backend: DuelineBackend) -> None:
    result = tasks.add.enqueue(1)
    backend.app.job(result.id).cancel()
    result.refresh()
    assert (result.status, result.task, len(result.errors)) == (FAILED, tasks.add, 1)
    assert backend.get_result(result.id).args == []
    for found in (tasks.add.get_result(result.id), asyncio.run(tasks.add.aget_result(result.id))):
        assert (found.status, found.task, found.args) == (FAILED, tasks.add, [])


@pytest.mark.parametrize("is_ended", [False, True])
def test_an_expired_job_has_failed(backend: DuelineBackend, *, is_ended: bool) -> None:
    clock = HandClock(SystemClock().wall_us())
    expires = timezone.now() + timedelta(minutes=1)
    with backend.app.switched("memory://", clock=clock):
        job = backend.app.known(tasks.add).call.using(expires=expires).enqueue(1)
        clock.advance(61)
        assert job.status == "expired"
        if is_ended:
            run(backend)
        result = tasks.add.get_result(job.id)
    assert (result.status, result.is_finished, result.started_at) == (FAILED, True, None)
    assert result.finished_at >= expires - timedelta(milliseconds=1)
    assert [one.traceback for one in result.errors] == ["expired\n"]


@pytest.mark.parametrize("end", ["cancelled", "expired", "lost", "poison"])
def test_an_end_without_its_handler_is_signalled(
    backend: DuelineBackend, sent: list[tuple[str, str, str]], end: str
) -> None:
    app = backend.app
    clock = HandClock(SystemClock().wall_us())
    with app.switched("memory://", clock=clock):
        if end == "expired":
            expires = timezone.now() + timedelta(minutes=1)
            job_id = app.known(tasks.add).call.using(expires=expires).enqueue(1).id
        else:
            app.queue("default", deliver="at_most_once" if end == "lost" else "at_least_once")
            job_id = tasks.add.enqueue(1).id
            for _ in range(3 if end == "poison" else 1):
                clock.advance(61)
                (leased,) = RawQueue(app, "default", lease=60).claim(1)  # and its process dies
            if end == "cancelled":
                RawQueue(app, "default", lease=60).extend([leased])
                assert not app.job(job_id).cancel()
        clock.advance(61)
        run(backend)
    assert sent[-1:] == [("task_finished", job_id, "FAILED")]
    assert [name for name, *_ in sent].count("task_finished") == 1
    assert "task_started" not in [name for name, *_ in sent]


def test_direct_calls_store_nothing(backend: DuelineBackend) -> None:
    assert tasks.add.call(1) == 2
    assert asyncio.run(tasks.echo_later.acall(5)) == [(5,), {}]
    assert backend.app.engine.catalog.names() in ([], ["default"])


def test_all_threads_share_a_store(backend: DuelineBackend) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(tasks.add.enqueue(1)))
    thread.start()
    thread.join()
    assert backend.get_result(found[0].id) == found[0]


# --- transactions -------------------------------------------------------------------------------


def test_in_a_transaction_the_job_is_enqueued_after_the_commit(
    backend: DuelineBackend, sent: list[tuple[str, str, str]]
) -> None:
    assert "default" in backend.app.queues.engine.catalog.names()  # open: the quota is its own
    backend.app.quota("default", rate=10, per=60)
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        assert (result.enqueued_at, result.status, sent) == (None, READY, [])
        with pytest.raises(contract.TaskResultDoesNotExist):
            backend.get_result(result.id)
    assert sent == [("task_enqueued", result.id, "READY")]
    assert backend.get_result(result.id) == result


def test_a_transaction_that_is_rolled_back_leaves_no_job(backend: DuelineBackend) -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(contract.TaskResultDoesNotExist):
        backend.get_result(result.id)


def test_enqueueing_does_not_wait_for_a_commit_if_told_so(backend: DuelineBackend) -> None:
    options = {"STORE": "memory://", "ENQUEUE_ON_COMMIT": False}
    changed = {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=changed), transaction.atomic():
        result = tasks.add.enqueue(1)
        assert contract.task_backends["default"].get_result(result.id) == result


def test_connections_are_closed_after_a_job(
    backend: DuelineBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(
        "dueline.contrib.django.attempt.close_old_connections",
        lambda: closed.append(threading.current_thread().name),
    )
    tasks.add.enqueue(1)
    run(backend)
    assert len(closed) == 2
    assert closed[0] == closed[1] != threading.current_thread().name


# --- settings and extras ------------------------------------------------------------------------


def test_the_checks_name_what_is_missing() -> None:
    wrong = {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": {"DATABASE": "default"}}}
    with override_settings(TASKS=wrong, INSTALLED_APPS=[]):
        found = list(contract.task_backends["default"].check())
    assert [one.id for one in found] == ["dueline.E001", "dueline.W001"]
    assert isinstance(found[0], checks.Error)
    assert "must be PostgreSQL" in found[0].msg


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"STORE": "jobs.db"}, ("dueline.E001", "has an unknown scheme")),
        ({"STORE": "memory://", "Retry": 3}, ("dueline.E002", "unknown options: 'Retry'")),
        ({"STORE": "memory://", "RETRY": 3}, ("dueline.E003", "must be a dueline.Retry (got 3)")),
        (
            {"STORE": "memory://", "DATABASE": "default"},
            ("dueline.E004", "both DATABASE and STORE"),
        ),
    ],
)
def test_the_checks_name_wrong_options(options: dict[str, Any], found: tuple[str, str]) -> None:
    with override_settings(TASKS={"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}):
        (one,) = contract.task_backends["default"].check()
    assert one.id == found[0]
    assert found[1] in one.msg


def test_a_check_creates_no_store(tmp_path: Path) -> None:
    options = {"STORE": f"sqlite:///{tmp_path}/site/jobs.db"}
    with override_settings(TASKS={"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}):
        assert list(contract.task_backends["default"].check()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_cannot_be_a_queue_is_named_with_its_setting() -> None:
    wrong = {"default": {"BACKEND": django_site.BACKEND, "QUEUES": ["Mail"]}}
    with (
        override_settings(TASKS=wrong),
        pytest.raises(ImproperlyConfigured, match=r"^QUEUES of TASKS\['default'\]: 'Mail' is not"),
    ):
        _ = contract.task_backends["default"].app


def test_tasks_have_options_of_dueline(backend: DuelineBackend) -> None:
    assert tasks.refuse_thrice.retry == Retry(attempts=3, base=0)
    handler = backend.app.tasks[tasks.refuse_thrice.module_path]
    assert handler.retry.attempts == 3
    assert backend.app.tasks[tasks.add.module_path].retry.attempts == 1
    assert dataclasses.replace(tasks.add, priority=1).priority == 1


def test_workers_know_the_tasks_of_installed_applications_and_the_queues(
    backend: DuelineBackend,
) -> None:
    assert tasks.add.module_path in backend.app.tasks
    assert set(backend.app.serving(None)) == {"default"}
    assert connection.vendor == "sqlite"


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "postgresql:///shop"),
        ({"USER": "ann", "HOST": "db"}, "postgresql://ann@db/shop"),
        (
            {"USER": "a@b", "PASSWORD": "p/w", "HOST": "db", "PORT": 5433},
            "postgresql://a%40b:p%2Fw@db:5433/shop",
        ),
        ({"HOST": "/run/pg"}, "postgresql:///shop?host=%2Frun%2Fpg"),
        (
            {"HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://db/shop?sslmode=require",
        ),
    ],
)
def test_the_url_of_a_database_of_django(changes: dict[str, Any], url: str) -> None:
    plain = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}
    assert url_of({"ENGINE": "django.db.backends.postgresql", **plain, **changes}) == url


# --- the command -------------------------------------------------------------------------------


def test_the_command_runs_a_worker_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run_command(words: list[str]) -> int:
        ran.append(words)
        return len(ran) - 1

    monkeypatch.setattr(import_module("dueline.cli.main"), "run", run_command)
    call_command("dueline_worker", "--burst", "-q", "mail:4")
    with pytest.raises(SystemExit, match="1"):
        call_command("dueline_worker", "--processes", "2", verbosity=2)
    place = "dueline.contrib.django.worker:default"
    assert ran == [
        ["worker", place, "--burst", "-q", "mail:4"],
        ["worker", place, "--processes", "2", "--verbose"],
    ]
    assert load_app(place) is contract.task_backends["default"].app
    assert place_of(load_app(place)) == place


def test_the_command_needs_a_backend_of_dueline() -> None:
    with pytest.raises(CommandError, match="doesn't exist"):
        call_command("dueline_worker", "--backend", "other")
    with pytest.raises(ConfigError, match="has no 'other'"):
        load_app("dueline.contrib.django.worker:other")
    package = contract.BaseTaskBackend.__module__.removesuffix(".base")
    other = {"default": {"BACKEND": f"{package}.dummy.DummyBackend"}}
    with override_settings(TASKS=other), pytest.raises(CommandError, match="not one of dueline"):
        call_command("dueline_worker")
