"""The arguments of writes, as lua/groups.lua reads them. Hot path: the benchmark `default`."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dueline.core.job import Job, JobId
from dueline.core.store import Delete, Drop, Extend, Group, Move, Row, Verdict, Write
from dueline.core.wakeup import Wakeup
from dueline.stores.redis.rows import NEVER, lane_key, pack8, packed, shard_key, unpack8

WAKEUP_BYTES_MAX: Final = 8000

PART: Final = 500
"""Maximum number of jobs, rows or records of a call: the server does nothing else meanwhile."""

_ARGUMENTS_MAX: Final = 6 * PART


class Operations:
    """Operations of one call, and the ids of the rows that they read.

    Attributes:
      ids: The ids.
      arguments: The operations.
    """

    def __init__(self) -> None:
        self.ids: list[JobId] = []
        self.arguments: list[bytes] = []

    def all(self) -> list[bytes]:
        """Return the arguments of the call."""
        return [b"%d" % len(self.ids), *self.ids, *self.arguments]

    def is_full(self) -> bool:
        """Return whether the next group is for another call."""
        return len(self.ids) >= PART or len(self.arguments) >= _ARGUMENTS_MAX

    def add_group(self, group: Group) -> None:
        """Add a group."""
        self.arguments.append(b"G")
        self.add_verdicts(group.verdicts)
        for commit in group.commits:
            self.add_writes(commit.partition, commit.writes)
        self.add_jobs(group.jobs)
        self.add_rows(group.rows)

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts to the last group."""
        arguments = self.arguments
        for verdict in verdicts:
            job = verdict.job
            self.ids.append(job.id)
            if isinstance(verdict, Drop):
                arguments += (b"D", job.id, lane_key(job.lane), job.token)
            elif isinstance(verdict, Extend):
                arguments += (
                    b"E", job.id, lane_key(job.lane), job.token, pack8(verdict.at_us),
                    b"1" if verdict.started else b"0",
                )  # fmt: skip
            else:
                arguments += _moved(verdict)

    def add_writes(self, partition: str, writes: Iterable[Write]) -> None:
        """Add writes of records to the last group."""
        place = partition.encode()
        for write in writes:
            key, expect = write.key.encode(), write.expect
            expected = (b"", b"") if expect is None else (b"1", expect)
            if isinstance(write, Delete):
                self.arguments += (b"X", place, key, *expected)
            else:
                expires = NEVER if write.expires_us is None else pack8(write.expires_us)
                self.arguments += (
                    b"P", place, key, write.version, write.value, *expected, expires
                )  # fmt: skip

    def add_jobs(self, jobs: Iterable[Job]) -> None:
        """Add inserts to the last group."""
        for job in jobs:
            self.ids.append(job.id)
            self.arguments += (b"J", job.id, *packed(job))

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Add rows of streams to the last group."""
        for row in rows:
            shard = shard_key(row.stream, row.shard)
            self.arguments += (b"R", shard, pack8(row.at_us), row.id, row.body)

    def add_wakeups(self, wakeups: Sequence[Wakeup]) -> None:
        """Add messages to idle workers."""
        for wakeup in wakeups:
            message = wakeup.to_bytes(WAKEUP_BYTES_MAX)
            self.arguments += (b"W", wakeup.channel.encode(), message)


def each_verdict(verdicts: Iterable[Verdict]) -> Operations:
    """Return a call with each verdict as a group of its own."""
    operations = Operations()
    for verdict in verdicts:
        operations.arguments.append(b"G")
        operations.add_verdicts((verdict,))
    return operations


def parts_of_groups(groups: Iterable[Group]) -> list[Operations]:
    """Return groups in calls of PART jobs, or of one group that has more."""
    parts: list[Operations] = []
    for group in groups:
        if not parts or parts[-1].is_full():
            parts.append(Operations())
        parts[-1].add_group(group)
    return parts


class Outcome(NamedTuple):
    """The outcome of a call: whether each group was applied, and the times of rows of streams."""

    held: list[bool]
    times_us: list[int]


def outcome_of(data: bytes) -> Outcome:
    """Return the outcome of a call."""
    end = 4 + int.from_bytes(data[:4])
    held = [flag == ord("1") for flag in data[4:end]]
    return Outcome(held, [unpack8(data, place) for place in range(end, len(data), 8)])


def _moved(move: Move) -> tuple[bytes, ...]:
    job, to = move.job, move.to
    assert to is None or move.due_us is None, "a job that moves to another lane keeps its due time"
    return (
        b"M", job.id, lane_key(job.lane), job.token, pack8(move.at_us), move.token,
        pack8(move.listing), move.errors.to_bytes(4), move.crashes.to_bytes(4),
        bytes((move.state, move.alone, move.opts is not None)), move.outcome, move.error.encode(),
        b"" if to is None else lane_key(to),
        b"" if move.due_us is None else pack8(move.due_us), move.opts or b"",
    )  # fmt: skip
