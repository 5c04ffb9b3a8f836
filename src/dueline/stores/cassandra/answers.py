"""Checks that an answer belongs to its request, as far as its content shows.

The answer to a plain write is empty, to a conditional one it has `[applied]`, to a read the
requested columns. Each row of a read has the token of its partition, which is compared.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cassandra.metadata import Murmur3Token

Rows = list[tuple[Any, ...]]

APPLIED: Final = "[applied]"
"""The first column of the answer to a conditional write."""

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
    r"SELECT (?!DISTINCT)(?P<columns>.+?) FROM \{keyspace\}\.(\w+)"
    r" WHERE (?!queue = \? AND shard IN |token\()"  # of several partitions, or by their tokens
)


class Answer(NamedTuple):
    """The answer to a conditional batch.

    rows: If it was not applied: the present key and condition columns of each row that exists.
    """

    is_applied: bool
    rows: Sequence[Mapping[str, Any]]


class MixedUpError(Exception):
    """An answer that belongs to another request."""


def with_token(text: str) -> tuple[str, bool]:
    """Return a read with the partition's token as its first column, and whether it was added."""
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
    """Return the rows in the answer to a read.

    Args:
      names: Columns of the answer.
      rows: Rows of the answer.
      columns: Requested columns.
      token: Token of the partition, the first value of each row, which is removed; None for a
        read of several partitions.

    Raises:
      MixedUpError: The answer belongs to another read.
    """
    if names != columns:
        raise MixedUpError(f"{_list(names)} in place of {_list(columns)}")
    if token is None:
        return rows
    if any(row[0] != token for row in rows):
        raise MixedUpError("rows of another partition")
    return [row[1:] for row in rows]


def nothing_of(names: Sequence[str], rows: Rows) -> None:
    """Check that the answer to a plain write is empty.

    Raises:
      MixedUpError: It is not.
    """
    if names or rows:
        raise MixedUpError(f"{_list(names)} in place of nothing")


def answer_of(names: Sequence[str], rows: Rows, *, partition: Mapping[str, object]) -> Answer:
    """Return the answer to a conditional batch.

    Args:
      names: Columns of the answer.
      rows: Rows of the answer.
      partition: Values of the partition key, by column.

    Raises:
      MixedUpError: The answer belongs to another request.
    """
    if names[:1] != (APPLIED,) or not rows:
        raise MixedUpError(f"{_list(names)} in place of {APPLIED}")
    has_rows = len(names) > 1  # not if no row exists, or if all conditions held
    present = [dict(zip(names, row, strict=True)) for row in rows] if has_rows else []
    if any(row.get(name, value) != value for row in present for name, value in partition.items()):
        raise MixedUpError("rows of another partition")
    return Answer(rows[0][0], present)


def _list(names: Sequence[str]) -> str:
    return f"the columns {', '.join(names)}" if names else "no columns"
