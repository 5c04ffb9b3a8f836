"""Costs of limits, as applications write them (F12)."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Context, Dueline, Throttled, pipeline
from dueline.core.job import JobId
from dueline.core.limit_costs import costs_of
from dueline.limits import rate, semaphore
from tests.harness import spending


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    app.semaphore("gpu", capacity=8)
    app.rate("tokens", 1000, per=60)
    return app


def costs(app: Dueline, job_id: str) -> Mapping[str, int]:
    row = app.engine.store.find([JobId(bytes.fromhex(job_id))])[0]
    assert row is not None
    return costs_of(row)


def test_a_cost_is_a_number_an_argument_or_a_function(app: Dueline) -> None:
    @app.task(
        name="ask",
        limits={"gpu": "units", "tokens:{model}": lambda prompt: 2 * len(prompt), "x": 1},
    )
    def ask(model: str, prompt: str, units: int = 3) -> None: ...

    job = ask.enqueue("small", "hello")
    assert costs(app, job.id) == {"gpu": 3, "tokens:small": 10}
    first, second = ask.enqueue_many([("a", "b"), {"model": "a", "prompt": "bc", "units": 1}])
    assert costs(app, first.id) == {"gpu": 3, "tokens:a": 2}
    assert costs(app, second.id) == {"gpu": 1, "tokens:a": 4}
    (third,) = ask.using(limits={"gpu": 2}).enqueue_many([("a", "b")])
    assert costs(app, third.id) == {"gpu": 2}
    fourth = ask.using(limits=["gpu"]).enqueue("a", "b")
    assert costs(app, fourth.id) == {}


@pytest.mark.parametrize(
    "cost", [0, -1, True, 2.5, 10**10, None, "nobody", lambda nobody: nobody, min]
)
def test_a_cost_that_is_none_is_refused(app: Dueline, cost: object) -> None:
    with pytest.raises(BadInput, match="gpu"):

        @app.task(name="ask", limits={"gpu": cost})
        def ask(prompt: str) -> None: ...


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda prompt: 0 * len(prompt) + 0, "must be an integer from 1"),
        (lambda prompt: 0 * len(prompt) + -5, "must be an integer from 1"),
        (lambda prompt: [prompt], "must be an integer from 1"),
        (lambda prompt: prompt.nothing, "raised AttributeError"),
        (lambda prompt: 0 * len(prompt) + 9, "cannot take 9 of the limit gpu"),
    ],
)
def test_a_call_whose_cost_is_wrong_stores_nothing(
    app: Dueline, cost: Callable[[str], Any], message: str
) -> None:
    @app.task(name="ask", limits={"gpu": cost})
    def ask(prompt: str) -> None: ...

    for enqueue in (ask.enqueue, lambda prompt: ask.enqueue_many([(prompt,)])):
        with pytest.raises(BadInput, match=message):
            enqueue("hello")
    assert list(app.queues.peek("default", 9)) == []


def test_a_limit_that_was_just_raised_has_room(app: Dueline) -> None:
    @app.task(name="use", limits={"gpu": "units", "tokens": "units"})
    def use(units: int) -> None: ...

    use.enqueue(1)  # now the producer knows the limits
    app.semaphore("gpu", capacity=50)
    app.rate("tokens", 50, per=60)
    assert costs(app, use.enqueue(50).id) == {"gpu": 50, "tokens": 50}


def test_steps_schedules_and_other_producers_carry_costs(app: Dueline) -> None:
    ran: list[int] = []

    @app.task(name="use", limits={"gpu": "units"})
    def use(units: int) -> int:
        ran.append(units)
        return units

    @app.task(name="after", limits={"gpu": 2})
    def after(units: int) -> int:
        return units

    flow = app.start(pipeline(use.step(5), after.step()))
    rows = app.queues.peek("default", 9)
    assert [costs_of(row) for row in rows] == [{"gpu": 5}]
    app.schedule("hourly", use, (4,), every=3600)
    occurrence = app.schedules.trigger("hourly")
    assert costs(app, occurrence.id) == {"gpu": 4}
    assert flow.id
    app.run_worker(burst=True)
    assert sorted(ran) == [4, 5]


def test_items_of_a_batch_have_costs_of_their_own(app: Dueline) -> None:
    @app.task(name="use", limits={"gpu": "units"})
    def use(units: int) -> int:
        return units

    use.map([1, 2, 8], name="uses")
    rows = app.queues.peek("default", 9)
    assert [costs_of(row) for row in rows] == [{"gpu": 1}, {"gpu": 2}, {"gpu": 8}]


def test_a_worker_adds_the_costs_of_its_task(app: Dueline, tmp_path: Path) -> None:
    """The producer does not know the limits."""
    seen: list[Mapping[str, int]] = []

    @app.task(name="later")
    def plain(units: int) -> None: ...

    job = plain.enqueue(7)
    other = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @other.task(name="later", limits={"gpu": "units"})
    def limited(units: int) -> None:
        seen.append(costs(other, job.id))

    other.run_worker(burst=True)  # the worker moves the job to a lane with its limits
    other.run_worker(burst=True)
    assert job.status == "done"
    assert seen == [{"gpu": 7}]
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 1])
def test_a_handler_says_what_it_took(tmp_path: Path, processes: int) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = Dueline(url)
    app.rate("tokens", 10_000, per=60)
    app.semaphore("gpu", capacity=2)
    name = "tests.harness.spending.ask"
    limits = {"tokens": 1000, "gpu": 2}
    ask = app.task(name=name, limits=limits)(spending.ask.handler.function)
    jobs = ask.enqueue_many([(number,) for number in (100, 300)])
    more = ["--processes", "1"] if processes else []
    subprocess.run(
        [sys.executable, "-m", "dueline", "worker", "tests.harness.spending:app", "--burst", *more],
        env={**os.environ, "SPENDING_STORE": url}, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert {job.status for job in jobs} == {"done"}
    meter, _ = rate.read(app.engine.store, "tokens")
    assert sum(count for _, count in meter.taken) == 100 + 300
    assert not semaphore.in_use(app.engine.store, "gpu")
    app.close()


def test_spend_names_a_limit_with_a_cost(app: Dueline) -> None:
    seen: list[str] = []

    @app.task(name="ask", limits={"tokens:{model}": 10, "gpu": 1})
    def ask(ctx: Context, model: str) -> None:
        for name, units in (("gpu", 1), ("other", 1), ("tokens", -1), ("tokens", 1.5)):
            try:
                ctx.spend(name, units)  # type: ignore[arg-type]
            except BadInput as error:
                seen.append(error.message)
        ctx.spend("tokens", 0)
        ctx.spend(f"tokens:{model}", 5)

    assert ask.enqueue("small").status == "ready"
    app.run_worker(burst=True)
    assert len(seen) == 4
    meter, _ = rate.read(app.engine.store, "tokens:small")
    assert [count for _, count in meter.taken] == [5]


NOON = "Fri, 01 May 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30),
        ({"retry-after": "0"}, 0),
        ({}, 7),
        ({"Retry-After": "soon"}, 7),
        ({"Retry-After": "-5"}, 7),
        ({"Retry-After": "9" * 30}, 86_400),
        (
            {
                "Date": "Fri, 01 May 2026 12:00:00 GMT",
                "Retry-After": "Fri, 01 May 2026 12:01:30 GMT",
            },
            90,
        ),
        (
            {
                "Date": "Fri, 01 May 2026 12:00:00 GMT",
                "Retry-After": "Fri, 01 May 2026 11:00:00 GMT",
            },
            0,
        ),
    ],
)
def test_the_wait_of_a_response(headers: Mapping[str, str], seconds: float) -> None:
    assert Throttled.from_headers(headers, default=7).after_us == seconds * 1_000_000
