"""Labels: words about the workers that a job asks for, which are stored and shown."""

from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.web import dashboard
from tests.harness.web import Visitor


@pytest.fixture
def app() -> Any:  # noqa: ANN401  (an application, closed at the end)
    made = Dueline("memory://")
    made.task(name="echo")(print)
    yield made
    made.close()


def test_the_labels_of_a_job_are_read_while_it_waits(app: Dueline) -> None:
    echo = app.task_named("echo")
    job = echo.using(labels=["gpu", "eu", "gpu"]).using(priority=1).enqueue("a")
    assert job.labels == ("eu", "gpu")
    job.change(tags=["night"], headers={"by": "ann"})
    job.change(priority=3)
    assert (job.labels, job.tags) == (("eu", "gpu"), ("night",))
    assert echo.using(labels=["gpu"]).using(labels=[]).enqueue("b").labels == ()
    app.run_worker(burst=True)  # no worker selects by them
    assert job.status == "done"
    assert not job.labels


def test_the_dashboard_shows_labels(app: Dueline) -> None:
    job = app.task_named("echo").using(labels=["gpu", "eu"]).enqueue("a")
    page = Visitor(dashboard(app)).send("GET", f"/jobs/{job.id}")
    assert "<dt>Labels</dt><dd>eu, gpu</dd>" in page.text


@pytest.mark.parametrize(
    "labels", ["gpu", 7, [1], [""], ["a\n"], ["x" * 65], [str(number) for number in range(21)]]
)
def test_other_labels_are_refused(app: Dueline, labels: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match="label"):
        app.task_named("echo").using(labels=labels)
