"""Functions that cannot be tasks, and the words of other queues (A1)."""

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dueline import BadInput, Context, Dueline


@pytest.fixture
def app() -> Dueline:
    return Dueline("memory://")


def plain(to: str) -> str:
    return to


def generator(n: int) -> Iterator[int]:
    yield n


async def async_generator(n: int) -> AsyncIterator[int]:
    yield n


class Sender:
    def send(self, to: str) -> str:
        return to

    @classmethod
    def create(cls, to: str) -> str:
        return to

    @staticmethod
    def static(to: str) -> str:
        return to


def with_ctx(ctx, to):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return ctx, to


def bound(self, to):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return self, to


@pytest.mark.parametrize(
    ("function", "what", "hint"),
    [
        (generator, "is a generator", "return a list"),
        (async_generator, "is a generator", "return a list"),
        (lambda to: to, "is a lambda", "name="),
        (Sender, "the class Sender", "Write a function"),
        (Sender.send, "Sender.send is a method", "top level"),
        (Sender().send, "must be a function", "top level"),
        (Sender.create, "must be a function", "top level"),
        (partial(plain, "ann"), "must be a function", "above a def"),
        (5, "must be a function", "above a def"),
        (with_ctx, "`ctx` without an annotation", "`ctx: Context`"),
        (bound, "`self` without an annotation", "`ctx: Context`"),
    ],
)
def test_what_no_worker_can_call_is_refused_with_what_to_do(
    app: Dueline, function: Callable[..., Any], what: str, hint: str
) -> None:
    with pytest.raises(BadInput, match=what) as raised:
        app.task(function)
    assert hint in raised.value.hint
    assert not app.tasks


def test_a_nested_function_needs_a_name(app: Dueline) -> None:
    def nested(to: str) -> str:
        return to

    with pytest.raises(BadInput, match="nested is defined inside a function") as raised:
        app.task(nested)
    assert "name=" in raised.value.hint
    assert app.task(name="nested")(nested).name == "nested"
    assert app.task(name="short")(lambda to: to).name == "short"


def test_functions_of_modules_and_static_methods_are_tasks(app: Dueline) -> None:
    assert app.task(plain)("ann") == "ann"
    assert app.task(Sender.static)("ann") == "ann"


def test_a_context_by_another_name_is_annotated(app: Dueline) -> None:
    def annotated(self: Context) -> int:
        return self.attempt

    assert app.task(name="annotated")(annotated)() == 1


@pytest.mark.parametrize(
    ("method", "word"),
    [
        ("delay", r"Write plain\.enqueue\(\.\.\.\)"),
        ("apply_async", r"Write plain\.using\(after=60\)\.enqueue"),
        ("s", r"Write plain\.step"),
        ("apply", "Write the call itself"),
    ],
)
def test_methods_of_other_queues_name_those_of_dueline(
    app: Dueline, method: str, word: str
) -> None:
    task = app.task(plain)
    with pytest.raises(AttributeError, match=word):
        getattr(task, method)
    assert not hasattr(task, method)
    with pytest.raises(AttributeError, match=r"has no attribute 'nosuch'$"):
        task.nosuch  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("attribute", "word"),
    [
        ("get", "job.result(timeout=10)"),
        ("wait", "job.result(timeout=10)"),
        ("state", "job.status"),
        ("ready", "job.status"),
        ("successful", 'job.status == "done"'),
        ("revoke", "job.cancel()"),
    ],
)
def test_attributes_of_jobs_in_other_queues_name_those_of_dueline(
    app: Dueline, attribute: str, word: str
) -> None:
    job = app.task(plain).enqueue("ann")
    with pytest.raises(AttributeError) as raised:
        getattr(job, attribute)
    assert str(raised.value) == f"Jobs have no `{attribute}`. Write {word}"
    assert not hasattr(job, "nosuch")
    assert copy.copy(job) == job


def test_methods_of_other_applications_name_those_of_dueline(app: Dueline) -> None:
    with pytest.raises(AttributeError, match=r"Write app\.send\("):
        app.send_task("shop.charge")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Dueline' object has no attribute 'nosuch'"):
        app.nosuch  # type: ignore[attr-defined]  # noqa: B018


def test_options_of_other_schedules_name_those_of_dueline(app: Dueline) -> None:
    task = app.task(plain)
    for method in (app.schedule, app.schedules.set):
        with pytest.raises(
            BadInput, match=f"`{method.__name__}` has no option `crontab`"
        ) as raised:
            method("nightly", task, crontab="0 3 * * *")  # type: ignore[arg-type]
        assert raised.value.hint == 'Use cron="30 3 * * *".'
        with pytest.raises(BadInput) as raised:
            method("nightly", task, overlaps="skip")  # type: ignore[arg-type]
        assert raised.value.hint == "Did you mean overlap=?"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
    ],
)
def test_names_of_cron_expressions_are_read(app: Dueline, name: str, fields: str) -> None:
    assert app.schedules.set("nightly", app.task(plain), ["ann"], cron=name).cron == fields


def test_a_unique_key_of_a_call_by_name_holds_its_value(app: Dueline) -> None:
    with pytest.raises(BadInput, match="has no argument of this name here") as raised:
        app.unchecked("shop.send").using(unique="u:{to}").enqueue(to="ann")
    assert raised.value.hint == 'Write the value itself, as in f"u:{to}".'


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("countdown", "Use after=60."),
        ("eta", "Use due=... with an aware datetime."),
        ("at", "Use due=... with an aware datetime."),
        ("run_at", "Use due=... with an aware datetime."),
        ("max_retries", "Use retry=Retry(attempts=...) with one more than the retries."),
        ("priorty", "Did you mean priority=?"),
        ("nosuch", ""),
    ],
)
def test_options_of_other_queues_name_those_of_dueline(
    app: Dueline, option: str, hint: str
) -> None:
    terms: dict[str, Any] = {option: 5}
    with pytest.raises(BadInput, match=f"no option `{option}`") as raised:
        app.task(plain).using(**terms)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("bind", "Use a first parameter `ctx: Context`."),
        ("max_retries", "Use retry=Retry(attempts=...), one more than the retries."),
        ("time_out", "Did you mean timeout=?"),
    ],
)
def test_options_of_tasks_of_other_queues_name_those_of_dueline(
    app: Dueline, option: str, hint: str
) -> None:
    terms: dict[str, Any] = {option: 5}
    with pytest.raises(BadInput, match=f"no option `{option}`") as raised:
        app.task(**terms)
    assert raised.value.hint == hint


def test_an_option_among_the_arguments_is_sent_to_its_place(app: Dueline) -> None:
    task: Any = app.task(plain)
    with pytest.raises(BadInput, match="unexpected keyword argument 'countdown'") as raised:
        task.enqueue("ann", countdown=5)
    assert "using(after=60).enqueue(...)" in raised.value.hint
    with pytest.raises(BadInput, match="'priority'") as raised:
        task.enqueue("ann", priority=5)
    assert "using(priority=...).enqueue(...)" in raised.value.hint
