"""Whether an answer is that of its question, as far as its content shows.

A plain write is answered with nothing, a conditional one with `[applied]`, a read with the columns
it asked for; each row of a read bears the token of its partition, which is compared.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cassandra.metadata import Murmur3Token

Rows = list[tuple[Any, ...]]

APPLIED: Final = "[applied]"
"""The first column of what a conditional write is answered."""

PARTITIONS: Final[Mapping[str, str]] = {
    "about": "name",
    "jobs": "queue, shard, bucket, priority, tenant",
    "ids": "part",
    "shards": "queue, shard",
    "lanes": "queue, shard, day",
    "records": "part",
    "stream_rows": "stream, shard, bucket",
    "stream_buckets": "stream, shard",
    "stream_marks": "stream, shard",
}
"""The columns of each table's partition key."""

_OF_PARTITION: Final = re.compile(
    r"SELECT (?!DISTINCT)(?P<columns>.+?) FROM \{keyspace\}\.(\w+) WHERE "
)


class Answer(NamedTuple):
    """What became of a conditional batch.

    rows: when it was refused, the present values of the key and condition columns of each row
    that exists.
    """

    is_applied: bool
    rows: Sequence[Mapping[str, Any]]


class MixedUpError(Exception):
    """An answer that belongs to another question."""


def with_token(text: str) -> tuple[str, bool]:
    """Have a read of one partition return its token first; return whether it does."""
    match = _OF_PARTITION.match(text)
    if match is None:
        return text, False
    start = match.start("columns")
    return f"{text[:start]}token({PARTITIONS[match[2]]}), {text[start:]}", True


def token_of(routing_key: bytes) -> int:
    """Return the token of a partition."""
    token: int = Murmur3Token.from_key(routing_key).value
    return token


def rows_of(names: Sequence[str], rows: Rows, *, columns: Sequence[str], token: int | None) -> Rows:
    """Return the rows that a read was answered with.

    Args:
      columns: what was asked for.
      token: that of the partition, which comes first in each row and is taken off; None where
        several partitions are read.

    Raises: MixedUpError: they belong to another read.
    """
    if names != columns:
        raise MixedUpError(f"{_list(names)} in place of {_list(columns)}")
    if token is None:
        return rows
    if any(row[0] != token for row in rows):
        raise MixedUpError("rows of another partition")
    return [row[1:] for row in rows]


def nothing_of(names: Sequence[str], rows: Rows) -> None:
    """Take in what a plain write was answered with: nothing.

    Raises: MixedUpError: it is something.
    """
    if names or rows:
        raise MixedUpError(f"{_list(names)} in place of nothing")


def answer_of(names: Sequence[str], rows: Rows, *, partition: Mapping[str, object]) -> Answer:
    """Read what a conditional batch was answered with.

    Args: partition: the columns of its partition key, and their values.

    Raises: MixedUpError: it belongs to another question.
    """
    if names[:1] != (APPLIED,) or not rows:
        raise MixedUpError(f"{_list(names)} in place of {APPLIED}")
    has_rows = len(names) > 1  # not where no row exists, or none is told since all held
    present = [dict(zip(names, row, strict=True)) for row in rows] if has_rows else []
    if any(row.get(name, value) != value for row in present for name, value in partition.items()):
        raise MixedUpError("rows of another partition")
    return Answer(rows[0][0], present)


def _list(names: Sequence[str]) -> str:
    return f"the columns {', '.join(names)}" if names else "no columns"
