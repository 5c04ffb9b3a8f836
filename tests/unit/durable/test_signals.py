"""Signals of durable functions: how long they stay."""

from dueline import DurableContext
from dueline.durable.signals import KEEP_TAKEN_US, read_inbox
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended

DAY_S = KEEP_TAKEN_US / 1_000_000


def test_a_signal_goes_a_day_after_it_was_taken(bench: AppOnBench) -> None:
    """Take signals of a function that goes on for days; a repeat of a fresh one is no second."""
    # rule D12
    store = bench.app.engine.store

    @bench.app.durable(name="counts")
    def counts(ctx: DurableContext) -> list[str]:
        return [ctx.wait_signal("go", type=str) for _ in range(4)]

    job = counts.enqueue()
    for word in ("a", "b", "c"):
        bench.drain()
        job.signal("go", word, id=word)
        bench.drain()
        job.signal("go", word, id=word)
        kept = [signal.key for signal in read_inbox(store, job._id).signals]
        assert kept == [f"go/{word}"] if word != "b" else ["go/a", "go/b"]
        bench.clock.advance(DAY_S - 10 if word == "a" else DAY_S + 10)
    bench.drain()
    job.signal("go", "d")
    assert ended(bench, job) == ["a", "b", "c", "d"]
