"""Jobs as rows of the table `jobs`: columns by name, and functions that read and write them.

The table has a number in place of a job's lane; its other columns are the fields of Job, in the
same order. Positions and slices are computed once, so that C code handles each row.
Hot path: the benchmark `default`.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from dueline.core.job import MOVED, NEW, Job, State, Token
from dueline.core.lane import Lane
from dueline.core.store import Move
from dueline.core.tuples import field, made

COLUMNS: Final = Job._fields

_BODY = COLUMNS.index("body")
_ALONE = COLUMNS.index("alone")

INSERT_NEW: Final = f"INSERT OR IGNORE INTO jobs ({', '.join(NEW)}) VALUES "  # noqa: S608
NEW_PARAMETERS: Final = f"({', '.join('?' * len(NEW))})"
INSERT_WHOLE: Final = f"INSERT OR IGNORE INTO jobs VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608

WHOLE_BODY: Final = "coalesce(body, (SELECT body FROM bodies WHERE bodies.id = jobs.id), x'')"
"""Empty if the body is lost: no codec reads that, so the job becomes a dead-letter job."""

SELECT: Final = ", ".join(
    {"lane": "jobs.lane", "id": "jobs.id", "body": WHOLE_BODY}.get(name, name) for name in COLUMNS
)
"""The columns of a whole row, in a query of `jobs` that may join another table."""

id_of: Final = itemgetter(COLUMNS.index("id"))
new_values_of: Final[Callable[[Job], tuple[object, ...]]] = itemgetter(slice(1, len(NEW)))
"""Values of the columns NEW for a Job, without the lane."""

later_values_of: Final[Callable[[Job], tuple[object, ...]]] = itemgetter(slice(len(NEW), None))
"""Values of the other columns, which claims and outcomes change."""

SET_MOVED: Final = ", ".join(f"{name} = ?" for name in MOVED)
moved_values_of: Final = field(Move, *MOVED)


def to_job(lane: Lane, row: Sequence[Any]) -> Job:
    """Return a row of the SELECT columns as a job; types are asserted here and in `claimed`."""
    return Job._make((lane, *row[1:_ALONE], bool(row[_ALONE]), *row[_ALONE + 1 :]))


def to_jobs(lane: Lane, rows: Sequence[tuple[Any, ...]]) -> list[Job]:
    """Return rows of one lane, of the SELECT columns, as jobs."""
    head, alone = (lane,), ((False,), (True,))
    return made(
        Job,
        [head + row[1:_ALONE] + alone[row[_ALONE] != 0] + row[_ALONE + 1 :] for row in rows],
    )


def new_values_without_body(job: Job) -> tuple[object, ...]:
    """Return `new_values_of(job)` with NULL for a body that is stored in `bodies`."""
    return (*job[1:_BODY], None, *job[_BODY + 1 : len(NEW)])


# Rows that a claim reads: for most jobs, already as the claim leaves them

_READ = (*NEW[1:-1], "?", "fence + 1")  # the `at_us` that is bound, and the next fence
_BESIDE = {
    "rowid": "jobs.rowid",
    "is_special": "state OR errors OR crashes OR alone OR outcome <> x'' OR error <> ''",
    "lane": "lane",
}
SELECT_CLAIM: Final = f"SELECT {', '.join([*_READ, *_BESIDE.values()])}"
"""`at_us` is bound first. is_special: columns other than NEW are set; see `claims`."""

_READ_LANE = len(_READ) + list(_BESIDE).index("lane")
_READ_JOB = slice(len(_READ))
_READ_BODY = NEW.index("body") - 1  # no lane is before it
read_id_of: Final = itemgetter(NEW.index("id") - 1)
read_body_of: Final = itemgetter(_READ_BODY)
rowid_of: Final = itemgetter(len(_READ) + list(_BESIDE).index("rowid"))
lane_number_of: Final = itemgetter(_READ_LANE)
is_special: Final = itemgetter(len(_READ) + list(_BESIDE).index("is_special"))

_AFTER_CLAIM = Job._field_defaults | {"state": State.CLAIMED}
_REST = tuple(_AFTER_CLAIM[name] for name in COLUMNS[COLUMNS.index("claimed_us") + 1 :])


def claimed(
    rows: Sequence[tuple[Any, ...]],
    numbers: Mapping[Lane, int],
    *,
    token: Token,
    worker: str,
    now_us: int,
) -> list[Job]:
    """Return the jobs of rows of the SELECT_CLAIM columns, as the claim leaves them.

    Args:
      rows: The rows.
      numbers: The number of each lane in the column `lane`.
      token: The claim's token.
      worker: The worker.
      now_us: The time of the claim.
    """
    head = {number: (lane,) for lane, number in numbers.items()}
    rest = (token, worker, now_us, *_REST)
    return made(Job, [head[row[_READ_LANE]] + row[_READ_JOB] + rest for row in rows])


def with_body(row: tuple[Any, ...], body: bytes) -> tuple[Any, ...]:
    """Put a body into a row of the SELECT_CLAIM columns."""
    return (*row[:_READ_BODY], body, *row[_READ_BODY + 1 :])
