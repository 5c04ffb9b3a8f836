"""Rules of streams and leases, broken on purpose."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from dueline.coordination.leases import Grant, Leases, _Holding
from dueline.core.engine import Engine
from dueline.core.store import Commit, Records, Row
from dueline.core.watermark import SEALED_US, StreamShard, StreamWatermarks
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint
from dueline.log.reader import ShardReader
from dueline.streams import resharding
from dueline.streams.shard_order import ShardOrder
from dueline.streams.stream import Stream

Patch = pytest.MonkeyPatch


def a_lease_is_granted_without_a_new_epoch(patch: Patch) -> None:
    write = Leases._write

    def write_the_old_one(self: Leases, wanted: Mapping[str, _Holding]) -> bool:
        for name, one in wanted.items():
            seen = self._seen.get(name)
            if name not in self._held and seen is not None:
                old = Grant(seen.grant.epoch, self.holder, self.ttl_us, 0)
                wanted = {**wanted, name: one._replace(grant=old)}
        return write(self, wanted)

    patch.setattr(Leases, "_write", write_the_old_one)


def a_checkpoint_is_written_whoever_wrote_before(patch: Patch) -> None:
    """Let a member that lost its shard move the checkpoint back."""
    commit_of = checkpoint.commit_of

    def blind(present: Checkpoint, wanted: Checkpoint) -> Commit:
        commit = commit_of(present, wanted)
        return commit._replace(writes=[put._replace(expect=None) for put in commit.writes])

    patch.setattr(checkpoint, "commit_of", blind)


def a_checkpoint_is_not_opened_under_the_epoch(patch: Patch) -> None:
    def read_only(
        records: Records, partition: str, key: str, *, epoch: int, version: bytes
    ) -> Checkpoint:
        assert version
        fresh = Checkpoint(partition, key)
        return checkpoint.read_all(records, partition).get(key, fresh)._replace(epoch=epoch)

    patch.setattr(checkpoint, "open_under", read_only)


def the_mark_is_raised_after_the_read(patch: Patch) -> None:
    """Read up to where shall be closed, then close: what comes in between is passed."""

    def read(self: ShardReader, limit: int) -> list[Row]:
        at_us = self._time.latest_us() - self._guard_us
        page = self._store.tail(
            self._stream, self._shard, after=self.place, limit=limit, until_us=at_us
        )
        if not page.rows:
            return []
        self._store.close_until(self._stream, self._shard, at_us=at_us)
        self.place = page.after if len(page.rows) == limit else (at_us, b"\xff" * 16)
        return list(page.rows)

    patch.setattr(ShardReader, "read", read)


def a_producer_does_not_look_after_it_appends(patch: Patch) -> None:
    def look(self: StreamWatermarks, rows: Collection[Row]) -> Mapping[StreamShard, int]:
        assert self is not None
        assert rows is not None
        return {}

    patch.setattr(StreamWatermarks, "_look", look)


def a_reader_goes_beyond_the_mark(patch: Patch) -> None:
    def read(self: ShardReader, limit: int) -> Sequence[Row]:
        page = self._store.tail(self._stream, self._shard, after=self.place, limit=limit)
        self.place = page.after
        return list(page.rows)

    patch.setattr(ShardReader, "read", read)


def a_member_goes_on_when_its_lease_is_in_doubt(patch: Patch) -> None:
    def held(self: Leases) -> Collection[str]:
        return list(self._held)

    def epoch(self: Leases, name: str) -> int | None:
        one = self._held.get(name)
        return None if one is None else one.grant.epoch

    patch.setattr(Leases, "held", property(held))
    patch.setattr(Leases, "epoch", epoch)


def a_product_is_stored_without_its_position(patch: Patch) -> None:
    """Store it in one transaction, move the checkpoint later."""
    from dueline.streams.batch import Batch  # noqa: PLC0415

    def commit(self: Batch, tx: object) -> None:
        assert tx is not None
        self.check()

    patch.setattr(Batch, "commit", commit)


def new_shards_are_begun_before_the_old_ones_are_read(patch: Patch) -> None:
    patch.setattr(ShardOrder, "may_begin", lambda *_: True)


def an_old_shard_is_left_without_its_seal(patch: Patch) -> None:
    """Read it to the end that it has now."""

    def seal(self: ShardReader) -> None:
        if self._mark < SEALED_US:
            self._mark, self._has_read_all = SEALED_US, False

    patch.setattr(ShardReader, "seal", seal)

    def recut(engine: Engine, name: str, shards: int) -> None:
        close = engine.store.close_until
        engine.store.close_until = lambda *_, **__: 0  # type: ignore[method-assign]
        try:
            whole(engine, name, shards)
        finally:
            engine.store.close_until = close  # type: ignore[method-assign]

    whole = resharding.reshard
    patch.setattr(resharding, "reshard", recut)


def a_producer_takes_a_sealed_shard_for_an_open_one(patch: Patch) -> None:
    patch.setattr(Stream, "_store", Stream._sent)


def what_nobody_has_read_expires(patch: Patch) -> None:
    from dueline.streams import groups  # noqa: PLC0415

    patch.setattr(groups, "needed_us", lambda *_: {})
