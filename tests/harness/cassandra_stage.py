"""Stages on a real Cassandra: the same lives, stopped at calls or writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import Clock
from dueline.core.job import Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs import results
from dueline.stores.cassandra import statements, store
from dueline.stores.cassandra.session import CassandraSession
from dueline.stores.cassandra.store import CassandraStore
from dueline.stores.cassandra.url import Place
from tests.harness.calls import row_of
from tests.harness.lives import Stage
from tests.harness.stepped_store import nothing

if TYPE_CHECKING:
    from dueline.stores.cassandra.answers import Answer
    from dueline.stores.cassandra.session import Call
    from dueline.stores.cassandra.statements import Found

Level = Literal["calls", "writes"]
Step = Callable[[str], object]

CALLS = ("add", "claim", "settle", "sweep", "commit", "append")
"""What may change something: who stops before a read leaves what the last of these has left."""

FAR_BUCKET = 2**50
_numbers = count(1)


class SharedSession:
    """A client's statements on connections that all clients of a test share."""

    def __init__(self, session: CassandraSession, before_write: Callable[[], object]) -> None:
        """Take the connections, and what is called before anything is written."""
        self._session = session
        self._before_write = before_write

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a session has)
        return getattr(self._session, name)

    def write_many(self, batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        """Write after what comes before."""
        if batches:
            self._before_write()
        return self._session.write_many(batches)

    def write(self, batches: Sequence[Sequence[Call]]) -> None:
        """Write after what comes before."""
        if batches:
            self._before_write()
        self._session.write(batches)

    def decide_many(self, batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        """Write after what comes before."""
        if batches:
            self._before_write()
        return self._session.decide_many(batches)

    def decide(self, batch: Sequence[Call]) -> Answer:
        """Write after what comes before."""
        self._before_write()
        return self._session.decide(batch)

    def close(self) -> None:
        """Leave the connections to the others."""


class HandTimedStore(CassandraStore):
    """A client in a time that a test moves; each call, or each write, is a step."""

    def __init__(
        self, session: CassandraSession, clock: Clock, step: Step, level: Level, note: Step
    ) -> None:
        """Take the connections, the time, what is called before each step, and at each write."""

        def before_write() -> None:
            if level == "writes":
                step("write")
            note("write")

        with pytest.MonkeyPatch.context() as patch:
            shared = functools.partial(SharedSession, session, before_write)
            patch.setattr(store, "CassandraSession", lambda _place: shared())
            super().__init__(Place(session.place.hosts, session.place.keyspace), clock=clock)
        if level == "calls":
            for name in CALLS:
                setattr(self, name, _stepped(getattr(self, name), name, step))

    def clock_us(self) -> int:
        """Read the test's clock."""
        return self._clock.wall_us()


def _stepped(method: Callable[..., object], name: str, step: Step) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        step(name)
        return method(*args, **kwargs)

    return call


@dataclass
class CassandraStage(Stage):
    """A queue of its own in a keyspace that stages share.

    level: what is a step, a call of the store or a write to the servers.
    """

    session: CassandraSession = field(kw_only=True)
    level: Level = field(kw_only=True)
    settings: QueueSettings = field(kw_only=True)

    def __post_init__(self) -> None:
        """Choose a queue and a job that nobody used yet."""
        self.number = next(_numbers)
        self.queue = f"life{self.number}"
        self.plain = HandTimedStore(self.session, self.clock, nothing, "calls", nothing)
        self.has_changed = True

    def open_store(self) -> Store:
        """Make a client, with a memory of its own."""
        return HandTimedStore(self.session, self.clock, self.step, self.level, self._note_change)

    def _note_change(self, _name: str) -> None:
        self.has_changed = True

    def watch(self) -> None:
        """Note the first record of each end; nothing is read where nothing was written."""
        if self.has_changed:
            self.has_changed = False
            super().watch()

    def first_job(self) -> Job:
        """Make the job whose life is led."""
        job = row_of(self.number)
        return job._replace(lane=job.lane._replace(queue=self.queue))

    def rows(self) -> list[Job]:
        """List the rows of the job that are there, stubs aside."""
        return [row.job for row in self._found() if not row.stub]

    def _found(self) -> list[Found]:
        job_id = self.first_job().id
        rows: list[Found] = []
        for hop, *columns, pos_us in self.session.read(*statements.places(job_id)):
            lane = type(self.first_job().lane)(*columns)
            call = statements.some(lane, [(pos_us, job_id, hop)])
            rows += [statements.found(lane, row) for row in self.session.read(*call)]
        return rows

    def results(self) -> list[tuple[JobId, Outcome]]:
        """List the job's result, if it is kept."""
        job_id = self.first_job().id
        outcome = results.read(self.plain, job_id)
        return [] if outcome is None else [(job_id, outcome)]

    def is_over(self) -> bool:
        """Tell whether nothing but the dead is left, and nothing is on its way."""
        return not any(row.stub or row.job.lane.queue == self.queue for row in self._found())

    def listed(self, queue: str) -> int:
        """Count the pointers of a queue."""
        page = self.plain.lanes(queue, 0, until_bucket=FAR_BUCKET, after=None, limit=100)
        return len(page.pointers)
