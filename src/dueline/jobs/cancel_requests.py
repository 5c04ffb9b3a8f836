"""Requests to cancel running jobs.

A request is written twice: under the job, where the next worker that claims it reads it before
running it, and under the worker that holds the job, which reads its requests while it runs jobs.
"""

from collections.abc import Iterable, Sequence

from dueline.coordination.worker_requests import inbox_of, is_awaited, is_request
from dueline.core.clock import DAY_US
from dueline.core.ids import created_us
from dueline.core.job import Claim, Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import Delete, Put, Record, Records, Store

KEEP_US = 7 * DAY_US
"""How long a request applies to later claims."""

HELD_US = DAY_US
"""How long a worker's copy is kept: no claim lasts longer without a heartbeat."""

_HOUR_US = 3600 * 1_000_000
_PAGE = 1000


def _place(job_id: JobId) -> str:
    """Return the partition of an hour's jobs: few of them are ever cancelled while they run."""
    return f"cancels/{created_us(job_id) // _HOUR_US}"


_PLAIN = b"1"
_BY_FORCE = b"force"


def ask(records: Records, job: Job, *, now_us: int, version: bytes, by_force: bool = False) -> None:
    """Request the end of a claimed job. version: random, for the records."""
    remember(records, job.id, now_us=now_us, version=version)
    ask_worker(records, job, now_us=now_us, version=version, by_force=by_force)


def ask_worker(
    records: Records, job: Job, *, now_us: int, version: bytes, by_force: bool = False
) -> None:
    """Request the end of a claimed job from the worker that holds it. version: random."""
    value = _BY_FORCE if by_force else _PLAIN
    copy = Put(f"{job.id.hex()}/{job.fence}", version, value, expires_us=now_us + HELD_US)
    records.commit(inbox_of(job.worker), (copy,))


def remember(records: Records, job_id: JobId, *, now_us: int, version: bytes) -> None:
    """Request the end of a job from the next worker that claims it. version: random."""
    put = Put(job_id.hex(), version, _PLAIN, expires_us=now_us + KEEP_US)
    records.commit(_place(job_id), (put,))


def asked(records: Records, job_ids: Iterable[JobId]) -> dict[JobId, bytes]:
    """Return those of the jobs whose end was requested, with the versions of the requests."""
    by_place: dict[str, dict[str, JobId]] = {}
    for job_id in job_ids:
        by_place.setdefault(_place(job_id), {})[job_id.hex()] = job_id
    return {
        wanted[record.key]: record.version
        for place, wanted in by_place.items()
        for record in records_in(records, place)
        if record.key in wanted
    }


def withdraw(store: Store, rows: Sequence[Job]) -> Sequence[Job]:
    """Delete requests, so that the jobs can run again; return the rows of the jobs that can.

    A request for a later claim stays: it is deleted only if the row, read after it, is the same
    (rule P12).
    """
    requests = asked(store, [row.id for row in rows if row.fence])
    if not requests:
        return rows
    now = store.find(list(requests))
    tokens = {row.id: row.token for row in now if row is not None}
    return [
        row
        for row in rows
        if row.id not in requests
        or (tokens.get(row.id) == row.token and forget(store, row.id, requests[row.id]))
    ]


def forget(records: Records, job_id: JobId, version: bytes) -> bool:
    """Delete a request for later claims, if it is still this one; return whether it was."""
    return records.commit(_place(job_id), (Delete(job_id.hex(), expect=version),))


def of_worker(records: Records, worker: str) -> dict[Claim, bool]:
    """Return the claims of a worker whose end was requested and that it has not noted.

    Returns: for each, whether its handler is stopped by force.
    """
    return claims_in(inbox(records, worker))


def inbox(records: Records, worker: str) -> Sequence[Record]:
    """Read the requests to a worker: of operators, to cancel its jobs, to note dependents."""
    return records.read(inbox_of(worker), after=None, limit=_PAGE)


def claims_in(inbox: Iterable[Record]) -> dict[Claim, bool]:
    """Return the claims whose end is requested in an inbox, as `of_worker`."""
    claims = {}
    for record in inbox:
        if is_request(record) or is_awaited(record):
            continue
        job_id, _, fence = record.key.partition("/")
        claim = Claim(JobId(bytes.fromhex(job_id)), int(fence))
        claims[claim] = record.value == _BY_FORCE
    return claims


def note(records: Records, worker: str, claims: Iterable[Claim]) -> None:
    """Delete a worker's requests that it has noted."""
    deletes = [Delete(f"{claim.job_id.hex()}/{claim.fence}") for claim in claims]
    records.commit(inbox_of(worker), deletes)
