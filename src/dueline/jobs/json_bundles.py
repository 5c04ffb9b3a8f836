"""History rows of successful attempts as JSON, which commit d778eb9d writes in Cassandra.

Only read, for the test of two versions side by side. They go when it compares with a later commit.
"""

from array import array
from struct import pack
from typing import Any, Final

from dueline.core.codec import Cells, decode
from dueline.core.store import Row

_OPENING: Final = b'{"many":'


class Bundle(Cells, frozen=True, gc=False):
    """The body of a row of many attempts: fields as an attempt's, one for all or one for each.

    Attributes:
      many: How many.
      job: The ids of their jobs, in hexadecimal digits.
      enqueued_us, due_us, started_us, ended_us: As strings those of each, in 16 hexadecimal digits.
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


def is_bundle(row: Row) -> bool:
    """Return whether a row of a history contains many attempts, as JSON."""
    return row.body.startswith(_OPENING)


def size_of(row: Row) -> int:
    """Return how many attempts a bundle contains."""
    return int(row.body[len(_OPENING) : row.body.index(b",")])


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
        b"".join([bytes.fromhex(digest) if digest else bytes(8) for digest in digests]),
        (), (), (), read.limits, 0,
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
