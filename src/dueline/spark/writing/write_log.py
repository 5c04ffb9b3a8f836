"""What a write has put.

A job that has run leaves no row, so its id alone does not tell a replay that it was put. Each
chunk of a write is recorded: the ids in it, and the instant that its jobs were born at. Where a
chunk is no transaction, the due times too, until it is whole: whoever goes on with it must put the
very same rows, whatever the data says by then. A record's key is its place in its partition's row
of chunks, so of two tasks that write the same partition at once one finds its place taken, and
looks again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Commit, Group, Move, Put, Store
from dueline.spark.writing.conflicts import reject

ROUNDS_MAX: Final = 20
_PAGE: Final = 20
_ID: Final = 16
_HEAD: Final = 9
_DUE: Final = 8
_ALIVE: Final = -1
_BEGUN, _WHOLE = b"d", b"w"

Dues = Mapping[JobId, int]
Make = Callable[[Sequence[JobId], int, Dues], Sequence[Job]]
"""Makes the jobs of some ids, as they were born at an instant; with the due times that are given,
and those of the data otherwise."""


Moves = Callable[[Sequence[Job], int], Sequence[Move]]
"""Makes the changes of jobs that are alive by another write, at an instant."""


Check = Callable[[Sequence[Job]], None]
"""Raises an error where a write must not meet one of these jobs."""


class Chunk(NamedTuple):
    """A chunk as it was recorded. is_whole: each of its jobs was put.

    dues: of the jobs that are to be put; of one that is alive by another write there is none.
    """

    key: str
    version: bytes
    now_us: int
    is_whole: bool
    ids: Sequence[JobId]
    dues: Dues


class Ledger:
    """The chunks of one partition of a write, and what other partitions of it have put."""

    def __init__(
        self,
        store: Store,
        write: str,
        partition: int,
        *,
        token: Callable[[], bytes],
        expires_us: int,
        rejects: bool = False,
    ) -> None:
        """Take the store, the write's name, the partition's number; reads what was put before.

        Args: token: makes versions. expires_us: until when a replay finds what was put.
        rejects: jobs that are alive by another write are an error.
        """
        self._store = store
        self._place = f"spark/{write}"
        self._partition = partition
        self._token = token
        self._expires_us = expires_us
        self._rejects = rejects
        self._chunks: dict[str, Chunk] = {}
        self._put: set[JobId] = set()
        self._read("")

    def put(
        self,
        ids: Sequence[JobId],
        make: Make,
        moves: Moves = lambda _living, _now_us: (),
        check: Check = lambda _living: None,
        *,
        now_us: int,
    ) -> int:
        """Put the jobs of some ids, each once and for all; tell how many were not there before.

        Args:
          moves: of those that are alive by another write; repeated where one was refused.
          check: of all that are alive, also by this write; called before any is put.

        Raises:
          StoreUnavailable: some may have been put; putting them again puts the rest.
          Conflict: a job is alive by another write, and that is to be an error; of these jobs
            none is put.
        """
        wanted = list(dict.fromkeys(ids))
        for _ in range(ROUNDS_MAX):
            fresh = wanted
            if not self._put.isdisjoint(wanted):
                fresh = [one for one in wanted if one not in self._put]
                own = self._store.find([one for one in wanted if one in self._put])
                check([row for row in own if row is not None])
            begun = self._begun(fresh)
            again = 0
            for key, some in begun.items():
                chunk = self._chunks[key]
                due = [one for one in some if one in chunk.dues]
                self._store_all(make(due, chunk.now_us, chunk.dues) if due else ())
                again += len(due)
            if begun:
                of_begun = {one for some in begun.values() for one in some}
                fresh = [one for one in fresh if one not in of_begun]
            rows = self._store.find(fresh)
            born = [one for one, row in zip(fresh, rows, strict=True) if row is None]
            if self._rejects and len(born) < len(fresh):
                self._read("")  # another task of this write may just have put them
                reject(set(fresh) - set(born) - self._known())
            living = [row for row in rows if row is not None]
            check(living)
            changes = moves(living, now_us)
            if not fresh or self._put_chunk(fresh, make(born, now_us, {}), changes, now_us):
                self._put.update(wanted)
                return len(born) + again
            self._read("")
        raise StoreUnavailable(
            f"Other tasks write the partition {self._partition} again and again.",
            hint="Let Spark run the task again.",
        )

    def close(self) -> None:
        """Say of each chunk that was begun before that it is whole, where it is."""
        for chunk in self._chunks.values():
            if not chunk.is_whole and self._put.issuperset(chunk.ids):
                self._store.commit(
                    self._place,
                    [self._record(chunk.key, chunk.now_us, chunk.ids, chunk.version)],
                )

    def _known(self) -> set[JobId]:
        """Tell what this write has put, or has begun to."""
        return {one for chunk in self._chunks.values() for one in chunk.ids} | self._put

    def _put_chunk(
        self, ids: Sequence[JobId], jobs: Sequence[Job], changes: Sequence[Move], now_us: int
    ) -> bool:
        """Put a new chunk; False where its place is taken, a change is refused, or nobody knows.

        Args: ids: in it. jobs: those of them that are not alive. changes: of the others.
        """
        own = [key for key in self._chunks if key.startswith(f"{self._partition:06}/")]
        number = max((int(key.partition("/")[2]) for key in own), default=-1) + 1
        key = f"{self._partition:06}/{number:08}"
        try:
            if self._store.transactional:
                put = self._record(key, now_us, ids, NO_VERSION)
                group = Group(changes, (Commit(self._place, (put,)),), jobs)
                held = self._store.together([group])[0]
            else:
                if changes:  # one that is refused is in somebody's hands by now
                    self._store.settle(changes)
                dues = {job.id: job.due_us for job in jobs}
                put = self._record(key, now_us, ids, NO_VERSION, dues)
                held = self._store.commit(self._place, [put])
                if held:
                    self._store_all(jobs)
                    whole = self._record(key, now_us, ids, put.version)
                    self._store.commit(self._place, [whole])
        except Unknown:
            return False
        if held:
            self._chunks[key] = Chunk(key, put.version, now_us, is_whole=True, ids=ids, dues={})
        return held

    def _store_all(self, jobs: Sequence[Job]) -> None:
        if not all(self._store.add(jobs)):
            raise StoreUnavailable("Some jobs may not be stored.", hint="Write them again.")

    def _begun(self, ids: Sequence[JobId]) -> Mapping[str, list[JobId]]:
        """Find the ids that were about to be put before, by chunk."""
        chunk_of = {
            one: chunk.key
            for chunk in self._chunks.values()
            if not chunk.is_whole
            for one in chunk.ids
        }
        if not chunk_of:
            return {}
        found: dict[str, list[JobId]] = {}
        for one in ids:
            if one in chunk_of:
                found.setdefault(chunk_of[one], []).append(one)
        return found

    def _read(self, after: str) -> None:
        for record in records_in(self._store, self._place, after=after, page_size=_PAGE):
            chunk = _chunk_of(record.key, record.version, record.value)
            self._chunks[record.key] = chunk
            if chunk.is_whole:
                self._put.update(chunk.ids)

    def _record(
        self,
        key: str,
        now_us: int,
        ids: Sequence[JobId],
        expect: bytes,
        dues: Dues | None = None,
    ) -> Put:
        """Write a chunk down; one that is only begun with the due times of what is to be put."""
        state, entries = _WHOLE, b"".join(ids)
        if dues is not None:
            state = _BEGUN
            entries = b"".join(
                one + dues.get(one, _ALIVE).to_bytes(_DUE, signed=True) for one in ids
            )
        value = state + now_us.to_bytes(8) + entries
        return Put(key, self._token(), value, expect=expect, expires_us=self._expires_us)


def _chunk_of(key: str, version: bytes, value: bytes) -> Chunk:
    is_whole = value[:1] == _WHOLE
    size = _ID if is_whole else _ID + _DUE
    entries = [value[place : place + size] for place in range(_HEAD, len(value), size)]
    ids = [JobId(one[:_ID]) for one in entries]
    dues: dict[JobId, int] = {}
    if not is_whole:
        told = (int.from_bytes(one[_ID:], signed=True) for one in entries)
        dues = {one: due_us for one, due_us in zip(ids, told, strict=True) if due_us != _ALIVE}
    return Chunk(key, version, int.from_bytes(value[1:_HEAD]), is_whole, ids, dues)
