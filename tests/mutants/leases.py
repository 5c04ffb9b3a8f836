"""Rules of leases, checkpoints and sequences, broken."""

from collections.abc import Mapping

import pytest

from dueline.coordination.leases import Grant, Leases, _Holding
from dueline.coordination.sequence import Sequence
from dueline.core.store import Records
from dueline.log import checkpoint
from dueline.log.checkpoint import read_all

Patch = pytest.MonkeyPatch


def lease_that_revives(patch: Patch) -> None:
    patch.setattr(Leases, "_drop_doubtful", lambda _leases: None)


def beat_without_its_version(patch: Patch) -> None:
    put = Leases._put
    patch.setattr(
        Leases,
        "_put",
        lambda leases, name, grant, expect: put(leases, name, grant, expect)._replace(expect=None),
    )


def epoch_that_stays(patch: Patch) -> None:
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


def checkpoint_without_its_epoch(patch: Patch) -> None:
    def read_only(
        records: Records, partition: str, key: str, *, epoch: int, version: bytes
    ) -> checkpoint.Checkpoint:
        assert version
        fresh = checkpoint.Checkpoint(partition, key)
        return read_all(records, partition).get(key, fresh)._replace(epoch=epoch)

    for place in (
        "dueline.store_tests.coordination.open_under",
        "tests.unit.coordination.test_steps.open_under",
    ):
        patch.setattr(place, read_only)


def checkpoint_that_expects_nothing(patch: Patch) -> None:
    commit_of = checkpoint.commit_of

    def blind(present: checkpoint.Checkpoint, wanted: checkpoint.Checkpoint) -> object:
        commit = commit_of(present, wanted)
        return commit._replace(writes=[one._replace(expect=None) for one in commit.writes])

    patch.setattr(checkpoint, "commit_of", blind)


def block_that_expects_nothing(patch: Patch) -> None:
    high = Sequence._high

    def forgetful(numbers: Sequence) -> tuple[int, bytes | None]:
        return high(numbers)[0], None

    patch.setattr(Sequence, "_high", forgetful)


def lease_that_counts_from_its_answer(patch: Patch) -> None:
    write = Leases._write

    def late(leases: Leases, wanted: Mapping[str, _Holding]) -> bool:
        margin_us = leases._margin_us()
        is_written = write(leases, wanted)
        until_us = leases._clock.monotonic_us() + leases.ttl_us - margin_us
        for name in wanted if is_written else ():
            leases._held[name] = leases._held[name]._replace(sure_until_us=until_us)
        return is_written

    patch.setattr(Leases, "_write", late)
