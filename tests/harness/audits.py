"""Rounds of the monitor's audit."""

from dueline.coordination import notes
from dueline.monitor.audit import OVERDUE_US, audit
from tests.harness.world import LEASE_US, World


def look(world: World) -> int:
    """Audit everything, and write down what is found."""
    after: str | None = None
    count = 0
    while True:
        report = audit(world.queues.engine, after)
        assert not report.puts or world.store.commit(notes.PARTITION, report.puts)
        count += report.acts
        after = report.after
        if after is None:
            return count


def wait(world: World) -> None:
    """Let so much time pass that what is due now, or claimed, is overdue."""
    world.clock.advance(us=LEASE_US + OVERDUE_US + 1_000_000)
