"""What `depends_on` takes and refuses (W14)."""

import pytest

from dueline import BadInput, Dependency, Dueline, DurableContext, Unique
from dueline.core.call_options import AwaitedJobs

ID = "0" * 32


@pytest.fixture
def app() -> Dueline:
    """Make an application."""
    made = Dueline("memory://")
    made.task(name="work")(print)
    return made


def test_handles_and_ids_are_read(app: Dueline) -> None:
    task = app.task_named("work")
    job, flow = task.enqueue(), app.start(task.step())
    read = task.using(depends_on=[job, job.id, flow])._options.awaits
    assert read == AwaitedJobs((job._id,), (flow._id,))
    assert task.using(depends_on=Dependency(job, "skip"))._options.awaits == AwaitedJobs(
        (job._id,), (), "skip"
    )


@pytest.mark.parametrize(
    "value", [[], 5, [5], "x", ["x"], [b"x"], [ID[:-3] + f"{n:03}" for n in range(101)]]
)
def test_other_values_are_refused(app: Dueline, value: object) -> None:
    with pytest.raises(BadInput):
        app.task_named("work").using(depends_on=value)  # type: ignore[arg-type]  # it is refused


def test_words_of_failures_are_those_of_groups() -> None:
    with pytest.raises(BadInput, match="none can be collected"):
        Dependency(ID, failures="collect")  # type: ignore[arg-type]  # it is refused
    with pytest.raises(BadInput, match="failures is 'x'"):
        Dependency(ID, failures="x")  # type: ignore[arg-type]  # it is refused


def test_options_that_cannot_hold_are_refused(app: Dueline) -> None:
    using = app.task_named("work").using
    with pytest.raises(BadInput, match="`window` and `depends_on` exclude each other"):
        using(depends_on=ID, window=5)
    for mode in ("earliest", "last"):
        with pytest.raises(BadInput, match="compares due times"):
            using(depends_on=ID, unique=Unique("k", mode=mode))
    with pytest.raises(BadInput, match="schedule of work cannot have the option `depends_on`"):
        using(depends_on=ID).recurring()
    with pytest.raises(BadInput, match="`map` does not take the option `depends_on`"):
        using(depends_on=ID).map([1])


def test_a_durable_function_cannot_call_a_job_that_waits(app: Dueline) -> None:
    task = app.task_named("work")

    @app.durable(name="run")
    def run(ctx: DurableContext) -> None:
        with pytest.raises(BadInput, match="with the option `depends_on`"):
            ctx.call(task.using(depends_on=ID))

    job = run.enqueue()
    app.run_worker(burst=True)
    assert job.result(timeout=0) is None
