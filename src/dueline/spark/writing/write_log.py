"""The log of what a write has added.

A finished job leaves no row, so a replay cannot see from its id that it was added. Each chunk of a
write is therefore recorded: its ids and the time when its jobs were enqueued. In stores without
transactions the record also holds the due times until the chunk is complete: a process that
resumes it must add the same rows, even if the data has changed. A record's key is the number of
the chunk in its partition. If two tasks write the same partition, the second finds its key taken,
and reads the log again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.call_options import read_options
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Commit, Group, Move, Put, Store
from dueline.jobs.decisions import joined
from dueline.jobs.unique import UniqueJobs
from dueline.spark.writing.conflicts import reject

ROUNDS_MAX: Final = 20
UNNAMED: Final = "unnamed"
"""Stands for the runs of repeated attempts, which do not know their names."""

_PAGE: Final = 20
_ID: Final = 16
_HEAD: Final = 9
_DUE: Final = 8
_ALIVE: Final = -1
_BEGUN, _WHOLE = b"d", b"w"

Dues = Mapping[JobId, int]
Make = Callable[[Sequence[JobId], int, Dues], Sequence[Job]]
"""Makes jobs from ids and the time when they were enqueued; due times override those of the
data."""


Moves = Callable[[Sequence[Job], int], Sequence[Move]]
"""Makes the changes of jobs that are unfinished from another write, at a time."""


Check = Callable[[Sequence[Job]], None]
"""Raises an error if a write must not meet one of these jobs."""


class Added(NamedTuple):
    """What became of some ids.

    Attributes:
        new: Jobs that did not exist before.
        held: Jobs that were left out because another one holds their unique key.
    """

    new: int = 0
    held: int = 0


class Chunk(NamedTuple):
    """A recorded chunk.

    Attributes:
        is_whole: Whether all of its jobs were added.
        dues: Due times of the jobs to add; jobs that exist from another write have none.
    """

    key: str
    version: bytes
    now_us: int
    is_whole: bool
    ids: Sequence[JobId]
    dues: Dues


class Ledger:
    """The chunks of one partition of a write, and what other runs of the write have added.

    The whole log is read only if another run may have written to it, or another attempt of this
    task: a run records itself before its chunks. An attempt that finds the key of its chunk taken
    reads the log, too.
    """

    def __init__(
        self,
        store: Store,
        write: str,
        partition: int,
        *,
        token: Callable[[], bytes],
        expires_us: int,
        rejects: bool = False,
        run: str = "",
        unique: UniqueJobs | None = None,
    ) -> None:
        """Open the log.

        Args:
            store: The store.
            write: Name of the write.
            partition: Number of the partition.
            token: Makes versions of records.
            expires_us: When the records expire.
            rejects: Jobs of other writes are an error.
            run: Name of this run, if this is the first attempt of its task.
            unique: Gives unique keys to jobs.
        """
        self._store = store
        self._place = f"spark/{write}"
        self._partition = partition
        self._token = token
        self._expires_us = expires_us
        self._rejects = rejects
        self._chunks: dict[str, Chunk] = {}
        self._put: set[JobId] = set()
        self._unique = unique
        if self._is_repeated(run):
            self._read()

    def put(
        self,
        ids: Sequence[JobId],
        make: Make,
        moves: Moves = lambda _living, _now_us: (),
        check: Check = lambda _living: None,
        *,
        now_us: int,
    ) -> Added:
        """Add the jobs of some ids, each once.

        Args:
            ids: Different ids.
            make: Makes the jobs.
            moves: Changes jobs that exist from another write; called again if one is rejected.
            check: Checks all existing jobs, also those of this write, before any is added.
            now_us: The time.

        Raises:
            StoreUnavailable: Some jobs may have been added; the same call adds the rest.
            Conflict: A job is unfinished from another write, and that is an error. None of these
                jobs was added.
        """
        for _ in range(ROUNDS_MAX):
            fresh = ids
            if not self._put.isdisjoint(ids):
                fresh = [job_id for job_id in ids if job_id not in self._put]
                own = self._store.find([job_id for job_id in ids if job_id in self._put])
                check([row for row in own if row is not None])
            begun = self._begun(fresh)
            again = Added()
            for key, of_chunk in begun.items():
                chunk = self._chunks[key]
                due = [job_id for job_id in of_chunk if job_id in chunk.dues]
                jobs = make(due, chunk.now_us, chunk.dues) if due else ()
                held = self._store_all(jobs)
                again = Added(again.new + len(due) - held, again.held + held)
            if begun:
                of_begun = {job_id for of_chunk in begun.values() for job_id in of_chunk}
                fresh = [job_id for job_id in fresh if job_id not in of_begun]
            rows = self._store.find(fresh)
            new = [job_id for job_id, row in zip(fresh, rows, strict=True) if row is None]
            living = [row for row in rows if row is not None]
            if self._rejects and living:
                self._read()  # another task of this write may have added them
                reject({row.id for row in living} - self._known())
            check(living)
            changes = moves(living, now_us)
            made = make(new, now_us, {}) if new else ()
            added = self._put_chunk(fresh, made, changes, now_us) if fresh else Added()
            if added is not None:
                self._put.update(ids)
                return Added(added.new + again.new, added.held + again.held)
            self._read()
        raise StoreUnavailable(
            f"Other tasks keep writing the partition {self._partition}.",
            hint="Let Spark run the task again.",
        )

    def close(self) -> None:
        """Mark chunks of earlier attempts complete where all of their jobs were added."""
        for chunk in self._chunks.values():
            if not chunk.is_whole and self._put.issuperset(chunk.ids):
                self._store.commit(
                    self._place, [self._record(chunk.key, chunk.now_us, chunk.ids, chunk.version)]
                )

    def _known(self) -> set[JobId]:
        """Return the ids that this write has added or started to add."""
        return {job_id for chunk in self._chunks.values() for job_id in chunk.ids} | self._put

    def _is_repeated(self, run: str) -> bool:
        """Return whether another run may have written chunks; record this run before its first."""
        place = f"{self._place}/runs"
        runs = {record.key for record in records_in(self._store, place, after="", page_size=_PAGE)}
        mine = {run or UNNAMED} if run or not runs else set()
        if new := mine - runs:
            puts = [Put(key, self._token(), b"", expires_us=self._expires_us) for key in new]
            self._store.commit(place, puts)
        return not run or bool((runs | mine) - {run})

    def _put_chunk(
        self, ids: Sequence[JobId], jobs: Sequence[Job], changes: Sequence[Move], now_us: int
    ) -> Added | None:
        """Add a new chunk; return None if its key is taken, a change fails, or it is unknown."""
        keys = [key for key in self._chunks if key.startswith(f"{self._partition:06}/")]
        number = max((int(key.partition("/")[2]) for key in keys), default=-1) + 1
        key = f"{self._partition:06}/{number:08}"
        stored = 0
        try:
            if self._store.transactional:
                put = self._record(key, now_us, ids, NO_VERSION)
                group = with_keys(self._unique, jobs)
                own = Group(changes, (Commit(self._place, (put,)),))
                is_put = self._store.together([joined([own, group])])[0]
                stored = len(group.jobs)
            else:
                if changes:  # a rejected change means that a worker has claimed the job
                    self._store.settle(changes)
                dues = {job.id: job.due_us for job in jobs}
                put = self._record(key, now_us, ids, NO_VERSION, dues)
                is_put = self._store.commit(self._place, [put])
                if is_put:
                    stored = len(jobs) - self._store_all(jobs)
                    whole = self._record(key, now_us, ids, put.version)
                    self._store.commit(self._place, [whole])
        except Unknown:
            return None
        if not is_put:
            return None
        self._chunks[key] = Chunk(key, put.version, now_us, is_whole=True, ids=ids, dues={})
        return Added(stored, len(jobs) - stored)

    def _store_all(self, jobs: Sequence[Job]) -> int:
        """Add jobs; return how many are left out because another job holds their key."""
        plain, keyed = _split(jobs) if self._unique else (jobs, [])
        if plain and not all(self._store.add(plain)):
            raise StoreUnavailable("Some jobs may not be stored.", hint="Repeat the write.")
        if self._unique is None:
            return 0
        return sum(self._unique.place(job, again=True).id != job.id for job in keyed)

    def _begun(self, ids: Sequence[JobId]) -> Mapping[str, list[JobId]]:
        """Find ids of incomplete chunks, by chunk."""
        chunk_of = {
            job_id: chunk.key
            for chunk in self._chunks.values()
            if not chunk.is_whole
            for job_id in chunk.ids
        }
        if not chunk_of:
            return {}
        begun: dict[str, list[JobId]] = {}
        for job_id in ids:
            if job_id in chunk_of:
                begun.setdefault(chunk_of[job_id], []).append(job_id)
        return begun

    def _read(self) -> None:
        for record in records_in(self._store, self._place, page_size=_PAGE):
            chunk = _chunk_of(record.key, record.version, record.value)
            self._chunks[record.key] = chunk
            if chunk.is_whole:
                self._put.update(chunk.ids)

    def _record(
        self, key: str, now_us: int, ids: Sequence[JobId], expect: bytes, dues: Dues | None = None
    ) -> Put:
        """Encode a chunk; an incomplete one with the due times of the jobs to add."""
        state, entries = _WHOLE, b"".join(ids)
        if dues is not None:
            state = _BEGUN
            entries = b"".join(
                job_id + dues.get(job_id, _ALIVE).to_bytes(_DUE, signed=True) for job_id in ids
            )
        value = state + now_us.to_bytes(8) + entries
        return Put(key, self._token(), value, expect=expect, expires_us=self._expires_us)


def with_keys(unique: UniqueJobs | None, jobs: Sequence[Job]) -> Group:
    """Return the writes of the jobs that get their unique key, or have none.

    Raises:
        Duplicate: A key is held, and its mode is "reject".
    """
    plain, keyed = _split(jobs) if unique else (jobs, [])
    if unique is None or not keyed:
        return Group(jobs=jobs)
    group = joined([Group(jobs=plain), *filter(None, unique.takes(keyed))])
    return group._replace(jobs=sorted(group.jobs))


def _split(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Return jobs without and with a unique key."""
    has_key = {opts for opts in {job.opts for job in jobs} if opts and read_options(opts).unique}
    plain = [job for job in jobs if job.opts not in has_key]
    return plain, [job for job in jobs if job.opts in has_key]


def _chunk_of(key: str, version: bytes, value: bytes) -> Chunk:
    is_whole = value[:1] == _WHOLE
    size = _ID if is_whole else _ID + _DUE
    entries = [value[place : place + size] for place in range(_HEAD, len(value), size)]
    ids = [JobId(entry[:_ID]) for entry in entries]
    dues: dict[JobId, int] = {}
    if not is_whole:
        due_times = (int.from_bytes(entry[_ID:], signed=True) for entry in entries)
        pairs = zip(ids, due_times, strict=True)
        dues = {job_id: due_us for job_id, due_us in pairs if due_us != _ALIVE}
    return Chunk(key, version, int.from_bytes(value[1:_HEAD]), is_whole, ids, dues)
