"""Workflows whose caller or whose workers die."""

from collections.abc import Callable
from typing import Any

import pytest

from dueline import Dueline, EnqueueUnknown, Flow, group, pipeline
from dueline.core.errors import StoreUnavailable
from dueline.worker.workflow_steps import WorkflowSteps
from dueline.workflows import release, workflow
from tests.harness.workflow_tasks import step

CALLS: list[Any] = []


class Killed(BaseException):
    """The process is gone."""


def count(numbers: list[int]) -> int:
    CALLS.append(numbers)
    return len(numbers)


@pytest.fixture(autouse=True)
def _uncounted(app: Dueline) -> None:
    CALLS.clear()
    app.task(name="count")(count)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parked steps look for themselves after a thousandth of a second, again and again."""
    for module in (workflow, release):
        monkeypatch.setattr(module, "PARK_US", 1000)
    monkeypatch.setattr(release, "PARK_US_MAX", 1000)


def worked_off(app: Dueline, flow: Flow) -> Flow:
    while flow.status == "running":
        app.run_worker(burst=True)
    return flow


@pytest.mark.usefixtures("soon")
def test_a_callback_whose_last_child_s_worker_died_right_after_its_end_runs_once(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # W1: the end is recorded, and nobody looks at what waited for it
    flow = app.start(group(step(app, "add", n) for n in (1, 2)).then(step(app, "count")))
    with monkeypatch.context() as patch:
        patch.setattr(WorkflowSteps, "advance", lambda _: None)
        app.run_worker(burst=True)
        worked_off(app, flow)
    assert flow.result(0) == 2
    assert CALLS == [[2, 3]]


@pytest.mark.usefixtures("soon")
def test_a_worker_that_dies_while_it_releases_steps_leaves_none_behind(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = app.start(pipeline(step(app, "add", 1), group(step(app, "add"), step(app, "add"))))
    whole = release.wake_steps

    def dying(engine: Any, flow: Any, steps: Any) -> int:  # noqa: ANN401
        return whole(engine, flow, steps[:1])

    with monkeypatch.context() as patch:
        patch.setattr(release, "wake_steps", dying)
        app.run_worker(burst=True)
    worked_off(app, flow)
    assert flow.result(0) == [3, 3]


def stopping(
    app: Dueline, monkeypatch: pytest.MonkeyPatch, after: int, what: BaseException
) -> Callable[[], bool]:
    """Let the store fail at a call that writes; answer what tells whether it did."""
    monkeypatch.setattr(workflow, "_PAGE", 1)
    store: Any = app.queues.engine.store
    left = [after]

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:  # noqa: ANN401
            left[0] -= 1
            if left[0] == -1:
                raise what
            return real(*args)

        return call

    for name in ("together", "commit", "add"):
        monkeypatch.setattr(store, name, wrapped(getattr(store, name)))
    return lambda: left[0] < 0


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(7))
def test_of_a_workflow_whose_caller_is_killed_no_step_runs_early_or_twice(
    app: Dueline, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    app.queues.engine.catalog.settings("default")  # known before the store fails
    part = group(step(app, "add", n) for n in (1, 2)).then(step(app, "count"))
    with monkeypatch.context() as patch:
        has_stopped = stopping(app, patch, cut, Killed())
        try:
            app.start(part)
        except Killed:
            assert has_stopped()
    app.run_worker(burst=True)
    assert CALLS in ([], [[2, 3]])
    if has_stopped():
        assert CALLS == []
    left = [found for found, _ in app.flows()]
    if app.queues.engine.store.transactional and has_stopped():
        assert left == []
        assert list(app.queues.engine.jobs_of("default")) == []


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(7))
def test_a_start_with_unknown_outcome_is_repeated_without_duplicates(
    app: Dueline, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    app.queues.engine.catalog.settings("default")  # known before the store fails
    part = group(step(app, "add", n) for n in (1, 2)).then(step(app, "count"))
    with monkeypatch.context() as patch:
        stopping(app, patch, cut, StoreUnavailable("It is gone."))
        try:
            flow = app.start(part)
        except EnqueueUnknown as error:
            unknown: EnqueueUnknown | None = error
        except StoreUnavailable:
            assert app.queues.engine.store.transactional
            return
        else:
            unknown = None
    app.run_worker(burst=True)
    if unknown is not None:
        flow = app.start_again(unknown)
        app.run_worker(burst=True)
    assert flow.result(0) == 2
    assert CALLS == [[2, 3]]
