"""A store that fails on demand."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Literal, TypeVar

from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import (
    Claimed,
    Group,
    JobPage,
    LanePage,
    Record,
    Row,
    RowPage,
    Store,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import PrefetchResult, SupportsPrefetch

Answer = TypeVar("Answer")


class Fault(Enum):
    """A fault of a call; the caller gets `Unknown` either way."""

    BEFORE = "dropped before it reached the store: nothing happened"
    AFTER = "applied, and the answer was lost"


class FailingStore:
    """Passes calls on to a store, and fails the n-th as a plan says.

    To try every place at which something can fail: run a scenario with `{1: fault}`,
    `{2: fault}`, … until `calls` stays below the number that was to fail.

    calls: how many calls of the store there were so far; the first is number 1.
    """

    transactional: bool
    scope: Literal["process", "machine", "network"]

    def __init__(self, store: Store, plan: Mapping[int, Fault]) -> None:
        self.transactional = store.transactional
        self.scope = store.scope
        self.calls = 0
        self._store = store
        self._plan = plan

    def _call(self, call: Callable[[], Answer]) -> Answer:
        self.calls += 1
        number, fault = self.calls, self._plan.get(self.calls)
        if fault is Fault.BEFORE:
            raise Unknown(f"call {number} was {fault.value}")
        answer = call()
        if fault is Fault.AFTER:
            raise Unknown(f"call {number} was {fault.value}")
        return answer

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.add(jobs))

    def claim(
        self,
        wants: Sequence[Want],
        *,
        limit: int,
        now_us: int,
        lease_us: int,
        worker: str,
        token: Token,
    ) -> Claimed:
        """Pass on, or fail."""
        return self._call(
            lambda: self._store.claim(
                wants, limit=limit, now_us=now_us, lease_us=lease_us, worker=worker, token=token
            )
        )

    def prefetch(
        self,
        wants: Sequence[Want],
        *,
        limit: int,
        now_us: int,
        until_us: int,
        lease_us: int,
        worker: str,
        token: Token,
    ) -> PrefetchResult:
        """Pass on, or fail; return no job if the store does not support prefetch."""
        store = self._store
        if not isinstance(store, SupportsPrefetch):
            return PrefetchResult([], {})
        return self._call(
            lambda: store.prefetch(
                wants,
                limit=limit,
                now_us=now_us,
                until_us=until_us,
                lease_us=lease_us,
                worker=worker,
                token=token,
            )
        )

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.settle(verdicts))

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.find(ids))

    def scan(
        self, lane: Lane, *, after: tuple[int, JobId] | None, until_us: int | None, limit: int
    ) -> JobPage:
        """Pass on, or fail."""
        return self._call(
            lambda: self._store.scan(lane, after=after, until_us=until_us, limit=limit)
        )

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Pass on, or fail."""
        return self._call(
            lambda: self._store.lanes(
                queue, shard, until_bucket=until_bucket, after=after, limit=limit
            )
        )

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Pass on, or fail."""
        return self._call(lambda: self._store.sweep(queue, shard, now_us=now_us, width_us=width_us))

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.read(partition, after=after, limit=limit))

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Pass on, or fail."""
        return self._call(lambda: self._store.commit(partition, writes))

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.append(rows))

    def tail(
        self,
        stream: str,
        shard: int,
        *,
        after: tuple[int, bytes] | None,
        limit: int,
        until_us: int | None = None,
    ) -> RowPage:
        """Pass on, or fail."""
        return self._call(
            lambda: self._store.tail(stream, shard, after=after, limit=limit, until_us=until_us)
        )

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Pass on, or fail."""
        return self._call(lambda: self._store.close_until(stream, shard, at_us=at_us))

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Pass on, or fail."""
        self._call(lambda: self._store.expire(stream, shard, before_us=before_us))

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Pass on, or fail."""
        return self._call(lambda: self._store.together(groups))

    def clock_us(self) -> int:
        """Pass on, or fail."""
        return self._call(self._store.clock_us)

    def describe(self) -> Mapping[str, str]:
        """Pass on; this never fails and is not counted."""
        return self._store.describe()

    def close(self) -> None:
        """Pass on; this never fails and is not counted."""
        self._store.close()
