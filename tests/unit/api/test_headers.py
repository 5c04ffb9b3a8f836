"""Headers: small strings that travel with a job."""

from collections.abc import Iterator
from typing import Any

import pytest

from dueline import (
    BadInput,
    BatchOptions,
    Call,
    Conflict,
    Context,
    Dueline,
    Retry,
    pipeline,
    wait_for,
)

STORES = ("memory://", "memory://?transactional=off", "sqlite://{folder}/jobs.db")


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Dueline]:  # noqa: ANN401
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))
    yield made
    made.close()


def test_headers_travel_with_every_attempt(app: Dueline) -> None:
    seen: list[tuple[str, int, dict[str, str]]] = []

    @app.task(name="look", retry=Retry(attempts=2, delays=[0]))
    def look(ctx: Context) -> None:
        seen.append((ctx.task, ctx.attempt, ctx.headers))
        ctx.headers.clear()
        if ctx.attempt == 1:
            raise ValueError

    @app.task(name="all", batch=BatchOptions(2))
    def all_of(calls: list[Call[int]]) -> None:
        seen.extend(("all", call.value, call.headers) for call in calls)

    look.enqueue()
    app.run_worker(burst=True)
    seen.clear()
    given = {"b": "2", "a": "é"}
    look.using(headers=given).using(priority=1).enqueue()
    app.enqueue_many([all_of.using(headers={"n": "1"}).call(1), all_of.call(2)])
    app.run_worker(burst=True, concurrency=1)
    assert sorted(seen, key=str) == [
        ("all", 1, {"n": "1"}), ("all", 2, {}), ("look", 1, given), ("look", 2, given),
    ]  # fmt: skip
    assert look.using(headers=given).using(headers={})._options.headers == ()


def test_a_plain_call_has_no_headers() -> None:
    app = Dueline("memory://")

    @app.task(name="look")
    def look(ctx: Context) -> dict[str, str]:
        return ctx.headers

    assert look() == {}


@pytest.mark.parametrize(
    "headers",
    [
        "a", {"a": 1}, {1: "a"}, {"": "a"}, {"a\n": "b"}, {"a": "b\n"}, {"a": "\ud800"},
        {"a" * 65: ""}, {"a": "b" * 4096}, {str(number): "" for number in range(33)},
    ],
)  # fmt: skip
def test_other_headers_are_refused(headers: Any) -> None:  # noqa: ANN401
    app = Dueline("memory://")

    @app.task(name="add")
    def add() -> None: ...

    with pytest.raises(BadInput, match="header"):
        add.using(headers=headers)


def test_headers_travel_with_the_steps_of_a_workflow(app: Dueline) -> None:
    # C21
    seen: list[tuple[str, int, dict[str, str]]] = []

    @app.task(name="look", retry=Retry(attempts=2, delays=[0]))
    def look(ctx: Context, name: str) -> str:
        seen.append((name, ctx.attempt, ctx.headers))
        if ctx.attempt == 1:
            raise ValueError
        return name + "!"

    plain = app.start(look.step("plain"))
    app.run_worker(burst=True, concurrency=1)
    assert plain.result(timeout=5) == "plain!"
    seen.clear()
    first = look.using(headers={"n": "1"}).step("a")
    flow = app.start(pipeline(first, wait_for("go"), look.using(headers={"n": "é"}).step()))
    flow.signal("go", "b")
    app.run_worker(burst=True, concurrency=1)
    assert flow.result(timeout=5) == "b!"
    assert seen == [
        ("a", 1, {"n": "1"}), ("a", 2, {"n": "1"}), ("b", 1, {"n": "é"}), ("b", 2, {"n": "é"}),
    ]  # fmt: skip


def test_headers_travel_with_the_jobs_of_a_schedule(app: Dueline) -> None:
    # C21
    seen: list[dict[str, str]] = []

    @app.task(name="look")
    def look(ctx: Context) -> None:
        seen.append(ctx.headers)

    app.schedules.set("plain", look, every=3600)
    app.schedules.set("often", look.using(headers={"by": "é"}), every=3600)
    for name in ("plain", "often"):
        app.schedules.trigger(name)
    app.run_worker(burst=True, concurrency=1)
    assert sorted(seen, key=str) == [{"by": "é"}, {}]


def test_the_headers_of_a_waiting_job_change(app: Dueline) -> None:
    # C20
    @app.task(name="look")
    def look(ctx: Context) -> dict[str, str]:
        return ctx.headers

    job = look.using(tags=["kept"]).enqueue()
    assert job.headers == {}
    job.change(headers={"by": "é"})
    job.change(tags=["kept", "more"])
    job.change(priority=3)
    assert (job.headers, job.tags) == ({"by": "é"}, ("kept", "more"))
    other = look.using(headers={"gone": "soon"}).enqueue()
    other.change(headers={})
    with pytest.raises(BadInput, match="header"):
        job.change(headers={"": "x"})
    with pytest.raises(BadInput, match="nothing to change"):
        job.change()
    app.run_worker(burst=True)
    assert (job.result(timeout=5), other.result(timeout=5)) == ({"by": "é"}, {})
    with pytest.raises(Conflict):
        job.change(headers={"by": "ann"})
    assert job.headers == {}
