"""Broken rules of the maintenance leader and its tasks."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from dueline.coordination import notes
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.queue_catalog import Catalog, Entry
from dueline.core.store import Put, Records
from dueline.limits import semaphore
from dueline.limits.semaphore import Permits
from dueline.log import trimming
from dueline.log.checkpoint import Checkpoint
from dueline.monitor import dead_workers, empty_queues, run_log
from dueline.streams import groups, retention

Patch = pytest.MonkeyPatch


def a_diary_that_anybody_writes(patch: Patch) -> None:
    write = run_log._write

    def unfenced(
        records: Records, expect: bytes, wanted: object, version: bytes, puts: Sequence[Put]
    ) -> bool:
        for record in records.read(notes.PARTITION, after=None, limit=9):
            if record.key == "diary/chores":
                expect = record.version
        return write(records, expect, wanted, version, puts)  # type: ignore[arg-type]

    patch.setattr(run_log, "_write", unfenced)


def claims_are_freed_without_a_look_whether_their_worker_is_back(patch: Patch) -> None:
    def let_lapse(engine: Engine, worker: str, jobs: Sequence[Job]) -> int:
        assert worker
        now_us = engine.time.earliest_us()
        return sum(
            engine.store.settle([dead_workers._expired(engine, job, now_us) for job in jobs])
        )

    patch.setattr(dead_workers, "_expire_claims", let_lapse)


def whoever_is_silent_is_dead(patch: Patch) -> None:
    patch.setattr(dead_workers.release_dead_worker, "__kwdefaults__", {"has_ended": lambda _: None})


def whoever_is_in_no_registry_is_dead(patch: Patch) -> None:
    free = dead_workers._release_claims

    def of_anybody(engine: Engine, worker: str, lane: Lane) -> int:
        return sum(free(engine, name, lane) for name in ("by hand", worker))

    patch.setattr(dead_workers, "_release_claims", of_anybody)


def permits_are_given_back_without_a_look_whether_their_worker_is_back(patch: Patch) -> None:
    def written(engine: Engine, worker: str, limit: str, left: Permits, version: bytes) -> bool:
        assert worker
        return semaphore.write(engine.store, limit, left, expect=version, ids=engine.ids)

    patch.setattr(dead_workers, "_write_permits", written)


def a_freed_claim_counts_no_crash(patch: Patch) -> None:
    expired = dead_workers._expired

    def as_if_it_waited(engine: Engine, job: Job, now_us: int) -> object:
        return expired(engine, job, now_us)._replace(state=0)

    patch.setattr(dead_workers, "_expired", as_if_it_waited)


def nobody_looks_whether_a_queue_still_stands(patch: Patch) -> None:
    def blindly(_catalog: Catalog, _lanes: object) -> None:
        """Look at nothing."""

    patch.setattr(Catalog, "used", blindly)


def a_queue_that_stands_has_all_its_shards(patch: Patch) -> None:
    patch.setattr(Entry, "stands", lambda entry, _shard: entry.leaving_us is None)


def a_mark_does_not_concern_who_puts_a_job(patch: Patch) -> None:
    def stands(entry: Entry, shard: int) -> bool:
        return shard < entry.settings.shards_read

    patch.setattr(Entry, "stands", stands)


def a_queue_vanishes_without_a_mark(patch: Patch) -> None:
    def at_once(engine: Engine, name: str, *, is_served: bool, **_: int) -> bool:
        entry = engine.catalog.entry(name)
        if entry is None or is_served:
            return False
        if any(empty_queues._left(engine, name, range(entry.settings.shards_read))):
            return False
        return engine.catalog.remove(name, entry)

    patch.setattr(empty_queues, "_advance", at_once)


def a_mark_counts_from_before_it_is_seen(patch: Patch) -> None:
    mark = Catalog.mark_leaving

    def since(catalog: Catalog, queue: str, entry: Entry, since_us: int) -> bool:
        return mark(catalog, queue, entry, since_us or catalog._clock.wall_us())

    patch.setattr(Catalog, "mark_leaving", since)


def a_marked_queue_vanishes_whatever_is_in_it(patch: Patch) -> None:
    left = empty_queues._left

    def unless_marked(engine: Engine, name: str, shards: Sequence[int]) -> Sequence[bool]:
        entry = engine.catalog.entry(name)
        return () if entry and entry.leaving_us else list(left(engine, name, shards))

    patch.setattr(empty_queues, "_left", unless_marked)


def rows_go_whoever_came_when_that_was_said(patch: Patch) -> None:
    """Read the groups once, before it is said which rows go."""
    trim_shards, needed_us = retention.trim_shards, groups.needed_us

    def once(engine: Engine, stream: str, shards: Sequence[int], old_us: int) -> retention.Trimmed:
        read: list[Mapping[int, int]] = []

        def first(records: Records, stream: str, shards: Collection[int]) -> Mapping[int, int]:
            read.append(read[0] if read else needed_us(records, stream, shards))
            return read[0]

        patch.setattr(groups, "needed_us", first)
        return trim_shards(engine, stream, shards, old_us)

    patch.setattr(retention, "trim_shards", once)


def a_group_begins_with_rows_that_were_said_to_go(patch: Patch) -> None:
    def wherever_it_stands(*given: object, **_: object) -> Checkpoint:
        (present,) = (one for one in given if isinstance(one, Checkpoint))
        return present

    patch.setattr(trimming, "move_past_trimmed", wherever_it_stands)
