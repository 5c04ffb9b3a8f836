"""What operators change, and what is refused (O8)."""

import pytest

from dueline.api.application import Dueline
from dueline.api.job_handle import parse_id
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.job import JobId
from dueline.core.retry import Retry


@pytest.fixture
def app() -> Dueline:
    app = Dueline("memory://")
    app.queue("kept", history="arguments")

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail(number: int) -> None:
        raise ValueError(number)

    @app.task(name="double", queue="kept", priority=3)
    def double(number: int) -> int:
        return 2 * number

    return app


def enqueued(app: Dueline, name: str, *args: int) -> JobId:
    return parse_id(app.send(name, args, queue="kept" if name == "double" else "default").id)


def test_a_dead_job_is_deleted_and_no_other(app: Dueline) -> None:
    dead = enqueued(app, "fail", 1)
    app.run_worker(burst=True)
    waiting = enqueued(app, "fail", 2)
    change = app.admin.operations("ann")
    with pytest.raises(Conflict, match="is ready and cannot be deleted"):
        change.delete(waiting)
    change.delete(dead)
    with pytest.raises(NotFound):
        change.delete(dead)
    assert app.admin.count("state:dead").jobs == 0
    assert [(action.what, action.result) for action in app.admin.actions()] == [
        ("delete", "1 jobs")
    ]


def test_all_dead_jobs_of_a_filter_are_deleted(app: Dueline) -> None:
    for number in range(3):
        enqueued(app, "fail", number)
    app.run_worker(burst=True)
    change, like = app.admin.operations("ann"), app.admin.filter("state:dead error:1")
    assert change.bulk("delete", like, "state:dead error:1").done == 1
    assert app.admin.count("state:dead").jobs == 2
    for text in ("", "state:ready"):
        with pytest.raises(BadInput, match="Only dead-letter jobs"):
            change.bulk("delete", app.admin.filter(text), text)


def test_a_done_job_runs_again_with_its_arguments(app: Dueline) -> None:
    done = enqueued(app, "double", 21)
    app.run_worker(burst=True)
    details = app.admin.get(done.hex())
    assert (details.arguments, details.has_call, details.result) == ([21], True, 42)
    again = app.admin.operations("ann").run_again(done)
    row = app.admin.get(again.hex())
    assert (row.summary.state, row.summary.task, row.arguments) == ("ready", "double", [21])
    app.run_worker(burst=True)
    assert app.job(again.hex()).result() == 42


def test_a_job_whose_arguments_are_not_kept_does_not_run_again(app: Dueline) -> None:
    dead = enqueued(app, "fail", 1)
    app.run_worker(burst=True)
    with pytest.raises(Conflict, match="are not kept") as caught:
        app.admin.operations("ann").run_again(dead)
    assert 'history="arguments"' in str(caught.value)


def test_selected_jobs_are_changed_one_by_one(app: Dueline) -> None:
    dead = [enqueued(app, "fail", number) for number in range(2)]
    app.run_worker(burst=True)
    change = app.admin.operations("ann")
    waiting = enqueued(app, "fail", 3)
    assert tuple(change.selected("retry", [*dead, waiting])) == (3, 0, 0)
    assert tuple(change.selected("delete", dead)) == (0, 0, 2)
    assert tuple(change.selected("cancel", [*dead, waiting])) == (3, 0, 0)
    with pytest.raises(BadInput, match="'explode' is not a change of jobs"):
        change.selected("explode", dead)
