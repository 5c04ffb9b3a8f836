"""Mistakes that people make in their first hours are answered with what to write."""

import asyncio
import logging
import subprocess
import sys
import time

import pytest

from dueline import Dueline, Retry
from dueline.core.errors import BadInput

pytestmark = pytest.mark.memory


@pytest.fixture
def app() -> Dueline:
    """An application."""
    return Dueline("memory://")


def test_an_awaited_job_is_named_with_what_to_await(app: Dueline) -> None:
    @app.task(name="send")
    def send() -> None: ...

    async def main() -> None:
        await send.enqueue()  # type: ignore[misc]

    with pytest.raises(TypeError, match=r"cannot be awaited; \w+ is stored.*aenqueue.*aresult"):
        asyncio.run(main())


def test_result_in_a_coroutine_is_logged_once_for_each_loop(
    app: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="send")
    def send() -> None: ...

    async def main() -> None:
        job = send.enqueue()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                job.result(timeout=0.05)

    asyncio.run(main())
    blocked = [one.getMessage() for one in caplog.records if "blocks the event loop" in one.message]
    assert len(blocked) == 1
    assert "aresult" in blocked[0]
    caplog.clear()
    with pytest.raises(TimeoutError):
        send.enqueue().result(timeout=0.05)
    assert "blocks" not in caplog.text


@pytest.mark.parametrize(
    ("option", "hint"),
    [("max_retries", "attempts=, one more"), ("delay", "Retry.fixed"), ("nope", "attempts, base")],
)
def test_an_option_that_retry_does_not_have(option: str, hint: str) -> None:
    with pytest.raises(BadInput, match=f"`Retry` has no option `{option}`") as caught:
        Retry(**{option: 3})  # type: ignore[arg-type]
    assert hint in caught.value.hint


def test_a_raised_policy_is_explained_in_the_error_of_the_job(app: Dueline) -> None:
    @app.task(name="fail", retry=Retry(attempts=1))
    def fail() -> None:
        raise Retry(attempts=3)  # type: ignore[misc]

    job = fail.enqueue()
    app.run_worker(burst=True, processes=0)
    assert "A Retry is a policy: write `ctx.retry(after=30)`" in app.admin.get(job.id).summary.error


def test_cron_above_a_plain_function_names_what_is_missing(app: Dueline) -> None:
    with pytest.raises(BadInput, match="report is not a task") as caught:

        @app.cron("0 3 * * *")  # type: ignore[type-var]
        def report() -> None: ...

    assert caught.value.hint == "Write @app.task below @app.cron(...)."


def test_the_id_of_a_context_finds_its_job(app: Dueline) -> None:
    job_id = bytes(range(16))
    assert app.job(job_id).id == job_id.hex()
    with pytest.raises(BadInput, match="is not a job id"):
        app.job(b"short")


def test_a_handler_that_waits_for_a_job_hears_of_its_slot(app: Dueline) -> None:
    @app.task(name="inner")
    def inner() -> None: ...

    @app.task(name="outer", retry=Retry(attempts=1))
    def outer() -> None:
        inner.enqueue().result(timeout=0.1)

    job = outer.enqueue()
    app.run_worker(burst=True, concurrency=1, processes=0)
    assert "keeps a slot of its worker" in app.admin.get(job.id).summary.error


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [None, 60])
def test_a_coroutine_that_blocks_the_loop_is_logged_with_its_task(
    app: Dueline, timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="shop.slow", timeout=timeout)
    async def slow() -> None:
        time.sleep(1.1)  # noqa: ASYNC251  (the mistake)

    @app.task(name="shop.quick", timeout=timeout)
    async def quick() -> None:
        await asyncio.sleep(0)

    for _ in range(2):
        slow.enqueue()
        quick.enqueue()
    app.run_worker(burst=True, processes=0)
    blocked = [one for one in caplog.records if "blocked the event loop" in one.getMessage()]
    assert [one.levelno for one in blocked] == [logging.WARNING]
    assert "task=shop.slow" in blocked[0].getMessage()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("dueline.web", "starlette", "web"),
        ("dueline.contrib.otel", "opentelemetry", "otel"),
        ("dueline.contrib.crypto", "cryptography", "crypto"),
        ("dueline.contrib.prometheus", "prometheus_client", "web"),
        ("dueline.contrib.django", "django", "django"),
        ("dueline.contrib.flask", "flask", ""),
    ],
)
def test_a_missing_extra_is_named(module: str, package: str, extra: str) -> None:
    lines = f"import sys; sys.modules[{package!r}] = None; import {module} as m; m.DuelineBackend"
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: The package {package} is not installed. "
        + (f"Run: pip install 'dueline[{extra}]'" if extra else f"Run: pip install {package}")
    )


def test_a_schedule_of_a_task_with_a_unique_key_names_both(app: Dueline) -> None:
    @app.task(name="shop.report", unique="report")
    def report() -> None: ...

    with pytest.raises(BadInput, match=r"schedule of shop\.report cannot have the option `unique`"):
        app.schedule("nightly", report, every=60)
