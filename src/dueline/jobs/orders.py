"""Jobs that run in the order of their key, one at a time.

The entries of a key, in one partition of records, number its jobs in the order of their calls. A
row is stored before its entry, and an entry is appended on the version of the key's head (rule
J6). So an entry whose job has no row any more has ended, and the first one that has not ended may
run (rules J7 and J8): nothing is ever put before it. All others are postponed. The process that
ends a job releases the next one. While the first one runs, the next one checks soon, so a release
that was lost delays it by NEXT_US at most (rule J10).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Final, NamedTuple

from dueline.core.attempt import read_epitaph
from dueline.core.call_options import OrderPlace, order_of, read_options, waits_for_turn
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from dueline.core.features import ORDERS
from dueline.core.job import Job, JobId, State
from dueline.core.lane import bucket_of, living_queue
from dueline.core.pagination import parts_of, records_in
from dueline.core.store import (
    NO_VERSION,
    Commit,
    Delete,
    Group,
    Move,
    Put,
    Record,
    Store,
    Write,
)
from dueline.core.wakeup import place_of
from dueline.jobs.completion import stored
from dueline.jobs.moves import with_position

KIND: Final = "orders"
"""The kind of the partitions."""

CHECK_US: Final = SECOND_US
"""A job first checks its turn after this long, then after as long as it has waited."""

CHECK_US_MAX: Final = 3600 * SECOND_US

NEXT_US: Final = 30 * SECOND_US
"""Maximum time between checks of the job that comes next after one that has not ended."""

KEEP_US: Final = 30 * DAY_US
"""How long the head of a key is kept after the last call."""

_HEAD: Final = "!"  # before all entries
_PAGE: Final = 8
_AT_ONCE: Final = 100
"""Maximum number of entries in one write."""

_BEHIND: Final = 64
"""Number of deleted entries after which the head says where the others begin."""

_ROUNDS_MAX: Final = 100

_ENTRY_BYTES: Final = 20
_ELSEWHERE: Final = b"!"  # at the end of an entry whose row may be in the store that moves here

opts_of = attrgetter("opts")


class _Head(NamedTuple):
    """The head of a key. next: number of the next entry. first: no entry has a lower one."""

    next: int = 1
    first: int = 1
    version: bytes = NO_VERSION


class _Entry(NamedTuple):
    """A job in the order of its key, in the turn that it had then.

    is_elsewhere: the row may still be in the store that moves here.
    """

    number: int
    job_id: JobId
    turn: int
    is_elsewhere: bool = False

    @property
    def claimant(self) -> tuple[JobId, int]:
        """The job and its turn."""
        return self.job_id, self.turn


@dataclass
class _Key:
    """The begin of a key: its entries that have not ended, with their rows, up to two.

    Attributes:
        head: The head.
        ended: Numbers of the entries before them.
        waits: The next entry is of a job whose row has yet to arrive from another store.
    """

    head: _Head
    living: list[tuple[_Entry, Job]]
    ended: list[int]
    waits: bool = False

    def first(self) -> Job | None:
        """Return the job that may run."""
        return self.living[0][1] if self.living else None

    def is_blocked(self) -> bool:
        """Return whether the first job is dead."""
        return bool(self.living) and self.living[0][1].state == State.DEAD


class Turn(NamedTuple):
    """What a job waits for: the first job of its key, whose row this is. error: why it is dead."""

    first: Job
    is_dead: bool
    error: str = ""


def partition_of(queue: str, key: str) -> str:
    """Return the partition of a key of a queue; keys may have any characters."""
    return f"{KIND}/{queue}/{blake2b(key.encode(), digest_size=16).hexdigest()}"


def _partition_of(job: Job, order: OrderPlace) -> str:
    return partition_of(living_queue(job.lane.queue), order.key)


def _name(number: int) -> str:
    return f"{number:016x}"


# New jobs


def placed(engine: Engine, jobs: Sequence[Job]) -> Sequence[Job]:
    """Return new rows as they are to be inserted: those that come after others are postponed."""
    keys = _by_key(jobs) if any(map(opts_of, jobs)) else {}
    if not keys:
        return jobs
    engine.catalog.adopt(ORDERS)
    changed: dict[JobId, Job] = {}
    for partition, rows in keys.items():
        head = _head_of(engine, partition)
        is_free = not engine.store.read(partition, after=_name(head.first - 1), limit=1)
        for row in rows[1:] if is_free else rows:
            changed[row.id] = _parked(engine, row)
    return [changed.get(job.id, job) for job in jobs]


def _parked(engine: Engine, row: Job) -> Job:
    at_us = max(row.pos_us, row.enqueued_us + CHECK_US)
    settings = engine.catalog.settings(living_queue(row.lane.queue))
    parked = row._replace(opts=_opts_with(row, parked_us=at_us))
    return with_position(parked, at_us, width_us=settings.width_us)


def _opts_with(row: Job, **changes: object) -> bytes:
    """Return the options of a row with another place in its order."""
    options = read_options(row.opts)
    assert options.order is not None
    order = options.order._replace(**changes)  # type: ignore[arg-type]  # of its fields
    return options.changed(order=order).to_bytes()


def enlist(engine: Engine, jobs: Sequence[Job]) -> None:
    """Append entries for rows that were stored, in their order (rule J6).

    An entry too many does no harm: the job has ended when its turn comes.

    Raises:
        EnqueueUnknown: Some may have none; they get one when they are claimed.
    """
    keys = _by_key(jobs) if any(map(opts_of, jobs)) else {}
    try:
        for partition, rows in sorted(keys.items()):
            for part in parts_of(rows, _AT_ONCE):
                _append(engine, partition, part)
    except StoreUnavailable as error:
        raise EnqueueUnknown.about(jobs) from error


def _by_key(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    keys: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if (order := order_of(job)) is not None:
            keys[_partition_of(job, order)].append(job)
    return keys


def _append(engine: Engine, partition: str, rows: Sequence[Job]) -> int:
    """Append an entry for each row; return the number of the first one."""
    for _ in range(_ROUNDS_MAX):
        head = _head_of(engine, partition)
        version = engine.ids.token()
        writes: list[Write] = [
            Put(_name(number), version, row.id + _turn_of(row).to_bytes(4), expect=NO_VERSION)
            for number, row in enumerate(rows, head.next)
        ]
        after = head._replace(next=head.next + len(rows))
        writes.append(_put(after, version, engine.time.latest_us()))
        if engine.store.commit(partition, writes):
            return head.next
    raise StoreUnavailable("Other processes keep adding jobs to the order key.")


def _turn_of(row: Job) -> int:
    order = order_of(row)
    return 0 if order is None else order.turn


def _put(head: _Head, version: bytes, now_us: int) -> Put:
    """Return the write of a head that was read, and changed since."""
    value, expires_us = encode(head[:2]), now_us + KEEP_US
    return Put(_HEAD, version, value, expect=head.version, expires_us=expires_us)


def _head_of(engine: Engine, partition: str) -> _Head:
    """Read the head of a key; the entries say where it was if it has expired."""
    for record in engine.store.read(partition, after=None, limit=1):
        if record.key == _HEAD:
            following, first = decode(record.value, tuple[int, int])
            return _Head(following, first, record.version)
        last = record
        for last in records_in(engine.store, partition):  # noqa: B007  (the last one)
            pass
        return _Head(int(last.key, 16) + 1, int(record.key, 16))
    return _Head()


# What a key says


def entries_of(records: Iterable[Record]) -> Iterator[tuple[int, JobId, int]]:
    """Yield the numbers, jobs and turns of the entries among the records of a key."""
    for record in records:
        if record.key != _HEAD:
            yield _entry(record)[:3]


def _entry(record: Record) -> _Entry:
    value = record.value
    turn = int.from_bytes(value[16:_ENTRY_BYTES])
    return _Entry(int(record.key, 16), JobId(value[:16]), turn, len(value) > _ENTRY_BYTES)


def _read(engine: Engine, partitions: Iterable[str]) -> Mapping[str, _Key]:
    """Read up to two entries of each key that have not ended, and those before them."""
    keys = {partition: _Key(_head_of(engine, partition), [], []) for partition in partitions}
    after = {partition: key.head.first - 1 for partition, key in keys.items()}
    while after:
        pages: dict[str, list[_Entry]] = {}
        for partition, number in after.items():
            records = engine.store.read(partition, after=_name(number), limit=_PAGE)
            pages[partition] = list(map(_entry, records))
        rows = _rows(engine, {entry.job_id for page in pages.values() for entry in page})
        after = {}
        for partition, page in pages.items():
            key = keys[partition]
            for entry in page:
                row = rows.get(entry.job_id)
                if row is None and entry.is_elsewhere:  # rule X11
                    key.waits = True
                    break
                if row is not None and not _has_ended(row, entry.turn):
                    if all(row.id != other.id for _, other in key.living):  # it may have two
                        key.living.append((entry, row))
                elif not key.living:
                    key.ended.append(entry.number)
            is_read = key.waits or len(key.living) >= 2  # noqa: PLR2004  (the first, the next)
            if len(page) == _PAGE and not is_read:
                after[partition] = page[-1].number
    return keys


def _rows(engine: Engine, ids: Iterable[JobId]) -> dict[JobId, Job]:
    """Find rows; those that are missing twice have ended: one read may miss a row that moves."""
    rows: dict[JobId, Job] = {}
    left = list(ids)
    for _ in range(2):
        rows |= {row.id: row for row in engine.store.find(left) if row is not None}
        left = [job_id for job_id in left if job_id not in rows]
        if not left:
            break
    return rows


def _has_ended(row: Job, turn: int) -> bool:
    """Return whether a job never runs again in this turn (rules J8 and J9)."""
    order = order_of(row)
    if order is None or order.turn != turn:
        return True
    if row.outcome:
        end = stored(row).finish
        return end.outcome.state != "dead" or bool(order.skips) or end.skips
    return bool(order.skips) and row.state == State.DEAD


def is_parked(row: Job) -> bool:
    """Return whether a job waits for its turn, as its row says."""
    order = waits_for_turn(row)
    return order is not None and row.at_us == order.parked_us


def first_of(engine: Engine, queue: str, key: str) -> Job | None:
    """Return the job of a key that runs or is to run next; None for none."""
    partition = partition_of(queue, key)
    return _read(engine, [partition])[partition].first()


def judge(engine: Engine, jobs: Iterable[Job]) -> dict[JobId, Turn]:
    """Return what jobs wait for that are not the first of their keys; nothing is written."""
    waiting = {job: _partition_of(job, order) for job in jobs if (order := waits_for_turn(job))}
    if not waiting:
        return {}
    keys = _read(engine, set(waiting.values()))
    turns: dict[JobId, Turn] = {}
    for job, partition in waiting.items():
        first = keys[partition].first()
        if first is not None and first.id != job.id:
            is_dead = first.state == State.DEAD or bool(first.outcome)
            turns[job.id] = Turn(first, is_dead, read_epitaph(first.error)[0] if is_dead else "")
    return turns


def waits_for_arrival(engine: Engine, job: Job) -> bool:
    """Return whether a job waits for others whose rows have yet to arrive from another store."""
    order = waits_for_turn(job)
    if order is None:
        return False
    partition = _partition_of(job, order)
    key = _read(engine, [partition])[partition]
    return key.waits and not key.living


# Claimed jobs


def may_run(engine: Engine, jobs: Sequence[Job]) -> set[JobId]:
    """Return those claimed jobs that are the first of their keys (rule J7).

    Before one of them starts, the next one of its key is hurried (rule J10).
    """
    waiting = {job: _partition_of(job, order) for job in jobs if (order := waits_for_turn(job))}
    keys = _read(engine, set(waiting.values()))
    first = {
        job: partition for job, partition in waiting.items() if _is_first(keys[partition], job)
    }
    _hurry(engine, map(keys.__getitem__, first.values()))
    return {job.id for job in first}


def _is_first(key: _Key, job: Job) -> bool:
    return bool(key.living) and key.living[0][0].claimant == (job.id, _turn_of(job))


def postpone(engine: Engine, jobs: Sequence[Job]) -> int:
    """Postpone claimed jobs whose turn has not come, and give those an entry that have none.

    Returns:
        How many were released since.
    """
    keys = _by_key(jobs)
    if not keys:
        return 0
    now_us = engine.time.latest_us()
    moves: list[Move] = []
    for partition, rows in keys.items():
        numbers = _numbers(engine, partition, rows)
        for job in rows:
            at_us = now_us + min(_waited_us(job, now_us), NEXT_US)
            moves.append(_moved(engine, job, at_us, parked_us=at_us, number=numbers[job.id]))
    _move(engine, moves)
    _slow_down(engine, [job for job in jobs if _waited_us(job, now_us) > NEXT_US], now_us)
    return _advance(engine, keys)  # what ended between the reads and the writes (rule J10)


def _waited_us(job: Job, now_us: int) -> int:
    return max(now_us - job.enqueued_us, CHECK_US)


def _slow_down(engine: Engine, jobs: Sequence[Job], now_us: int) -> None:
    """Let jobs wait longer that were postponed, and are neither first nor next (rule J10).

    Their rows are read before the entries: a job that was released or hurried since stays.
    """
    if not jobs:
        return
    rows = [row for row in _rows(engine, (job.id for job in jobs)).values() if is_parked(row)]
    by_key = _by_key(rows)
    keys = _read(engine, by_key)
    moves: list[Move] = []
    for partition, parked in by_key.items():
        key = keys[partition]
        soon = {row.id for _, row in key.living[: 1 if key.is_blocked() else 2]}
        for row in parked:
            at_us = now_us + min(_waited_us(row, now_us), CHECK_US_MAX)
            if row.id not in soon and not key.waits:
                moves.append(_moved(engine, row, at_us, parked_us=at_us))
    _move(engine, moves)


def _numbers(engine: Engine, partition: str, rows: Sequence[Job]) -> Mapping[JobId, int]:
    """Return the numbers of the entries of rows; those that have none get one now."""
    numbers: dict[JobId, int] = {}
    wanted: dict[tuple[JobId, int], Job] = {}
    for row in rows:
        order = order_of(row)
        assert order is not None
        mine = (row.id, order.turn)
        if order.number and mine in _entries(engine, partition, order.number, 1):
            numbers[row.id] = order.number
        else:
            wanted[mine] = row
    if wanted:
        head = _head_of(engine, partition)
        for record in records_in(engine.store, partition, after=_name(head.first - 1)):
            entry = _entry(record)
            if wanted.pop(entry.claimant, None) is not None:
                numbers[entry.job_id] = entry.number
                if not wanted:
                    break
    for part in parts_of(wanted.values(), _AT_ONCE):
        first = _append(engine, partition, part)
        numbers |= {row.id: first + place for place, row in enumerate(part)}
    return numbers


def _entries(
    engine: Engine, partition: str, number: int, limit: int
) -> Iterator[tuple[JobId, int]]:
    for record in engine.store.read(partition, after=_name(number - 1), limit=limit):
        yield _entry(record).claimant


# Releases


def advance(engine: Engine, ended: Iterable[Job]) -> int:
    """Release the jobs that come after those that may have ended; return how many."""
    keys = _by_key(ended)
    return _advance(engine, keys) if keys else 0


def _advance(engine: Engine, partitions: Iterable[str]) -> int:
    """Hurry the second job of each key, release the first, and delete the entries before it.

    A release that is refused is repeated: another process may have hurried the job (rule J10).
    """
    count, left = 0, set(partitions)
    for _ in range(_ROUNDS_MAX):
        keys = _read(engine, left)
        now_us = engine.time.latest_us()
        _hurry(engine, (key for key in keys.values() if not key.is_blocked()))
        moves: dict[str, Move] = {}
        for partition, key in keys.items():
            _trim(engine, partition, key, now_us)
            row = key.first()
            if row is not None and is_parked(row):  # else it runs, or waits for its own time
                moves[partition] = _released(engine, row, now_us)
        held = _move(engine, list(moves.values()))
        count += sum(held)
        left = {partition for partition, sure in zip(moves, held, strict=True) if not sure}
        if not left:
            break
    return count


def hurry(engine: Engine, first: Iterable[Job]) -> None:
    """Hurry the jobs that come after those that are about to end by hand (rule J10)."""
    _hurry(engine, _read(engine, _by_key(first)).values())


def _hurry(engine: Engine, keys: Iterable[_Key]) -> None:
    """Let the second job of each key check soon, in case that nobody releases it (rule J10)."""
    at_us = engine.time.latest_us() + NEXT_US
    following = [row for key in keys for _, row in key.living[1:2]]
    late = [row for row in following if is_parked(row) and row.at_us > at_us]
    _move(engine, [_moved(engine, row, at_us, parked_us=at_us) for row in late])


def _move(engine: Engine, moves: Sequence[Move]) -> Sequence[bool]:
    """Move waiting jobs, and wake their workers; return which had not changed."""
    if not moves:
        return ()
    held = engine.recording_store.settle(moves)
    engine.wake(map(place_of, moves))
    return held


def _released(engine: Engine, row: Job, now_us: int) -> Move:
    return _moved(engine, row, max(row.due_us, now_us), waits=False, parked_us=0)


def _moved(engine: Engine, row: Job, at_us: int, **changes: object) -> Move:
    """Return the move of a row. changes: of its place in the order."""
    opts = _opts_with(row, **changes)
    bucket = bucket_of(at_us, engine.catalog.settings(living_queue(row.lane.queue)).width_us)
    return Move(row, at_us, engine.ids.token(), bucket, row.errors, row.crashes, row.alone,
                error=row.error, opts=opts)  # fmt: skip


def _trim(engine: Engine, partition: str, key: _Key, now_us: int) -> None:
    """Delete the entries that have ended, and note in the head where the others begin."""
    if not key.ended:
        return
    head, first = key.head, key.ended[-1] + 1
    with suppress(StoreUnavailable):  # the next process does
        for numbers in parts_of(key.ended, _AT_ONCE):
            deletes = [Delete(_name(number)) for number in numbers]
            engine.store.together([Group(commits=(Commit(partition, deletes),))])
        if first - head.first >= _BEHIND and head.version:
            put = _put(head._replace(first=first), engine.ids.token(), now_us)
            engine.store.commit(partition, [put])


# Stores that move


def copy_keys(target: Store, records: Iterable[tuple[str, Put]]) -> None:
    """Copy the heads and entries of another store, before this one is open (rule X11).

    No job of a key runs here before the rows of its entries have arrived, or have ended there.
    """
    for part in parts_of(records, _AT_ONCE):
        groups = [
            Group(commits=(Commit(partition, (_copy_of(target, partition, put),)),))
            for partition, put in part
        ]
        target.together(groups)


def _copy_of(target: Store, partition: str, put: Put) -> Put:
    if put.key != _HEAD:
        return Put(put.key, put.version, put.value[:_ENTRY_BYTES] + _ELSEWHERE)
    following, first = decode(put.value, tuple[int, int])
    for record in target.read(partition, after=None, limit=1):
        if record.key == _HEAD:  # of jobs that have all ended here
            following = max(following, decode(record.value, tuple[int, int])[0])
    return Put(_HEAD, put.version, encode((following, first)), expires_us=put.expires_us)


def is_elsewhere(put: Put) -> bool:
    """Return whether a record is an entry whose row may be in the store that moves here."""
    return put.key != _HEAD and len(put.value) > _ENTRY_BYTES


def arrive(source: Engine, target: Engine, partition: str, after: int) -> int | None:
    """Note which jobs of a key are not in another store any more, in the order of the key.

    Their rows were inserted here before they were deleted there, or they have ended there.

    Args:
        source: The other store.
        target: The store to which the jobs move.
        partition: The key.
        after: All entries up to this number have arrived.

    Returns:
        As `after`, for the next call; None if all have arrived.
    """
    left = _arrived(source, target, partition, after)
    _advance(target, [partition])
    return left


def _arrived(source: Engine, target: Engine, partition: str, after: int) -> int | None:
    while True:
        page = target.store.read(partition, after=_name(after), limit=_AT_ONCE)
        records = [record for record in page if len(record.value) > _ENTRY_BYTES]
        there = _rows(source, {_entry(record).job_id for record in records})
        for record in records:
            entry, value = _entry(record), record.value[:_ENTRY_BYTES]
            if entry.job_id in there:
                return after
            put = Put(record.key, target.ids.token(), value, expect=record.version)
            target.store.commit(partition, (put,))
            after = entry.number
        if len(page) < _AT_ONCE:
            return None
        after = int(page[-1].key, 16)


def partitions_of(jobs: Iterable[Job]) -> set[str]:
    """Return the partitions of the order keys of jobs."""
    return set(_by_key(jobs))
