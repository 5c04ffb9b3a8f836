"""Records in Cassandra's tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.core.readback import WriteStatus, status_of_commit
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Record, Write
from dueline.core.store_capabilities import RecordsPage
from dueline.stores.cassandra.answers import Answer
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import TOKEN_MAX, TOKEN_MIN, chunks

NEVER_US: Final = 2**63 - 1
"""Expiry of a record that never expires: conditions compare it, so it cannot be null."""

ROUNDS_MAX: Final = 8

_DAY_S: Final = 86_400
_TTL_S_MAX: Final = 3 * 365 * _DAY_S
_NOBODYS: Final = b"\0"
"""A version that no record has."""

_READ: Final = "SELECT key, version, value, expires_us FROM {keyspace}.records WHERE part = ?"
_READ_PAST: Final = f"{_READ} AND key > ? LIMIT ?"
_READ_ALL: Final = f"{_READ} LIMIT ?"
_READ_SOME: Final = f"{_READ} AND key IN ?"
_PUT: Final = (
    "UPDATE {keyspace}.records USING TTL ? SET version = ?, value = ?, expires_us = ?"
    " WHERE part = ? AND key = ?"
)
_PUT_PLAINLY: Final = (
    "INSERT INTO {keyspace}.records (part, key, version, value, expires_us) VALUES (?, ?, ?, ?, ?)"
    " USING TIMESTAMP ? AND TTL ?"
)
_PARTS: Final = (
    "SELECT DISTINCT token(part), part FROM {keyspace}.records"
    " WHERE token(part) > ? AND token(part) <= ? LIMIT ?"
)
_PARTS_A_PAGE: Final = 20
_DELETE: Final = "DELETE FROM {keyspace}.records WHERE part = ? AND key = ?"


class CassandraRecords:
    """Small versioned values, written by conditional batches, or all plainly (rule U3)."""

    def __init__(self, session: CassandraSession, now_us: Callable[[], int]) -> None:
        self._session = session
        self._now_us = now_us

    def read(self, partition: str, *, after: str | None, limit: int) -> list[Record]:
        """Return records in key order, without expired ones."""
        now_us = self._now_us()
        records: list[Record] = []
        part = _part(partition)
        while len(records) < limit:
            size = limit - len(records)
            if after is None:
                rows = self._session.read(_READ_ALL, (part, size))
            else:
                rows = self._session.read(_READ_PAST, (part, after, size))
            records += [
                Record(key, version, value)
                for key, version, value, expires_us in rows
                if expires_us > now_us
            ]
            if len(rows) < size:
                break
            after = rows[-1][0]
        return records

    def page_of_all(self, after: str | None, limit: int) -> RecordsPage:
        """Return the records of the next partitions in the order of tokens, without expired ones.

        Args:
          after: The token of the last partition of the page before.
          limit: How many records are read at a time.
        """
        now_us = self._now_us()
        start = TOKEN_MIN if after is None else int(after)
        parts = self._session.read(_PARTS, (start, TOKEN_MAX, _PARTS_A_PAGE))
        records: list[tuple[str, Put]] = []
        for _, part in parts:
            rows = self._session.read(_READ_ALL, (part, limit))
            while rows:
                records += [
                    (part[1:], Put(key, version, value, None, _expiry_of(expires_us)))
                    for key, version, value, expires_us in rows
                    if expires_us > now_us
                ]
                if len(rows) < limit:
                    break
                rows = self._session.read(_READ_PAST, (part, rows[-1][0], limit))
        return RecordsPage(records, str(parts[-1][0]) if len(parts) == _PARTS_A_PAGE else None)

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        if not writes:
            return True
        if is_plain(writes):
            self.begin_puts([Commit(partition, writes)])()
            return True
        return self.commit_each([Commit(partition, writes)])[0]

    def commit_each(self, commits: Sequence[Commit]) -> list[bool]:
        """Apply conditional commits at once, each to another partition, all or nothing.

        Raises:
          Unknown: One of them may have been applied; so may all others.
        """
        attempts = [_Attempt(commit) for commit in commits]
        unanswered = attempts
        for _ in range(ROUNDS_MAX):
            if not unanswered:
                break
            now_us = self._now_us()
            batches = [attempt.calls(now_us) for attempt in unanswered]
            for attempt, answer in zip(unanswered, self._session.decide_many(batches), strict=True):
                self._judge(attempt, answer, now_us)
            unanswered = [attempt for attempt in unanswered if attempt.result is None]
        return [attempt.has_held() for attempt in attempts]

    def _judge(self, attempt: "_Attempt", answer: Answer | DuelineError, now_us: int) -> None:
        """Note the result of an attempt, if its answer or what stands there says it."""
        if isinstance(answer, Answer):
            if answer.is_applied:
                attempt.result = True
                return
        elif isinstance(answer, Unknown):
            attempt.lost = attempt.lost or answer
        else:
            attempt.result = attempt.lost or answer
            return
        partition, writes = attempt.commit
        try:
            attempt.present = self._present(partition, writes, lost=attempt.lost)
        except DuelineError as error:
            attempt.result = error
            return
        is_unsure = attempt.lost is not None
        status = _status(writes, attempt.present, now_us, is_unsure=is_unsure)
        if status is WriteStatus.UNKNOWN and attempt.lost:
            attempt.result = attempt.lost  # it may have been applied and replaced
        elif status is not WriteStatus.OPEN:
            attempt.result = status is WriteStatus.HELD

    def begin_puts(self, commits: Sequence[Commit]) -> Callable[[], None]:
        """Send plain writes; return what waits for them, and raises the first error."""
        now_us = self._now_us() if commits else 0
        return self._session.begin_write(
            [
                [_plain_call(_part(commit.partition), write, now_us) for write in batch]
                for commit in commits
                for batch in chunks(commit.writes, bytes_of)
            ]
        )

    def put_all(self, commits: Sequence[Commit]) -> None:
        """Apply commits without expectations, all at once.

        Raises:
          Unknown: Some may have been applied.
        """
        now_us = self._now_us() if commits else 0
        answers = self._session.decide_many(
            [
                [_call(_part(commit.partition), write, None, now_us) for write in commit.writes]
                for commit in commits
            ]
        )
        for commit, answer in zip(commits, answers, strict=True):
            if isinstance(answer, Answer):
                if not answer.is_applied:  # a write without a condition cannot be refused
                    raise Unknown(
                        f"The records of {commit.partition} may have been written or not: a write "
                        "without a condition was answered as refused.",
                        hint="Read them, or write them again.",
                    )
            elif not isinstance(answer, Unknown) or not _is_done(
                commit.writes, self._present(commit.partition, commit.writes, lost=answer)
            ):
                raise answer

    def version(self, partition: str, key: str) -> bytes:
        """Return a record's version, NO_VERSION without a record."""
        rows = self._session.read(_READ_SOME, (_part(partition), [key]))
        return rows[0][1] if rows and rows[0][3] > self._now_us() else NO_VERSION

    def _present(
        self, partition: str, writes: Sequence[Write], *, lost: Unknown | None = None
    ) -> Mapping[str, tuple[bytes, int]]:
        place = _part(partition), [write.key for write in writes]
        if lost is None:
            rows = self._session.read_serial(_READ_SOME, place)
        else:
            rows = self._session.read_back(lost, _READ_SOME, place)
        return {key: (version, expires_us) for key, version, _, expires_us in rows}


@dataclass(slots=True)
class _Attempt:
    """A conditional commit, what is known to stand there, and its first answer that was lost.

    The first call assumes that the expectations hold; a rejected one reads the records.
    """

    commit: Commit
    present: Mapping[str, tuple[bytes, int]] | None = None
    lost: Unknown | None = None
    result: bool | DuelineError | None = None

    def calls(self, now_us: int) -> list[Call]:
        """Make the statements of one batch."""
        part = _part(self.commit.partition)
        return [_call(part, write, self.present, now_us) for write in self.commit.writes]

    def has_held(self) -> bool:
        """Return whether it was applied; raise if nobody knows."""
        if isinstance(self.result, bool):
            return self.result
        raise (
            self.result
            or self.lost
            or StoreUnavailable(
                f"The records of {self.commit.partition} keep changing.", hint="Try again."
            )
        )


def _expiry_of(until_us: int) -> int | None:
    return None if until_us == NEVER_US else until_us


def is_plain(writes: Iterable[Write]) -> bool:
    """Return whether writes need no condition, because their times order them."""
    return all(isinstance(write, Put) and write.at_us is not None for write in writes)


def bytes_of(write: Write) -> int:
    """Return the size of a write's value."""
    return 0 if isinstance(write, Delete) else len(write.value)


def _plain_call(part: str, write: Write, now_us: int) -> Call:
    assert isinstance(write, Put)
    _, (ttl_s, *cells) = _put(write, now_us)
    return _PUT_PLAINLY, (part, write.key, *cells, write.at_us, ttl_s)


def _part(partition: str) -> str:
    return f"/{partition}"


def _call(
    part: str, write: Write, present: Mapping[str, tuple[bytes, int]] | None, now_us: int
) -> Call:
    """Make a write on a condition: what is expected, as it is known to stand there.

    A record that is not to be there may lie there expired; then it is its version that counts.
    """
    text, values = (_DELETE, ()) if isinstance(write, Delete) else _put(write, now_us)
    row = (*values, part, write.key)
    if write.expect is None:
        return (f"{text} IF version != ?", (*row, _NOBODYS))
    if write.expect == NO_VERSION:
        version = present[write.key][0] if present and write.key in present else None
        return (f"{text} IF version = ?", (*row, version))
    return (f"{text} IF version = ? AND expires_us > ?", (*row, write.expect, now_us))


def _put(put: Put, now_us: int) -> tuple[str, tuple[object, ...]]:
    """Return the statement of a put; the server deletes an expired record a day later."""
    ttl_s = 0
    if put.expires_us is not None:
        ttl_s = max(put.expires_us - now_us, 0) // SECOND_US + _DAY_S
    expires_us = NEVER_US if put.expires_us is None else put.expires_us
    return _PUT, (0 if ttl_s > _TTL_S_MAX else ttl_s, put.version, put.value, expires_us)


def _status(
    writes: Sequence[Write],
    present: Mapping[str, tuple[bytes, int]],
    now_us: int,
    *,
    is_unsure: bool,
) -> WriteStatus:
    """Return the status of a commit (rule U5)."""
    stored = {key: version for key, (version, _) in present.items()}
    live = {key: version for key, (version, expires_us) in present.items() if expires_us > now_us}
    return status_of_commit(writes, stored, live, is_unsure=is_unsure)


def _is_done(writes: Sequence[Write], present: Mapping[str, tuple[bytes, int]]) -> bool:
    """Return whether the records are as the writes leave them."""
    return all(
        present.get(write.key, (NO_VERSION, 0))[0]
        == (NO_VERSION if isinstance(write, Delete) else write.version)
        for write in writes
    )
