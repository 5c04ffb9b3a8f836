"""Functions that the laws share: make rows, call a store, read all pages."""

from collections.abc import Iterable, Sequence
from io import BytesIO

from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId, State, Token
from dueline.core.job_columns import Column, JobColumns, Packed, Same
from dueline.core.lane import Lane, Pointer, bucket_of
from dueline.core.store import NO_VERSION, Claimed, Lease, Move, Put, Record, Row, Store, Want

NOW_US = 1_767_225_600 * SECOND_US
"""The time of the laws: 2026-01-01."""

LEASE_US = 30 * SECOND_US
WIDTH_US = 10 * SECOND_US
FAR_BUCKET = 2**50
QUEUE = "laws"
PAGES_MAX = 10_000
ADDED_AGAIN_MAX = 5
ROUNDS_MAX = 10_000
COUNTS = "counts"


def id_of(number: int) -> JobId:
    """Return the id of a numbered job; ids sort like numbers."""
    return JobId(number.to_bytes(16))


def token_of(number: int) -> Token:
    """Return a numbered token; 0 is the token of a new job."""
    return Token(number.to_bytes(16))


def lane_of(
    at_us: int = NOW_US, *, queue: str = QUEUE, shard: int = 0, priority: int = 0, tenant: str = ""
) -> Lane:
    """Return the lane of new jobs that are due at a time."""
    return Lane(queue, shard, bucket_of(at_us, WIDTH_US), priority, tenant)


def new_job(
    number: int, *, at_us: int = NOW_US, lane: Lane | None = None, body: bytes = b"[1]"
) -> Job:
    """Return a new job, by default in the lane of its due time."""
    return Job(
        lane=lane or lane_of(at_us),
        pos_us=at_us,
        id=id_of(number),
        hop=0,
        due_us=at_us,
        enqueued_us=min(at_us, NOW_US),
        task="laws.count",
        codec=1,
        body=body,
        opts=b"",
        at_us=at_us,
    )


def new_jobs(
    count: int, *, first: int = 1, at_us: int = NOW_US, lane: Lane | None = None
) -> list[Job]:
    """Return new jobs with consecutive numbers, all due at one time."""
    return [new_job(number, at_us=at_us, lane=lane) for number in range(first, first + count)]


def row_of(number: int, *, at_us: int = NOW_US, stream: str = "log", shard: int = 0) -> Row:
    """Return a numbered row of a stream."""
    return Row(stream, shard, at_us, number.to_bytes(16), b"row %d" % number)


def put_in(store: Store, *jobs: Job) -> None:
    """Insert jobs, and repeat those whose result is unknown."""
    left: Sequence[Job] = jobs
    for _ in range(ADDED_AGAIN_MAX):
        left = [job for job, is_there in zip(left, store.add(left), strict=True) if not is_there]
        if not left:
            return
    raise AssertionError(f"{len(left)} jobs are not acknowledged")


def claim(
    store: Store,
    *lanes: Lane,
    most: int = 100,
    limit: int = 100,
    now_us: int = NOW_US,
    lease_us: int = LEASE_US,
    worker: str = "worker",
    token: int = 1,
) -> Claimed:
    """Claim from lanes with default arguments."""
    return store.claim(
        [Want(lane, most) for lane in lanes],
        limit=limit,
        lease=Lease(now_us, lease_us, worker, token_of(token)),
    )


def move(
    job: Job, at_us: int, *, token: int = 1000, errors: int | None = None, to: Lane | None = None
) -> Move:
    """Return the move that releases a job until a time."""
    return Move(
        job,
        at_us,
        token_of(token),
        listing=bucket_of(at_us, WIDTH_US),
        errors=job.errors if errors is None else errors,
        crashes=job.crashes,
        state=State.WAITING,
        to=to,
    )


def ids_of(jobs: Iterable[Job]) -> list[JobId]:
    """Return the ids of jobs."""
    return [job.id for job in jobs]


def columns_as_rows(page: JobColumns) -> list[dict[str, object]]:
    """Return the fields of each job of a page."""
    columns = {name: _values_of(name, column, page.many) for name, column in page.columns.items()}
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _values_of(name: str, column: Column, many: int) -> list[object]:
    match column:
        case Same(value):
            return [value] * many
        case Packed(joined, b""):
            size = len(joined) // many
            cells = [joined[place : place + size] for place in range(0, len(joined), size)]
            return [*cells] if name == "id" else [int.from_bytes(c, signed=True) for c in cells]
        case Packed(joined, lengths):
            rest = BytesIO(joined)
            sizes = [int.from_bytes(lengths[n : n + 4]) for n in range(0, len(lengths), 4)]
            strings = [rest.read(size) for size in sizes]
            is_text = isinstance(getattr(new_job(0), name), str)
            return [string.decode() if is_text else string for string in strings]
    return list(column)


def rows_in(
    store: Store, lane: Lane, *, until_us: int | None = None, page_size: int = 1000
) -> list[Job]:
    """Return all rows of a lane, read page by page."""
    rows: list[Job] = []
    after = None
    for _ in range(PAGES_MAX):
        page = store.scan(lane, after=after, until_us=until_us, limit=page_size)
        assert len(page.jobs) <= page_size
        rows.extend(page.jobs)
        if page.after is None:
            return rows
        assert page.jobs, "a page without jobs must be the last"
        after = page.after
    raise AssertionError("scan does not end")


def pointers_in(
    store: Store,
    queue: str = QUEUE,
    shard: int = 0,
    *,
    until_bucket: int = FAR_BUCKET,
    after: Pointer | None = None,
    page_size: int = 1000,
) -> list[Pointer]:
    """Return a lane list, read page by page."""
    pointers: list[Pointer] = []
    for _ in range(PAGES_MAX):
        page = store.lanes(queue, shard, until_bucket=until_bucket, after=after, limit=page_size)
        assert len(page.pointers) <= page_size
        pointers.extend(page.pointers)
        if page.after is None:
            return pointers
        assert page.pointers, "a page without pointers must be the last"
        after = page.after
    raise AssertionError("lanes does not end")


def records_in(store: Store, partition: str, *, page_size: int = 1000) -> list[Record]:
    """Return all records of a partition, read page by page."""
    records: list[Record] = []
    after = None
    for _ in range(PAGES_MAX):
        page = store.read(partition, after=after, limit=page_size)
        assert len(page) <= page_size
        records.extend(page)
        if len(page) < page_size:
            return records
        after = page[-1].key
    raise AssertionError("read does not end")


def stream_of(
    store: Store, stream: str = "log", shard: int = 0, *, page_size: int = 1000
) -> list[Row]:
    """Return all rows of a stream's shard, read page by page."""
    rows: list[Row] = []
    after = None
    for _ in range(PAGES_MAX):
        page = store.tail(stream, shard, after=after, limit=page_size)
        assert len(page.rows) <= page_size
        rows.extend(page.rows)
        if not page.rows:
            return rows
        after = page.after
    raise AssertionError("tail does not end")


def all_of(store: Store, jobs: Sequence[Job]) -> list[Job | None]:
    """Return the rows of jobs, by their ids."""
    return list(store.find(ids_of(jobs)))


def row_with(store: Store, job_id: JobId) -> Job:
    """Return the row of a job, which must exist."""
    (row,) = store.find([job_id])
    assert row is not None
    return row


def count_up(store: Store, *, times: int, writer: int) -> int:
    """Increment a record `times` times by conditional writes.

    Returns:
        The number of further writes that may have been applied: the store raised Unknown.
    """
    done = unknown = 0
    for attempt in range(ROUNDS_MAX):
        value, version = read_count(store)
        fresh = token_of(1 + writer * ROUNDS_MAX + attempt)
        try:
            done += store.commit(COUNTS, [Put("count", fresh, b"%d" % (value + 1), version)])
        except Unknown:
            unknown += 1
        if done == times:
            return unknown
    raise AssertionError("the record could not be incremented")


def read_count(store: Store) -> tuple[int, bytes]:
    """Return the value and the version of the counter."""
    for record in store.read(COUNTS, after=None, limit=1):
        return int(record.value), record.version
    return 0, NO_VERSION
