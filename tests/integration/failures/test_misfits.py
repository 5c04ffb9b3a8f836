"""Jobs whose arguments an old worker cannot take, for each kind of handler and runner (O9)."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline import BatchOptions, Call, Context, Dueline, DurableContext, pipeline
from dueline.core.errors import BadInput
from dueline.core.lane import dead_queue, limits_of, read_key, task_of
from dueline.testing import on_bench
from tests.harness.deploys import PATIENCE_S, rows_of, until, working

TASK = "shop.send"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def apps(url: str) -> Iterator[tuple[Dueline, Dueline]]:
    made = Dueline(url), Dueline(url)
    yield made
    for app in made:
        app.close()


def coroutine(old: Dueline, new: Dueline) -> None:
    @old.task(name=TASK)
    async def send(to: str) -> str:
        return to

    @new.task(name=TASK)
    async def send_new(to: str, subject: str = "hi") -> str:
        return f"{to} {subject}"


def with_context(old: Dueline, new: Dueline) -> None:
    @old.task(name=TASK, timeout=20)
    def send(ctx: Context, to: str) -> str:
        return to

    @new.task(name=TASK, timeout=20)
    def send_new(ctx: Context, to: str, subject: str = "hi") -> str:
        assert ctx.attempt == 1
        return f"{to} {subject}"


def limited(old: Dueline, new: Dueline) -> None:
    for app in (old, new):
        app.semaphore("post", capacity=1)

    @old.task(name=TASK, limits=["post:{to}"])
    def send(to: str) -> str:
        return to

    @new.task(name=TASK, limits=["post:{to}"])
    def send_new(to: str, subject: str = "hi") -> str:
        return f"{to} {subject}"


def durable(old: Dueline, new: Dueline) -> None:
    @old.durable(name=TASK)
    def send(ctx: DurableContext, to: str) -> str:
        return to

    @new.durable(name=TASK)
    def send_new(ctx: DurableContext, to: str, subject: str = "hi") -> str:
        return f"{to} {subject}"


def once(old: Dueline, new: Dueline) -> None:
    for app in (old, new):
        app.queue("default", deliver="at_most_once")
    old.task(name=TASK)(lambda to: to)
    new.task(name=TASK)(lambda to, subject="hi": f"{to} {subject}")


def with_middleware(old: Dueline, new: Dueline) -> None:
    class Swallows:
        def __init__(self, _: Context) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
            return kind is not None and issubclass(kind, Exception)

    old.task(name=TASK, middleware=[Swallows])(lambda to: to)
    new.task(name=TASK)(lambda to, subject="hi": f"{to} {subject}")


@pytest.mark.parametrize(
    "versions", [coroutine, with_context, limited, durable, once, with_middleware]
)
def test_each_kind_of_handler_waits(
    apps: tuple[Dueline, Dueline], versions: Callable[[Dueline, Dueline], None]
) -> None:
    old, new = apps
    versions(old, new)
    with working(old):
        job = new.task_named(TASK).using(tenant="t", priority=2).enqueue("ann", "hello")
        until(lambda: bool(read_key(task_of(rows_of(new, [job])[0].lane)).refused))
        (row,) = rows_of(new, [job])
        assert (row.errors, row.crashes, row.lane.priority) == (0, 0, 2)
        assert limits_of(row.lane) == (("post:ann",) if versions is limited else ())
        assert "do not fit shop.send" in row.error
        with working(new):
            assert job.result(timeout=PATIENCE_S) == "ann hello"
    assert not list(new.engine.jobs_of(dead_queue("default")))


def test_a_step_waits_for_a_worker_that_takes_what_it_is_given(
    apps: tuple[Dueline, Dueline],
) -> None:
    old, new = apps
    for app in apps:
        app.task(name="shop.orders")(lambda: [1, 2])

    @old.task(name=TASK)
    def send(orders: int) -> int:
        return orders

    @new.task(name=TASK)
    def send_all(orders: list[int]) -> int:
        return len(orders)

    with working(old):
        flow = new.start(pipeline(new.task_named("shop.orders").step(), send_all.step()))
        until(lambda: bool(task_of(rows_of(new, [flow.step(1)])[0].lane)))
        with working(new):
            assert flow.result(timeout=PATIENCE_S) == 2


def test_a_batch_runs_without_those_that_do_not_fit(apps: tuple[Dueline, Dueline]) -> None:
    old, new = apps

    @old.task(name=TASK, batch=BatchOptions(size=10, within=0.1))
    def send(calls: list[Call[int]]) -> list[int]:
        return [call.value for call in calls]

    @new.task(name=TASK)
    def send_new(value: int | str) -> int | str:
        return value

    jobs = [send_new.enqueue(value) for value in (1, "two", 3)]
    with working(old):
        until(lambda: bool(task_of(rows_of(new, [jobs[1]])[0].lane)))
        assert [jobs[0].result(timeout=PATIENCE_S), jobs[2].result(timeout=PATIENCE_S)] == [1, 3]
        with working(new):
            assert jobs[1].result(timeout=PATIENCE_S) == "two"


PROGRAM = """
from dueline import Dueline

app = Dueline({url!r})


@app.task(name="shop.send")
def send(to: str) -> str:
    return f"to {{to}}"
"""


@pytest.mark.slow
def test_child_processes_release_them(url: str, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(PROGRAM.format(url=url), encoding="utf-8")
    new = Dueline(url)
    new.task(name=TASK)(lambda to, subject="hi": f"{to} {subject}")
    jobs = [new.task_named(TASK).enqueue(f"a{n}", "hello") for n in range(20)]
    words = [sys.executable, "-m", "dueline", "worker", "old:app", "--processes", "1", "--burst"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 8, done.stderr  # jobs are left
    rows = rows_of(new, jobs)
    assert {(len(read_key(task_of(row.lane)).refused), row.fence) for row in rows} == {(1, 1)}
    with working(new):
        assert [job.result(timeout=PATIENCE_S) for job in jobs] == [
            f"a{n} hello" for n in range(20)
        ]
    new.close()


def test_a_test_of_the_application_raises_them() -> None:
    app = Dueline("memory://")
    app.task(name=TASK)(lambda to: to)
    with on_bench(app) as bench:
        app.unchecked(TASK).enqueue("ann", "hello")
        with pytest.raises(BadInput, match=r"do not fit shop\.send"):
            bench.drain()
