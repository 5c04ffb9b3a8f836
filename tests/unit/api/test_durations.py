"""Durations of the public API that cannot be: each is refused, and what is named."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import BatchOptions, Context, Dueline, Job, Retry, Snooze, Throttled, Unique
from dueline.api.raw_queue import RawQueue
from dueline.cli import run
from dueline.core.clock import DAY_US
from dueline.limits.usage import usage_of
from tests.harness.refusals import refusal

NOT_DURATIONS = {
    "1e300": 1e300,
    "inf": float("inf"),
    "nan": float("nan"),
    "-1": -1,
    "10**400": 10**400,
    "10**5000": 10**5000,
    "x": "x",
    "True": True,
    "timedelta.max": timedelta.max,
}


def noop() -> None:
    """Do nothing."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    app.task(name="noop")(noop)
    yield app
    app.close()


Ask = Callable[[Dueline, Any], object]


def _using(word: str) -> Ask:
    return lambda app, span: app.task_named("noop").using(**{word: span}).enqueue()


def _task(word: str) -> Ask:
    def declare(app: Any, span: Any) -> object:  # noqa: ANN401
        return app.task(name="other", **{word: span})(noop)

    return declare


def _queue(word: str) -> Ask:
    return lambda app, span: app.queue("q", **{word: span})


WAYS: dict[str, Ask] = {
    "schedule": lambda app, span: app.schedules.set("s", app.task_named("noop"), every=span),
    **{
        f"using {word}": _using(word)
        for word in ("after", "jitter", "deadline", "expires", "keep", "wait", "timeout")
    },
    "using kill_after": _using("kill_after"),
    **{f"task {word}": _task(word) for word in ("timeout", "kill_after", "keep", "deadline")},
    "task expires": _task("expires"),
    **{f"queue {word}": _queue(word) for word in ("lease", "keep", "aging")},
    "batch": lambda _, span: BatchOptions(size=2, within=span),
    "unique": lambda app, span: app.task_named("noop").using(unique=Unique("k", within=span)),
    "base": lambda _, span: Retry(base=span),
    "cap": lambda _, span: Retry(cap=span),
    "delays": lambda _, span: Retry(delays=[span]),
    "fixed": lambda _, span: Retry.fixed(span),
    "rate": lambda app, span: app.rate("r", 5, per=span),
    "lease ttl": lambda app, span: app.lease("l", ttl=span).__enter__(),
    "lease wait": lambda app, span: app.lease("l", wait=span).__enter__(),
    "stream": lambda app, span: app.stream("s", keep=span),
    "drain": lambda app, span: app.run_worker(burst=True, drain=span),
    "snooze": lambda _, span: Snooze(span),
    "throttled": lambda _, span: Throttled(span),
    "raw lease": lambda app, span: RawQueue(app, "q", lease=span),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_duration_is_refused(way: str) -> None:
    app = Dueline("memory://")
    app.task(name="noop")(noop)
    for name, span in NOT_DURATIONS.items():
        error = refusal(WAYS[way], app, span)
        assert error is not None, name
        assert error.message, name
        assert len(str(error)) < 400, name
    app.close()


@pytest.mark.parametrize(
    "words",
    [
        ("schedules", "set", "s", "noop", "--every"),
        ("worker", "--burst", "--drain"),
        ("dead", "purge", "--older-than"),
        ("health", "--max-age"),
        ("stats", "--watch"),
    ],
)
def test_commands_refuse_what_is_no_duration(
    app: Dueline, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    *start, option = words
    for text in ("1e300", "inf", "nan", "-1", "9" * 12 + "w", "x"):
        assert run(["--store", app.url, *start, f"{option}={text}"]) == 2, text
        assert "Traceback" not in capsys.readouterr().err


def _ended(
    app: Dueline, wait: Callable[[Context], object], limits: Sequence[str] = ()
) -> Job[None]:
    @app.task(name="wait", retry=Retry(attempts=2, delays=[0]), limits=limits)
    def handler(ctx: Context) -> None:
        wait(ctx)

    job = handler.enqueue()
    app.run_worker(["default"], burst=True)
    return job


@pytest.mark.parametrize(
    "wait",
    [
        lambda _: Snooze(-5),
        lambda _: Snooze(10**30),
        lambda _: Snooze(float("nan")),
        lambda _: Throttled(-1),
        lambda _: Throttled(1e11),
        lambda ctx: ctx.retry(after=-1),
        lambda ctx: ctx.retry(after=1e300),
        lambda ctx: ctx.retry(after="x"),
    ],
)
def test_a_wait_that_cannot_be_is_a_failure_like_others(
    app: Dueline, wait: Callable[[Context], object]
) -> None:
    job = _ended(app, wait)
    assert job.status == "dead"
    record = app.admin.get(str(job.id))
    assert sorted(one.outcome for one in record.attempts) == ["dead", "retried"]
    assert all(one.error.startswith("InvalidWait: ") for one in record.attempts)


def test_a_handler_suspends_its_limits_for_a_day_at_most(
    app: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    app.semaphore("api", capacity=5)

    def throttle(_: Context) -> None:
        raise Throttled(30_000_000)  # milliseconds, by mistake

    _ended(app, throttle, limits=["api"])
    suspended = usage_of(app.engine, "api")
    assert 0 < suspended.closed_us - app.engine.time.latest_us() <= DAY_US
    assert "asked to suspend its limits for 347d5h: they are suspended for a day." in caplog.text
