"""Bundles of the versions before columns: history rows of successful attempts, as JSON.

They are written in stores that do not have the feature `history columns`, and read everywhere.
"""

from array import array
from collections.abc import Sequence
from struct import pack
from typing import Any, Final

from dueline.core.attempt import Done, Ended, digest_of
from dueline.core.codec import Cells, decode, encode
from dueline.core.ids import derived
from dueline.core.job import Job
from dueline.core.lane import Lane, limits_text, tenant_of
from dueline.core.store import Row
from dueline.core.tuples import field

ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts in a row."""

ID_BYTES: Final = 16
ID_DIGITS: Final = 2 * ID_BYTES
_OPENING: Final = b'{"many":'
_PLACE = len(_OPENING)


class Bundle(Cells, frozen=True, gc=False):
    """The body of a row of many attempts: fields as an attempt's, one for all or one for each.

    Attributes:
      many: How many.
      job: The ids of their jobs, in hexadecimal digits; see `ids_in`.
      enqueued_us, due_us, started_us, ended_us: As strings those of each; see `instants`.
    """

    many: int
    job: str
    task: str
    queue: str
    tenant: str | list[str]
    priority: int | list[int]
    enqueued_us: int | str
    due_us: int | str
    claimed_us: int
    started_us: int | str
    ended_us: int | str
    outcome: str
    error: str
    worker: str
    fence: int
    digest: str | list[str] = ""
    limits: str = ""


_lane_of, _id_of, _enqueued_of, _due_of = (
    field(Job, name) for name in ("lane", "id", "enqueued_us", "due_us")
)
_priority_of = field(Lane, "priority")
_value_of = field(Done, "value")


def json_bundle_of(done: Sequence[Ended], stream: str) -> Row:
    """Return the row of successful attempts, at the end of the last.

    Args:
        done: Attempts of one queue, shard, task and limits, with equal fence, worker and time of
            claim.
        stream: The stream of the history.
    """
    jobs, endings, started_us, ended_us = zip(*done, strict=True)
    first: Job = jobs[0]
    ids = b"".join(map(_id_of, jobs))
    enqueued_us = instants_of(tuple(map(_enqueued_of, jobs)))
    lanes = list(map(_lane_of, jobs))
    if lanes.count(lanes[0]) == len(lanes):
        lanes = lanes[:1]
    body = encode(
        Bundle(
            len(jobs),
            ids.hex(),
            first.task,
            first.lane.queue,
            one_or_each(list(map(tenant_of, lanes))),
            one_or_each(list(map(_priority_of, lanes))),
            enqueued_us,
            instants_of(tuple(map(_due_of, jobs))),
            first.claimed_us,
            instants_of(started_us),
            instants_of(ended_us),
            "done",
            "",
            first.worker,
            first.fence,
            _digests_of(list(map(_value_of, endings))),
            limits_text(first.lane),
        )
    )
    row_id = derived(ids + instants(enqueued_us, len(jobs)), first.fence)
    return Row(stream, first.lane.shard, max(ended_us), row_id, body)


def _digests_of(values: list[bytes]) -> str | list[str]:
    """Return the digests of results; usually all results are equal, such as `null`."""
    one = one_or_each(values)
    return digest_of(one) if isinstance(one, bytes) else list(map(digest_of, values))


def one_or_each(column: Sequence[Any]) -> Any:  # noqa: ANN401  (a cell of any kind)
    """Return the value that all cells of a column have; the column if they differ."""
    first = column[0]
    is_same = column[-1] == first and column.count(first) == len(column)
    return first if is_same else column


def instants_of(column: tuple[int, ...]) -> int | str:
    """Encode timestamps: as one number, or 16 hexadecimal digits for each, concatenated."""
    one = one_or_each(column)
    return one if isinstance(one, int) else pack(f">{len(column)}q", *column).hex()


def instants(cell: int | str, many: int) -> bytes:
    """Decode timestamps to 8 bytes each, big-endian.

    Raises:
        ValueError: The string is damaged.
    """
    return bytes.fromhex(cell) if isinstance(cell, str) else cell.to_bytes(8, signed=True) * many


def ids_in(digits: str) -> list[str]:
    """Return ids that are concatenated, each with ID_DIGITS digits."""
    return [digits[start : start + ID_DIGITS] for start in range(0, len(digits), ID_DIGITS)]


def is_bundle(row: Row) -> bool:
    """Return whether a row of a history contains many attempts, as JSON."""
    return row.body.startswith(_OPENING)


def size_of(row: Row) -> int:
    """Return how many attempts a bundle contains."""
    body = row.body
    return int(body[_PLACE : body.index(b",")])


def columns_in(row: Row) -> tuple[Any, ...]:
    """Return the columns of a bundle, as `history_batch.Bundle` has them.

    Raises:
        StoreCorrupt: The row is not a bundle.
        ValueError: The row is damaged.
    """
    read = decode(row.body, Bundle)
    enqueued_us, due_us, started_us, ended_us = map(
        _turned, (read.enqueued_us, read.due_us, read.started_us, read.ended_us)
    )
    digests = [read.digest] if isinstance(read.digest, str) else read.digest
    if len(digests) not in (1, read.many):
        raise ValueError("digests are missing")
    return (
        bytes.fromhex(read.job), read.task, read.queue, _texts(read.tenant),
        read.priority if isinstance(read.priority, int) else pack(f"<{read.many}q", *read.priority),
        enqueued_us, due_us, read.claimed_us, started_us, ended_us, read.outcome, read.error,
        read.worker, read.fence,
        b"".join([bytes.fromhex(one) if one else bytes(8) for one in digests]),
        (), (), (), read.limits,
    )  # fmt: skip


def _turned(cell: int | str) -> int | bytes:
    """Return timestamps as `history_batch.Bundle` has them, little-endian."""
    if isinstance(cell, int):
        return cell
    numbers = array("q", bytes.fromhex(cell))
    numbers.byteswap()
    return numbers.tobytes()


def _texts(cell: str | list[str]) -> str | tuple[list[str], bytes]:
    return cell if isinstance(cell, str) else (cell, bytes(range(len(cell))))
