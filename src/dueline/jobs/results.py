"""Outcomes of ended jobs, kept for a limited time.

An outcome has a time to live; a live job never has one (rule A5).

Jobs that succeed together share records, as their attempts share rows of the history. The key of
such a record names a cell, a range of ids, in which a reader of one of its jobs looks. There are
cells of two sizes: ids of one call count up, and ids of separate calls differ by their timestamps.
Jobs that are few in their cells have records of their own. So have those with long results or with
options, and those whose ids are not random: several processes may add these (rule E7).

On stores without transactions, a process that completes the end of a job writes its result again,
in another record with the same content.
Hot path: the benchmark `default`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby, islice
from operator import itemgetter, not_
from struct import error as StructError  # noqa: N812  (it is a class)
from struct import pack, unpack
from typing import Final, NamedTuple

from dueline.core.attempt import Outcome
from dueline.core.batch_ids import has_batched, is_batched
from dueline.core.call_options import terms_of
from dueline.core.codec import Cells, decode, encode
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Record, Store, Write
from dueline.core.tuples import field
from dueline.jobs.history_batch import ID_BYTES, ids_in, one_or_each

_SLICE_US = 60_000_000
_SLICES = 4
_PAGE, _PAGE_MAX = 200, 2000

_CELLS: Final = (30, 11)
"""Number of leading digits that the ids of a cell share: 256 ids that count up; 16 ms."""

_SPAN: Final = 8  # leading digits of the ids of a partition of shared records: 65 s
_CALL: Final = 20  # leading digits that only ids of one call share
_VERSION: Final = 12  # the digit that says how an id was made
_OWN_IDS: Final = "78"  # versions of ids that one process adds: of jobs, and of those in batches
_BATCHED: Final = "8"
_FEWEST: Final = 4  # jobs in a cell, on average
_MOST: Final = 128  # jobs in a record
_VALUE_BYTES_MAX: Final = 256
_RECORDS_A_PAGE: Final = 4
_NEAR: Final = 25  # records of jobs that were enqueued within 16 ms
_NEAR_MAX: Final = 400  # of a page where most records are wanted

_Line = tuple[str, int, bytes, Job]
"""A job that is done: the digits of its id, when it ended, its result, and the job."""

_id_of, _digits_of = field(Job, "id"), itemgetter(0)


class Kept(NamedTuple):
    """The result of a job that is done, to be kept together with those of others.

    Attributes:
      ended_us: When it ended.
      keep_us: How long it is kept.
    """

    job: Job
    ended_us: int
    value: bytes
    keep_us: int


class Shared(Cells, frozen=True, gc=False):
    """The value of a record with the results of several jobs, which are done.

    Attributes:
      many: How many.
      job: Their ids, in hexadecimal digits.
      ended_us: When they ended, as in a row of the history.
      value: The result of all, or of each.
    """

    many: int
    job: str
    ended_us: int | str
    value: str | list[str]


def _place(job_id: JobId) -> tuple[str, str]:
    """Return where a result is stored; a partition holds a quarter of a minute's jobs."""
    minute = created_us(job_id) // _SLICE_US
    return f"results/{minute}/{job_id[-1] % _SLICES}", job_id.hex()


def _shared_in(digits: str, size: int) -> tuple[str, str]:
    """Return the partition of a cell, and how the keys of its records begin."""
    return f"results/{digits[:_SPAN]}", f"{digits[:size]}-"


def kept_us(job: Job, of_queue_us: int) -> int:
    """Return how long a job's outcome is kept: as its call says, or its queue."""
    own_us = terms_of(job).keep_us
    return of_queue_us if own_us is None else own_us


def keep(job_id: JobId, outcome: Outcome, *, keep_us: int) -> Commit:
    """Return the write that keeps an outcome until `keep_us` after the job ended.

    Its version depends on that time: a dead job that is retried ends at another time, and a repeat
    writes the same.
    """
    partition, key = _place(job_id)
    ended_us = outcome.ended_us
    version, expires_us = ended_us.to_bytes(16), ended_us + keep_us
    put = Put(key, version, encode(outcome), None, expires_us, at_us=ended_us)
    return Commit(partition, (put,))


def keep_each(kept: Sequence[Kept]) -> list[Commit]:
    """Return the writes that keep results of successful jobs, each for its own time."""
    by_time: dict[int, list[Kept]] = {}
    for result in kept:
        by_time.setdefault(result.keep_us, []).append(result)
    commits: list[Commit] = []
    for keep_us, same in by_time.items():
        jobs, ended_us, values, _ = zip(*same, strict=True)
        commits += keep_done(jobs, ended_us, values, keep_us=keep_us)
    return commits


def keep_done(
    jobs: Sequence[Job],
    ended_us: Sequence[int],
    values: Sequence[bytes],
    *,
    keep_us: int,
) -> list[Commit]:
    """Return the writes that keep the results of successful jobs.

    Args:
        jobs: The jobs.
        ended_us: When each ended.
        values: The result of each.
        keep_us: How long the results are kept.
    """
    ids = list(map(_id_of, jobs))
    if has_batched(ids) and not all(batched := list(map(is_batched, ids))):
        parts = [
            zip(*compress(zip(jobs, ended_us, values, strict=True), chosen), strict=True)
            for chosen in (batched, map(not_, batched))
        ]
        return [commit for part in parts for commit in keep_done(*part, keep_us=keep_us)]
    lines = list(zip(map(bytes.hex, ids), ended_us, values, jobs, strict=True))
    fit = [line for line in lines if _may_share(*line)]
    cells = _cells_of(sorted(fit, key=_digits_of))
    puts: dict[str, list[Put]] = {}
    for cell, same in cells:
        partition, start = _shared_in(cell, len(cell))
        puts.setdefault(partition, []).extend(
            _shared(start, same[first : first + _MOST], keep_us)
            for first in range(0, len(same), _MOST)
        )
    commits = [Commit(partition, writes) for partition, writes in puts.items()]
    if cells and len(fit) == len(lines):
        return commits
    for line in lines:
        if not cells or not _may_share(*line):
            outcome = Outcome("done", line[1], line[2].decode())
            commits.append(keep(line[3].id, outcome, keep_us=keep_us))
    return commits


def _may_share(digits: str, _: int, value: bytes, job: Job) -> bool:
    return digits[_VERSION] in _OWN_IDS and len(value) <= _VALUE_BYTES_MAX and not job.opts


def _cells_of(lines: Sequence[_Line]) -> Sequence[tuple[str, Sequence[_Line]]]:
    """Return the cells of jobs, which are in the order of their ids; none if there are too many."""
    few = len(lines) // _FEWEST
    sizes = _CELLS[:1] if lines and lines[0][0][_VERSION] == _BATCHED else _CELLS
    for size in sizes:
        runs = [(cell, len(list(run))) for cell, run in groupby([line[0][:size] for line in lines])]
        # Ids of one call, ended in any order, have no timestamps to tell them apart.
        is_one_call = size < _CALL and len({line[0][:_CALL] for line in lines}) < few
        if len(runs) <= few and not is_one_call:
            rest = iter(lines)
            return [(cell, list(islice(rest, many))) for cell, many in runs]
    return ()


def _shared(start: str, lines: Sequence[_Line], keep_us: int) -> Put:
    """Return the write of one record; no other has its key, which has the token of a claim."""
    ids, ended_us, values, jobs = zip(*lines, strict=True)
    value = one_or_each(values)
    shared = Shared(
        len(ids),
        "".join(ids),
        _instants_of(ended_us),
        value.decode() if isinstance(value, bytes) else [part.decode() for part in values],
    )
    key = f"{start}{ids[0]}{jobs[0].token.hex()}"
    until_us = max(ended_us) + keep_us
    return Put(key, jobs[0].token, encode(shared), None, until_us, at_us=max(ended_us))


def _instants_of(column: tuple[int, ...]) -> int | str:
    """Encode timestamps: as one number, or 16 hexadecimal digits for each, concatenated."""
    shared = one_or_each(column)
    return shared if isinstance(shared, int) else pack(f">{len(column)}q", *column).hex()


def instants(cell: int | str, many: int) -> bytes:
    """Decode timestamps to 8 bytes each, big-endian.

    Raises:
        ValueError: The string is damaged.
    """
    return bytes.fromhex(cell) if isinstance(cell, str) else cell.to_bytes(8, signed=True) * many


def absent(job_id: JobId) -> Commit:
    """Return the write that changes nothing, and holds while a job has no record of its own."""
    partition, key = _place(job_id)
    return Commit(partition, (Delete(key, expect=NO_VERSION),))


def merged(commits: Sequence[Commit]) -> list[Commit]:
    """Join the writes to one partition, so that each is one call."""
    by_partition: dict[str, list[Write]] = {}
    for commit in commits:
        by_partition.setdefault(commit.partition, []).extend(commit.writes)
    return [Commit(partition, writes) for partition, writes in by_partition.items()]


def read(store: Store, job_id: JobId) -> Outcome | None:
    """Return how a job ended; None if it has not ended or no outcome is kept."""
    partition, key = _place(job_id)
    # Keys are hexadecimal, so nothing sorts between the key less its last digit and the key
    # but its neighbours: a read past it that is limited to 16 rows always holds the key.
    for record in store.read(partition, after=key[:-1], limit=16):
        if record.key == key:
            return decode(record.value, Outcome)
    return _read_shared(store, (job_id,)).get(job_id)


def read_many(store: Store, jobs: Collection[JobId]) -> Mapping[JobId, Outcome]:
    """Return how jobs ended; those without a kept outcome are omitted."""
    outcomes = read_own(store, jobs)
    return outcomes | _read_shared(store, [job_id for job_id in jobs if job_id not in outcomes])


def read_own(store: Store, jobs: Iterable[JobId]) -> dict[JobId, Outcome]:
    """Return the outcomes of jobs that have records of their own.

    Each partition is read from its first to its last job.
    """
    places: dict[str, dict[str, JobId]] = {}
    for job_id in jobs:
        partition, key = _place(job_id)
        places.setdefault(partition, {})[key] = job_id
    outcomes: dict[JobId, Outcome] = {}
    for partition, wanted in places.items():
        first, last = min(wanted), max(wanted)
        page = min(max(len(wanted), _PAGE), _PAGE_MAX)
        for record in records_in(store, partition, after=first[:-1], page_size=page):
            if record.key > last:
                break
            if record.key in wanted:
                outcomes[wanted[record.key]] = decode(record.value, Outcome)
    return outcomes


def _read_shared(store: Store, jobs: Iterable[JobId]) -> dict[JobId, Outcome]:
    """Return the outcomes of jobs that share records; of a job that ended twice, the last one."""
    outcomes: dict[JobId, Outcome] = {}
    cells: dict[tuple[str, str], dict[str, JobId]] = {}
    for job_id in jobs:
        digits = job_id.hex()
        for size in _CELLS:
            cells.setdefault(_shared_in(digits, size), {})[digits] = job_id
    for (partition, start), wanted in cells.items():
        for record in records_in(store, partition, after=start, page_size=_RECORDS_A_PAGE):
            if not record.key.startswith(start):
                break
            for digits, outcome in outcomes_in(record, wanted):
                job_id = wanted[digits]
                if job_id not in outcomes or outcomes[job_id].ended_us < outcome.ended_us:
                    outcomes[job_id] = outcome
    return outcomes


def shared_between(store: Store, first: JobId, last: JobId) -> Iterator[Record]:
    """Yield the shared records of jobs of one batch, from the cell of one to that of another."""
    size = _CELLS[0]
    partition, _ = _shared_in(first.hex(), size)
    end = last.hex()[:size]
    after = first.hex()[:size]
    for record in records_in(store, partition, after=after, page_size=_NEAR):
        if record.key[:size] > end:
            return
        yield record


def prefix_of(digits: str) -> str:
    """Return the digits of a job's id by which `shared_near` finds its shared record."""
    return digits[: min(_CELLS)]


def shared_near(store: Store, prefixes: Iterable[str]) -> Iterator[Record]:
    """Yield the shared records of jobs whose ids begin with some digits; see `prefix_of`.

    For readers of many jobs: each record is read once, and records between wanted ones are skipped
    if they are many.
    """
    for partition, run in groupby(sorted(prefixes), lambda prefix: _shared_in(prefix, 0)[0]):
        wanted = list(run)
        known = frozenset(wanted)
        after, limit, place = wanted[0], _NEAR, 0
        while place < len(wanted):
            page = store.read(partition, after=after, limit=limit)
            near = [record for record in page if prefix_of(record.key) in known]
            yield from near
            if len(page) < limit:
                break
            last = page[-1].key
            place = bisect_left(wanted, prefix_of(last))
            after = max([last, *wanted[place : place + 1]])
            limit = min(2 * limit, _NEAR_MAX) if 2 * len(near) >= limit else _NEAR


def first_of(record: Record) -> str:
    """Return the digits of the first job's id in a shared record."""
    return record.key.partition("-")[2][: 2 * ID_BYTES]


def outcomes_in(record: Record, wanted: Collection[str] | None = None) -> list[tuple[str, Outcome]]:
    """Return the outcomes of wanted jobs, or of all, in a record, with the digits of their ids."""
    if "-" not in record.key:
        return [(record.key, decode(record.value, Outcome))]
    shared = decode(record.value, Shared)
    try:
        ids, many = ids_in(shared.job), shared.many
        ended_us = unpack(f">{many}q", instants(shared.ended_us, many))
        values = [shared.value] * many if isinstance(shared.value, str) else shared.value
        each = zip(ids, ended_us, values, strict=True)
        return [
            (digits, Outcome("done", us, value))
            for digits, us, value in each
            if wanted is None or digits in wanted
        ]
    except (ValueError, StructError) as error:
        raise StoreCorrupt(
            f"The record {record.key} lacks results of {shared.many} jobs: {error}.",
            hint="Was it written by another program, or a newer dueline?",
        ) from error
