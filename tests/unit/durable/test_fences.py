"""Fences of durable functions are durable once the function reads them."""

import pytest

from dueline import DurableContext
from dueline.core.store import Store
from dueline.durable import context
from dueline.testing.bench import AppOnBench
from dueline.worker import worker
from tests.harness.durable_bench import ended


def test_a_claim_is_flushed_when_the_function_reads_its_fence(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule P8: its first record flushes it otherwise
    flushed: list[str] = []

    def flush_as(name: str) -> None:
        def flush(_store: Store) -> None:
            flushed.append(name)

        monkeypatch.setattr({"worker": worker, "fence": context}[name], "flush_claims", flush)

    flush_as("worker")
    flush_as("fence")

    @bench.app.durable(name="reads")
    def reads(ctx: DurableContext) -> int:
        flushed.append("begun")
        return ctx.fence

    @bench.app.durable(name="records")
    def records(ctx: DurableContext) -> str:
        word: str = ctx.step(str, "word", name="step")
        return word

    assert ended(bench, reads.enqueue()) == 1
    assert flushed == ["begun", "fence"]
    flushed.clear()
    assert ended(bench, records.enqueue()) == "word"
    assert flushed == []
