"""Logs of durable functions that grow large."""

import pytest

from dueline import DurableContext, JobFailed, Retry
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended


def test_a_full_log_names_what_to_do(bench: AppOnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one record more than there may be."""
    monkeypatch.setattr("dueline.durable.log.RECORDS_MAX", 3)

    @bench.app.durable(name="loops", retry=Retry(attempts=1))
    def loops(ctx: DurableContext) -> None:
        for number in range(10):
            ctx.step(str, number, name="str")

    with pytest.raises(JobFailed, match="restart_with"):
        ended(bench, loops.enqueue())


def test_a_log_warns_once_at_a_tenth_of_its_size(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Record values of a fifth of the maximum, in two runs."""
    monkeypatch.setattr("dueline.durable.log.BYTES_MAX", 1000)

    @bench.app.durable(name="grows")
    def grows(ctx: DurableContext) -> None:
        for _ in range(4):
            ctx.step("x".__mul__, 50, name="value")
        ctx.sleep(1)

    ended(bench, grows.enqueue())
    assert caplog.text.count("and 1000 are allowed") == 1


def test_large_values_are_read_back(bench: AppOnBench) -> None:
    """Return more than is stored in a record itself."""

    @bench.app.durable(name="large")
    def large(ctx: DurableContext) -> int:
        value: str = ctx.step("x".__mul__, 50_000, name="large")
        ctx.sleep(1)
        return len(value)

    assert ended(bench, large.enqueue()) == 50_000
