"""Calls that are wrong: refused as BadInput, with nothing written."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dueline import BadInput, DuelineError, NotFound, Retry
from dueline.api.application import Dueline
from dueline.core.codec import DEPTH_MAX, PAYLOAD_BYTES_MAX
from dueline.core.lane import dead_queue
from tests.harness.refusals import refusal


class Bench:
    """An application with two tasks and one job, on SQLite."""

    def __init__(self, folder: Path) -> None:
        """Take a folder for the queue."""
        self.app = Dueline(f"sqlite:///{folder}/queue.db")

        def loose(value: Any) -> None:  # noqa: ANN401
            """Take anything."""

        def strict(number: int, weight: float = 0.0) -> None:
            """Take numbers."""

        self.loose: Any = self.app.task(name="loose")(loose)
        self.strict: Any = self.app.task(name="strict")(strict)
        self.loose.enqueue(1)

    def rows(self) -> list[tuple[str, int]]:
        """Count the rows of all queues, the dead included, and the settings."""
        catalog, store = self.app.queues.engine.catalog, self.app.store
        return [
            (
                queue,
                sum(
                    len(store.scan(lane, after=None, until_us=None, limit=10_000).jobs)
                    for lane in self.app.queues.engine.lanes_of(queue)
                ),
            )
            for name in catalog.names()
            for queue in (name, dead_queue(name))
        ]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Make one bench for all: nothing that is refused changes it."""
    bench = Bench(tmp_path_factory.mktemp("input"))
    yield bench
    bench.app.close()


def circle() -> list[Any]:
    """Make a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> object:
    """Make a list in a list, and so on."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


WEST = timezone(timedelta(hours=-12))
NOW = datetime.now(UTC)

VALUES: dict[str, object] = {
    "object": object(),
    "class": int,
    "function": print,
    "generator": iter(range(3)),
    "complex": 1j,
    "nan": math.nan,
    "nan inside": {"a": [1, (2.0, math.nan)]},
    "infinity": [math.inf],
    "minus infinity": -math.inf,
    "number of 5000 digits": 10**5000,
    "surrogate": "\ud800",
    "surrogate as key": {"\ud800": 1},
    "tuple as key": {(1, 2): 1},
    "circle": circle(),
    "depth": nested(DEPTH_MAX),
    "too large": "x" * PAYLOAD_BYTES_MAX,
}

WAYS: dict[str, Callable[[Bench, object], object]] = {
    "one": lambda b, value: b.loose.enqueue(value),
    "many": lambda b, value: b.loose.enqueue_many([(1,), (value,)]),
    "by keyword": lambda b, value: b.loose.enqueue(value=value),
}

CALLS: dict[str, Callable[[Bench], object]] = {
    "no argument": lambda b: b.loose.enqueue(),
    "too many arguments": lambda b: b.loose.enqueue(1, 2),
    "unknown keyword": lambda b: b.loose.enqueue(other=1),
    "argument given twice": lambda b: b.loose.enqueue(1, value=2),
    "text for int": lambda b: b.strict.enqueue("x"),
    "bool for int": lambda b: b.strict.enqueue(number=True),
    "float for int": lambda b: b.strict.enqueue(1.5),
    "none for int": lambda b: b.strict.enqueue(None),
    "naive due": lambda b: b.loose.using(due=datetime(2027, 1, 1)).enqueue(1),  # noqa: DTZ001
    "due as text": lambda b: b.loose.using(due="tomorrow").enqueue(1),
    "due as number": lambda b: b.loose.using(due=1.0).enqueue(1),
    "due too far": lambda b: b.loose.using(due=NOW + timedelta(days=3661)).enqueue(1),
    "due at the end": lambda b: b.loose.using(due=datetime.max.replace(tzinfo=WEST)).enqueue(1),
    "due before 1970": lambda b: b.loose.using(due=datetime(1969, 1, 1, tzinfo=UTC)).enqueue(1),
    "due and after": lambda b: b.loose.using(due=NOW, after=1).enqueue(1),
    "after too long": lambda b: b.loose.using(after=timedelta.max).enqueue(1),
    "after of 1e300": lambda b: b.loose.using(after=1e300).enqueue(1),
    "after below 0": lambda b: b.loose.using(after=-1).enqueue(1),
    "after not a number": lambda b: b.loose.using(after=math.nan).enqueue(1),
    "after as text": lambda b: b.loose.using(after="1s").enqueue(1),
    "priority too large": lambda b: b.loose.using(priority=2**31).enqueue(1),
    "priority too small": lambda b: b.loose.using(priority=-(2**31) - 1).enqueue(1),
    "priority as text": lambda b: b.loose.using(priority="1").enqueue(1),
    "priority as list": lambda b: b.loose.using(priority=[1]).enqueue(1),
    "priority as float": lambda b: b.loose.using(priority=1.0).enqueue(1),
    "priority as bool": lambda b: b.loose.using(priority=True).enqueue(1),
    "tenant as number": lambda b: b.loose.using(tenant=5).enqueue(1),
    "tenant as bytes": lambda b: b.loose.using(tenant=b"a").enqueue(1),
    "tenant as list": lambda b: b.loose.using(tenant=["a"]).enqueue(1),
    "tenant too long": lambda b: b.loose.using(tenant="a" * 256).enqueue(1),
    "tenant with a zero": lambda b: b.loose.using(tenant="a\0b").enqueue(1),
    "tenant with a surrogate": lambda b: b.loose.using(tenant="\udcff").enqueue(1),
    "queue as list": lambda b: b.loose.using(queue=["a"]).enqueue(1),
    "queue of the dead": lambda b: b.loose.using(queue="default!dead").enqueue(1),
    "queue with a line": lambda b: b.loose.using(queue="default\n").enqueue(1),
    "calls as number": lambda b: b.loose.enqueue_many(5),
    "calls as none": lambda b: b.loose.enqueue_many(None),
    "calls of texts": lambda b: b.loose.enqueue_many(["ab", "cd"]),
    "a call of two": lambda b: b.loose.enqueue_many([(1,), (1, 2)]),
    "a late call that fails": lambda b: b.loose.enqueue_many([(1,)] * 1200 + [(object(),)]),
    "chunk of 0": lambda b: b.loose.enqueue_many([(1,)], chunk=0),
    "chunk as text": lambda b: b.loose.enqueue_many([(1,)], chunk="10"),
    "id as text": lambda b: b.app.job("not an id"),
    "id as number": lambda b: b.app.job(cast(str, 5)),
    "id as bytes": lambda b: b.app.job(cast(str, b"a")),
    "id as none": lambda b: b.app.job(cast(str, None)),
    "no attempts": lambda _: Retry(attempts=0),
    "attempts as text": lambda _: Retry(attempts=cast(int, "3")),
    "attempts as float": lambda _: Retry(attempts=cast(int, 1.5)),
    "attempts as bool": lambda _: Retry(attempts=True),
    "base not a number": lambda _: Retry(base=math.nan),
    "base as text": lambda _: Retry(base=cast(float, "1")),
    "on a number": lambda _: Retry(on=cast(Any, 5)),
    "on a text": lambda _: Retry(on=cast(Any, ("ValueError",))),
    "timeout as text": lambda b: b.app.task(timeout=cast(float, "1s")),
    "timeout not a number": lambda b: b.app.task(timeout=math.nan),
    "timeout without end": lambda b: b.app.task(timeout=math.inf),
    "timeout of 0": lambda b: b.app.task(timeout=0),
    "kill_after as text": lambda b: b.app.task(kill_after=cast(float, "1s")),
    "kill_after before timeout": lambda b: b.app.task(timeout=2, kill_after=2),
    "retry as number": lambda b: b.app.task(retry=cast(Any, 3)),
    "task of no function": lambda b: b.app.task(cast(Any, 5)),
    "task without a name": lambda b: b.app.task(name="")(print),
    "task with two lines": lambda b: b.app.task(name="a\nb")(print),
    "task named by a number": lambda b: b.app.task(name=cast(str, 5))(print),
    "task with a surrogate": lambda b: b.app.task(name="\ud800")(print),
    "task twice": lambda b: b.app.task(name="loose")(print),
    "lease as text": lambda b: b.app.queue("other", lease=cast(float, "1s")),
    "lease of 0": lambda b: b.app.queue("other", lease=0),
    "lease not a number": lambda b: b.app.queue("other", lease=math.nan),
    "shards of 0": lambda b: b.app.queue("other", shards=0),
    "shards of 1.5": lambda b: b.app.queue("other", shards=cast(int, 1.5)),
    "shards as bool": lambda b: b.app.queue("other", shards=True),
    "shards as text": lambda b: b.app.queue("other", shards=cast(int, "2")),
    "history of another kind": lambda b: b.app.queue("other", history=cast(Any, "some")),
    "history as list": lambda b: b.app.queue("other", history=cast(Any, [])),
    "keep below 0": lambda b: b.app.queue("other", keep=-1),
    "keep for ever": lambda b: b.app.queue("other", keep=timedelta.max),
    "worker of no queue": lambda b: b.app.run_worker([], burst=True),
    "worker of a text": lambda b: b.app.run_worker(cast(Any, "default"), burst=True),
    "worker of a bad queue": lambda b: b.app.run_worker(["Default"], burst=True),
    "worker without slots": lambda b: b.app.run_worker({"default": 0}, burst=True),
    "worker of slots as text": lambda b: b.app.run_worker(cast(Any, {"default": "a"}), burst=True),
    "worker of nobody": lambda b: b.app.run_worker(concurrency=0, burst=True),
    "worker of a half": lambda b: b.app.run_worker(concurrency=cast(int, 0.5), burst=True),
    "recycled threads": lambda b: b.app.run_worker(recycle_jobs=9, burst=True),
    "recycled after 0 jobs": lambda b: b.app.run_worker(processes=1, recycle_jobs=0, burst=True),
    "recycled at 0 MiB": lambda b: b.app.run_worker(processes=1, recycle_mb=0, burst=True),
    "worker of processes below 0": lambda b: b.app.run_worker(processes=-1, burst=True),
    "drain below 0": lambda b: b.app.run_worker(drain=-1, burst=True),
    "drain as text": lambda b: b.app.run_worker(drain=cast(float, "1s"), burst=True),
    "address of a number": lambda _: Dueline(cast(str, 5)),
    "address of nothing known": lambda _: Dueline("carrier-pigeon://loft").store,
    "address with a zero": lambda _: Dueline("sqlite:////tmp/a\0b").store.describe(),
    "address with a surrogate": lambda _: Dueline("sqlite:////tmp/\ud800").store.describe(),
    "address of a folder": lambda _: Dueline("sqlite:////tmp").store.describe(),
}


def is_clear(error: DuelineError) -> bool:
    """Tell whether a message is one sentence that a person can read."""
    return 0 < len(error.message) < 400 and "Traceback" not in str(error)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_cannot_be_stored_is_refused(bench: Bench, way: str) -> None:
    before = bench.rows()
    for name, value in {**VALUES, "great depth": nested(100_000)}.items():
        error = refusal(WAYS[way], bench, value)
        assert error is not None, name
        assert is_clear(error), name
        assert bench.rows() == before, name


def test_a_wrong_call_is_refused(bench: Bench) -> None:
    before = bench.rows()
    for name, call in CALLS.items():
        error = refusal(call, bench)
        assert error is not None, name
        assert is_clear(error), name
        assert bench.rows() == before, name


def test_what_is_just_in_range_is_stored(bench: Bench) -> None:
    limits = [
        bench.loose.enqueue(nested(DEPTH_MAX - 1)),
        bench.loose.enqueue("x" * (PAYLOAD_BYTES_MAX - len('[""]'))),
        bench.loose.enqueue([None, 0.5, 10**30, "null", -(2**63)]),
        bench.loose.using(priority=2**31 - 1).enqueue(1),
        bench.loose.using(priority=-(2**31)).enqueue(1),
        bench.loose.using(due=datetime.now(UTC) + timedelta(days=3659)).enqueue(1),
        bench.loose.using(tenant="\U0001f600" * 255).enqueue(1),
    ]
    assert {job.status for job in limits} <= {"ready", "scheduled"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=70))
@example("a!dead")
@example("a'; DROP TABLE jobs; --")
@example("a" * 64)
@example("\uff41")
@example("")
def test_only_names_of_the_one_form_reach_the_store(bench: Bench, name: str) -> None:
    is_name = (
        0 < len(name) < 64
        and name[0] in "abcdefghijklmnopqrstuvwxyz"
        and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    )
    before = bench.rows()
    try:
        bench.loose.using(queue=name).enqueue(1)
    except BadInput:
        assert not is_name
        assert bench.rows() == before
    else:
        assert is_name


def test_a_job_that_is_not_there_is_not_found(bench: Bench) -> None:
    job = bench.app.job("00" * 16)
    for call in (lambda: job.status, job.cancel, job.retry, lambda: job.result(0)):
        with pytest.raises(NotFound):
            call()
