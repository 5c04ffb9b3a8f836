"""Leases, checkpoints and sequences, whatever the order of the steps."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from dueline.coordination.leases import Grant, Leases, _Holding
from dueline.coordination.sequence import Sequence
from dueline.core.ids import Ids
from dueline.core.store import Records
from dueline.log import checkpoint
from dueline.log.checkpoint import Place, open_under, read_all
from dueline.store_tests.coordination import (
    LATER,
    PLACE,
    TTL_US,
    MovedClock,
    leases_of,
    opened,
    step,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.stepped_store import SteppedMemoryStore

IDS = Ids()


def clients(turns: Turns) -> tuple[SteppedMemoryStore, SteppedMemoryStore, MovedClock]:
    """Make two clients of one cluster, led by turns, and their clock."""
    clock, cluster = MovedClock(), Cluster()
    one, two = (SteppedMemoryStore(clock, cluster=cluster, step=turns.step) for _ in range(2))
    return one, two, clock


def beat_against_takeover() -> int:
    """Let a holder beat late while another takes over; then each renews once more."""

    def lead(turns: Turns) -> None:
        one, two, clock = clients(turns)
        still = MovedClock()  # the holder's machine stands still
        holder, rival = leases_of(one, "one", still), leases_of(two, "two", clock)
        assert holder.take("a") == 1
        clock.passed_us += 2 * TTL_US
        turns.run([holder.renew, lambda: rival.hold_or_take("a")])
        holder.renew()
        rival.renew()
        assert [holder.epoch("a"), rival.epoch("a")] in ([1, None], [None, 2])

    return every_order(lead)


def takeover_of_a_checkpoint() -> int:
    """Let a stale holder write while the next one opens and writes."""

    def lead(turns: Turns) -> None:
        one, two, _ = clients(turns)
        old = opened(one, 1)
        assert old is not None
        wrote: list[tuple[int, Place | None]] = []

        def stale() -> None:
            done = step(one, old, LATER)
            if done:
                wrote.append((1, LATER))

        def fresh() -> None:
            new = open_under(two, "laws", "0", epoch=2, version=IDS.token())
            assert new is not None
            wrote.append((2, new.place))
            place = LATER if new.place else PLACE
            assert step(two, new, place) is not None

        turns.run([stale, fresh])
        # What the old one wrote was seen by the new one, or refused: nothing is read twice
        # beside a product, and nothing is skipped.
        assert wrote in ([(1, LATER), (2, LATER)], [(2, None)])
        assert read_all(one, "laws")["0"].epoch == 2

    return every_order(lead)


def two_count_in_any_order() -> None:
    def lead(turns: Turns) -> None:
        one, two, _ = clients(turns)
        given: list[int] = []

        def count(store: Records) -> None:
            given.extend(Sequence(store, "s", ids=IDS, block=2).many(3))

        turns.run([partial(count, store) for store in (one, two)])
        assert len(set(given)) == 6

    assert every_order(lead) > 5


def lease_that_revives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "_drop_doubtful", lambda _leases: None)


def beat_without_its_version(patch: pytest.MonkeyPatch) -> None:
    put = Leases._put
    patch.setattr(
        Leases,
        "_put",
        lambda leases, name, grant, expect: put(leases, name, grant, expect)._replace(expect=None),
    )


def epoch_that_stays(patch: pytest.MonkeyPatch) -> None:
    take = Leases.take

    def stay(leases: Leases, name: str) -> int | None:
        sight = leases._seen.get(name)
        if sight is not None:
            before = Grant(sight.grant.epoch - 1, *_rest(sight.grant))
            leases._seen[name] = sight._replace(grant=before)
        return take(leases, name)

    patch.setattr(Leases, "take", stay)


def _rest(grant: Grant) -> tuple[str, int, int]:
    return grant.holder, grant.ttl_us, grant.until_us


def checkpoint_without_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def read_only(
        records: Records, partition: str, key: str, *, epoch: int, version: bytes
    ) -> checkpoint.Checkpoint:
        assert version
        fresh = checkpoint.Checkpoint(partition, key)
        return read_all(records, partition).get(key, fresh)._replace(epoch=epoch)

    for place in (
        "dueline.store_tests.coordination.open_under",
        "tests.harness.cases.coordination_steps.open_under",
    ):
        patch.setattr(place, read_only)


def checkpoint_that_expects_nothing(patch: pytest.MonkeyPatch) -> None:
    commit_of = checkpoint.commit_of

    def blind(present: checkpoint.Checkpoint, wanted: checkpoint.Checkpoint) -> object:
        commit = commit_of(present, wanted)
        return commit._replace(writes=[one._replace(expect=None) for one in commit.writes])

    patch.setattr(checkpoint, "commit_of", blind)


def block_that_expects_nothing(patch: pytest.MonkeyPatch) -> None:
    high = Sequence._high
    monkey = patch

    def forgetful(numbers: Sequence) -> tuple[int, bytes | None]:
        return high(numbers)[0], None

    monkey.setattr(Sequence, "_high", forgetful)


def a_lease_is_held_from_before_its_request_was_sent() -> None:
    # R6
    clock = MovedClock()

    class Slow(MemoryStore):
        def commit(self, partition: str, writes: object) -> bool:
            clock.passed_us += TTL_US // 4
            return super().commit(partition, writes)  # type: ignore[arg-type]  # passed on

    leases = leases_of(Slow(clock), "one", clock)
    assert leases.take("office") == 1
    ends_us = leases.look()["office"].until_us
    assert leases.sure_us("office") <= ends_us - clock.wall_us()


def lease_that_counts_from_its_answer(patch: pytest.MonkeyPatch) -> None:
    write = Leases._write

    def late(leases: Leases, wanted: Mapping[str, _Holding]) -> bool:
        margin_us = leases._margin_us()
        is_written = write(leases, wanted)
        until_us = leases._clock.monotonic_us() + leases.ttl_us - margin_us
        for name in wanted if is_written else ():
            leases._held[name] = leases._held[name]._replace(sure_until_us=until_us)
        return is_written

    patch.setattr(Leases, "_write", late)


def revived() -> None:
    """Come back after a lease has lapsed, and beat."""
    clock = MovedClock()
    one = leases_of(MemoryStore(clock), "one", clock)
    assert one.take("a") == 1
    clock.passed_us += TTL_US
    one.renew()
    assert one.epoch("a") is None


def regranted() -> None:
    """Grant a lease twice."""
    clock = MovedClock()
    store = MemoryStore(clock)
    assert leases_of(store, "one", clock).take("a") == 1
    clock.passed_us += 2 * TTL_US
    assert leases_of(store, "two", clock).hold_or_take("a") == 2


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], object]] = {
    lease_that_revives: revived,
    beat_without_its_version: beat_against_takeover,
    epoch_that_stays: regranted,
    checkpoint_without_its_epoch: takeover_of_a_checkpoint,
    checkpoint_that_expects_nothing: takeover_of_a_checkpoint,
    block_that_expects_nothing: two_count_in_any_order,
    lease_that_counts_from_its_answer: a_lease_is_held_from_before_its_request_was_sent,
}
