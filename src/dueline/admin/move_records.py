"""What `dueline move` does with each kind of record: it copies, rewrites, leaves or refuses it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from dueline.admin import bulk_runs, operations
from dueline.admin.health import PROBES
from dueline.batches import records as batches
from dueline.coordination.leases import Grant
from dueline.coordination.worker_registry import REGISTRATIONS
from dueline.coordination.worker_requests import ANSWERS
from dueline.core import blobs, features
from dueline.core.codec import decode
from dueline.core.engine import Engine
from dueline.core.errors import ConfigError
from dueline.core.job import Job, JobId
from dueline.core.pagination import parts_of, record_at, records_in
from dueline.core.queue_settings import QueueSettings, with_shards
from dueline.core.store import NO_VERSION, Commit, Delete, Group, Put, Record, Store
from dueline.core.store_capabilities import ListsRecords
from dueline.jobs import (
    attempt_lines,
    chunk_records,
    circuit_records,
    orders,
    results,
    unique_records,
)
from dueline.schedules import schedule as schedules

COPIED: Final = frozenset(
    {
        "semaphores",
        "permits",
        "rates",
        "meters",
        "quotas",
        circuit_records.KIND,
        "sequences",
        "alerts",
        batches.PARTITION,
        blobs.PARTITION,
        operations.PARTITION,
    }
)
"""Kinds of records that are copied as they are: limits with what is in use, sequences, batches,
namespaces of blobs, and what operators did."""

OF_ATTEMPTS: Final = frozenset({chunk_records.KIND, attempt_lines.KIND})
"""Kinds that hold what handlers emitted and logged: their records never change."""

REWRITTEN: Final = OF_ATTEMPTS | {
    "unique",
    "flows",
    "results",
    schedules.PARTITION,
    "queues",
    orders.KIND,
}
"""Kinds that are copied with what they belong to."""

WITH_JOBS: Final = frozenset(
    {
        "progress",
        "cancels",
        "durable",
        "durable-stopped",
        "functions",
        "dependents",
        "sections",
    }
)
"""Kinds that are copied with the rows of their jobs, and otherwise are of no use."""

LEASES: Final = "leases"
"""The kind whose epochs continue in the other store. It stays in both, so that no epoch is granted
twice where a store moves back."""

OWN: Final = frozenset(
    {
        "features",
        "moves",
        "workers",
        REGISTRATIONS,
        ANSWERS,
        PROBES,
        "wakeups",
        "monitor",
        "offices",
        "cancels-at",
        "runtimes",
        "scales",
        bulk_runs.PARTITION,
    }
)
"""Kinds about the store and its processes, which each store has for itself."""

_PAGE: Final = 500


def kind_of(partition: str) -> str:
    """Return the kind of the records in a partition."""
    return partition.partition("/")[0]


def all_records(store: Store) -> Iterator[tuple[str, Put]]:
    """Yield all records of a store, with their partitions.

    Raises: ConfigError: the store cannot list them.
    """
    if not isinstance(store, ListsRecords):
        raise ConfigError(f"A store of the kind {store.describe()['store']} cannot be moved.")
    after = None
    while True:
        page = store.all_records(after=after, limit=_PAGE)
        yield from page.records
        after = page.after
        if after is None:
            return


def copy_features(source: Engine, target: Engine) -> None:
    """Name the features in the target that rows and records of the source use."""
    for name in sorted(features.names_of(source.store) & features.KNOWN):
        target.catalog.adopt(name)


def copy_settings(source: Engine, target: Engine) -> None:
    """Give the target the queues of the source, with shards and buckets as it has them."""
    plain = source.catalog.defaults

    def adapted(theirs: QueueSettings, mine: QueueSettings) -> QueueSettings:
        shards = mine.shards if theirs.shards == plain.shards else theirs.shards
        settings = replace(theirs, width_us=mine.width_us, shards_read=mine.shards_read)
        return with_shards(settings, shards)

    for queue in source.catalog.names():
        if (entry := source.catalog.entry(queue)) is not None:
            theirs = entry.settings
            target.catalog.change(queue, lambda mine, theirs=theirs: adapted(theirs, mine))  # type: ignore[misc]


def put_new(store: Store, puts: Iterable[tuple[str, Put]]) -> None:
    """Store records, except those that exist: they were stored before, and may have changed."""
    for page in parts_of(puts, _PAGE):
        store.together([Group(commits=(Commit(part, (_new(put),)),)) for part, put in page])


def put_again(store: Store, puts: Iterable[tuple[str, Put]]) -> None:
    """Store records that never change once they are stored."""
    for page in parts_of(puts, _PAGE):
        store.together([Group(commits=(Commit(part, (put,)),)) for part, put in page])


def _new(put: Put) -> Put:
    return Put(put.key, put.version, put.value, NO_VERSION, put.expires_us)


def of_partitions(store: Store, partitions: Iterable[str]) -> Iterator[tuple[str, Put]]:
    """Yield the records of partitions whose records do not expire."""
    for partition in partitions:
        for record in records_in(store, partition):
            yield partition, Put(record.key, record.version, record.value)


def copy_leases(target: Store, leases: Iterable[tuple[str, Put]]) -> None:
    """Continue the epochs of leases in the target, so that none is granted twice (rule L1)."""
    for partition, put in leases:
        there = record_at(target, partition, put.key)
        epoch = 0 if there is None else decode(there.value, Grant).epoch
        if epoch < decode(put.value, Grant).epoch:
            expect = NO_VERSION if there is None else there.version
            target.commit(partition, (put._replace(expect=expect),))


# Unique keys


def copy_keys(source: Store, target: Store, keys: Iterable[tuple[str, Put]]) -> set[JobId]:
    """Let jobs of the source hold their keys in the target; return the ids of those jobs.

    A key that was left behind by a job that ended is not copied.
    """
    held = set[JobId]()
    for page in parts_of(keys, _PAGE):
        jobs = [decode(put.value, Job) for _, put in page]
        rows = source.find([job.id for job in jobs])
        kept = [
            (partition, unique_records.elsewhere(put))
            for (partition, put), row in zip(page, rows, strict=True)
            if row is not None or put.expires_us is not None
        ]
        put_new(target, kept)
        held |= {row.id for row in rows if row is not None}
    return held


def keys_elsewhere(target: Store) -> list[tuple[str, Put]]:
    """Return the keys of the target that jobs of the source hold for as long as they live."""
    return [
        (partition, put)
        for partition, put in all_records(target)
        if kind_of(partition) == "unique"
        and put.expires_us is None
        and unique_records.is_elsewhere(decode(put.value, Job))
    ]


def release_keys(
    source: Store, target: Store, keys: Sequence[tuple[str, Put]]
) -> list[tuple[str, Put]]:
    """Release the keys of jobs that ended in the source; return those that are still held.

    A row that moved has given its key to the target's row before it went (rule X6).
    """
    rows = [row for page in parts_of(keys, _PAGE) for row in source.find(
        [JobId(put.version) for _, put in page])]  # fmt: skip
    left = []
    for (partition, put), row in zip(keys, rows, strict=True):
        if row is not None:
            left.append((partition, put))
        elif (now := record_at(target, partition, put.key)) is not None and (
            unique_records.is_elsewhere(decode(now.value, Job))
        ):
            target.commit(partition, (Delete(put.key, expect=put.version),))
    return left


# Results


def copy_results(target: Store, puts: Iterable[tuple[str, Put]]) -> int:
    """Copy the outcomes of ended jobs; return how many records there were.

    A record that several results share is split for a store without transactions.
    """
    count = 0
    for page in parts_of(puts, _PAGE):
        count += len(page)
        if target.transactional:
            put_new(target, page)
        else:
            commits = [commit for _, put in page for commit in _separate(put)]
            target.together([Group(commits=(commit,)) for commit in commits])
    return count


def _separate(put: Put) -> Sequence[Commit]:
    """Return the writes of the outcomes in a record, each ordered by the time of its end."""
    assert put.expires_us is not None, "results expire"
    outcomes = results.outcomes_in(Record(put.key, put.version, put.value))
    return [
        results.keep(
            JobId(bytes.fromhex(digits)), outcome, keep_us=max(0, put.expires_us - outcome.ended_us)
        )
        for digits, outcome in outcomes
    ]


# The end


def delete_moved(store: Store) -> None:
    """Delete what was copied, so that the store can be filled again; results expire."""
    for partition, put in list(all_records(store)):
        if kind_of(partition) in (COPIED | REWRITTEN | WITH_JOBS) - {"results", "queues"}:
            store.commit(partition, (Delete(put.key),))
