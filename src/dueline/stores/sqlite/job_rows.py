"""How a job is a row of the table `jobs`: the columns by name, and what reads and writes them.

The table has a number in place of a Job's lane, and its other columns are a Job's fields, in
their order. Places and slices are worked out here, once; what runs for each row is C code.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from dueline.core.job import Job, State, Token
from dueline.core.lane import Lane
from dueline.core.store import Move
from dueline.core.tuples import field, made

COLUMNS: Final = Job._fields

_AT = COLUMNS.index("at_us")
_BODY = COLUMNS.index("body")
_ALONE = COLUMNS.index("alone")
_BIRTH = slice(_AT + 1)
_CLAIMED = slice(_AT + 1, len(COLUMNS))

BIRTH: Final = COLUMNS[_BIRTH]
"""What is written when a job is born; the rest has defaults until a claim changes it."""

INSERT_BIRTH: Final = f"INSERT OR IGNORE INTO jobs ({', '.join(BIRTH)}) VALUES "  # noqa: S608
BIRTH_MARKS: Final = f"({', '.join('?' * len(BIRTH))})"
INSERT_WHOLE: Final = f"INSERT OR IGNORE INTO jobs VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608

_WHOLE_BODY = "coalesce(body, (SELECT body FROM bodies WHERE bodies.id = jobs.id), x'')"
"""Empty where the body is lost: no codec reads that, so the job is dead once it is claimed."""

SELECT: Final = ", ".join(
    {"lane": "jobs.lane", "id": "jobs.id", "body": _WHOLE_BODY}.get(name, name) for name in COLUMNS
)
"""The columns of a whole row, in a query of `jobs` that may join another table."""

id_of: Final = itemgetter(COLUMNS.index("id"))
birth_rest_of: Final[Callable[[Job], tuple[object, ...]]] = itemgetter(slice(1, _AT + 1))
"""What a Job's birth row has behind its lane."""

claim_cells_of: Final[Callable[[Job], tuple[object, ...]]] = itemgetter(_CLAIMED)
"""What claims and verdicts change."""

moved_cells_of: Final = field(
    Move, "at_us", "token", "errors", "crashes", "alone", "state", "outcome", "error"
)


def to_job(lane: Lane, row: Sequence[Any]) -> Job:
    """Turn a row of the SELECT columns into a job: types are asserted here, and in `claimed`."""
    return Job._make((lane, *row[1:_ALONE], bool(row[_ALONE]), *row[_ALONE + 1 :]))


def birth_rest_without_body(job: Job) -> tuple[object, ...]:
    """Give what a job's birth row has behind its lane, where its body lies elsewhere."""
    return (*job[1:_BODY], None, *job[_BODY + 1 : _AT + 1])


# Rows that a claim reads: as the claim will leave them, of most jobs

_READ = (*BIRTH[1:-1], "?", "fence + 1")  # the `at_us` that is bound, and the next fence
_BESIDE = {
    "rowid": "jobs.rowid",
    "is_special": "state OR errors OR crashes OR alone OR outcome <> x'' OR error <> ''",
    "lane": "lane",
}
SELECT_CLAIM: Final = f"SELECT {', '.join([*_READ, *_BESIDE.values()])}"
"""`at_us` is bound first. is_special: the row says more than its birth did; see `claims`."""

_READ_LANE = len(_READ) + list(_BESIDE).index("lane")
_READ_JOB = slice(len(_READ))
_READ_BODY = BIRTH.index("body") - 1  # no lane is before it
read_id_of: Final = itemgetter(BIRTH.index("id") - 1)
read_body_of: Final = itemgetter(_READ_BODY)
rowid_of: Final = itemgetter(len(_READ) + list(_BESIDE).index("rowid"))
is_special: Final = itemgetter(len(_READ) + list(_BESIDE).index("is_special"))

_AFTER_CLAIM = Job._field_defaults | {"state": State.CLAIMED}
_REST = tuple(_AFTER_CLAIM[name] for name in COLUMNS[COLUMNS.index("claimed_us") + 1 :])


def claimed(
    rows: Sequence[tuple[Any, ...]],
    lanes: Mapping[int, Lane],
    *,
    token: Token,
    worker: str,
    now_us: int,
) -> list[Job]:
    """Make the jobs of rows of the SELECT_CLAIM columns that a claim takes.

    Args: lanes: what the numbers in the column `lane` stand for.
    """
    head = {number: (lane,) for number, lane in lanes.items()}
    rest = (token, worker, now_us, *_REST)
    return made(Job, [head[row[_READ_LANE]] + row[_READ_JOB] + rest for row in rows])


def with_body(row: tuple[Any, ...], body: bytes) -> tuple[Any, ...]:
    """Put a body into a row of the SELECT_CLAIM columns."""
    return (*row[:_READ_BODY], body, *row[_READ_BODY + 1 :])
