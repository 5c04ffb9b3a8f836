"""Handles on batches."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic

from dueline.api.batch_progress import shown
from dueline.api.batch_views import BatchCounts, BatchItem
from dueline.api.code_changes import acting
from dueline.api.handle import REPORT_AFTER_US, REPORT_EVERY_US, R_co, twin
from dueline.api.job_handle import Job, decoded
from dueline.batches import ends, records
from dueline.batches.ends import AGAIN, DONE, SLICE, Slices
from dueline.coordination.worker_registry import live_workers
from dueline.core.attempt import Outcome
from dueline.core.batch_ids import ids_at
from dueline.core.clock import Clock, pauses
from dueline.core.errors import JobFailed, NotFound
from dueline.core.logging import log
from dueline.core.pagination import parts_of
from dueline.core.store_capabilities import answer_of
from dueline.jobs import bulk
from dueline.jobs.batch_results import RANGE, outcomes_at
from dueline.jobs.batch_slices import current_head
from dueline.jobs.bulk import BulkResult
from dueline.jobs.completion import OUTCOME_LEASE_US
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler

_FOUND_AT_ONCE: Final = 500


class Batch(Generic[R_co]):
    """A handle on a batch; `R` is the type of a job's result.

    `task.map(...)` returns it, `app.batch(name)` finds it. The names with an `a` in front do not
    block the event loop; the twin of `wait` is `await_`.
    """

    __slots__ = ("_batch", "_clock", "_kind", "_queues", "_tasks")

    def __init__(
        self,
        batch: records.Batch,
        queues: Queues,
        clock: Clock,
        kind: Any = Any,  # noqa: ANN401  (a type)
        tasks: Mapping[str, Handler] = {},
    ) -> None:
        self._batch, self._queues, self._clock = batch, queues, clock
        self._kind, self._tasks = kind, tasks

    def __repr__(self) -> str:
        return f"<Batch {self.name}>"

    def __len__(self) -> int:
        """Return the number of items that are stored."""
        return self._items()

    @property
    def name(self) -> str:
        """The name of the batch."""
        return self._batch.name

    @property
    def task(self) -> str:
        """The name of the task of its jobs."""
        return self._batch.task

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self._batch.queue

    def job(self, index: int) -> Job[R_co]:
        """Return a handle on the job of an item.

        Args:
            index: Position of the item, from 0.

        Raises:
            NotFound: Fewer items are stored.
        """
        if not 0 <= index < self._items():
            raise NotFound(f"The batch {self.name} has no item {index!r}.")
        return self._job(index)

    def _job(self, index: int) -> Job[R_co]:
        (job_id,) = ids_at(self._batch.id, [index])
        return Job(job_id, self._queues, self._clock, self._kind, self._tasks)

    def _items(self) -> int:
        engine = self._queues.engine
        head = answer_of(
            engine.store,
            lambda: current_head(engine, self._batch, idle_us=OUTCOME_LEASE_US),
        )
        return head.items

    def _ends(self) -> Slices:
        engine = self._queues.engine
        now_us = engine.time.latest_us()
        return answer_of(engine.store, lambda: ends.join(engine.store, self._batch.id, now_us))

    def counts(self) -> BatchCounts:
        """Return how many jobs are in each state; costs the same for batches of any size."""
        slices = self._ends()
        return _counts(self._items(), slices)

    def wait(
        self, timeout: timedelta | float | None = None, *, progress: bool = True
    ) -> BatchCounts:
        """Wait until all jobs of the batch have ended.

        Shows a progress bar on a terminal, or in a notebook with ipywidgets; lines elsewhere.

        Args:
            timeout: Maximum wait, a timedelta or seconds; None for no limit.
            progress: Whether progress is shown.

        Returns:
            How many jobs ended in each state; failed jobs raise nothing.

        Raises:
            TimeoutError: Some have not ended in time.
            StoreUnavailable: The store has not answered within its own time limit.
        """
        counts = BatchCounts()
        with shown(self.name, self._clock, is_shown=progress) as show:
            for counts, _ in self._views(timeout):
                show(counts)
                if not counts.left:
                    return counts
        raise self._late(counts)

    def results(
        self,
        timeout: timedelta | float | None = None,
        *,
        return_exceptions: bool = False,
    ) -> Iterator[R_co]:
        """Yield the results in the order of the items; wait for those that have not ended.

        Args:
            timeout: Maximum duration of all waits, a timedelta or seconds; None for no limit.
            return_exceptions: Yield a JobFailed in the place of a result that is missing.

        Raises:
            JobFailed: A job failed.
            TimeoutError: A job has not ended in time.
            NotFound: A result has expired, or is not kept.
        """
        for ended in self._in_order(timeout):
            yield from self._values(ended, return_exceptions=return_exceptions)

    def as_completed(self, timeout: timedelta | float | None = None) -> Iterator[BatchItem[R_co]]:
        """Yield ended jobs with their results, about in the order in which they end.

        Args:
            timeout: Maximum duration of all waits, a timedelta or seconds; None for no limit.

        Raises:
            TimeoutError: Some jobs have not ended in time.
            NotFound: A result has expired, or is not kept.
        """
        for ended in self._completed(timeout):
            yield from self._items_of(ended)

    def failures(self) -> Iterator[BatchItem[R_co]]:
        """Yield the jobs that have ended without a result until now, in the order of the items."""
        yield from self._failures_in(self._ends())

    def _failures_in(self, slices: Slices) -> Iterator[BatchItem[R_co]]:
        for number, states in sorted(slices.items()):
            failed = ends.ended_in(states) & ~states.get(DONE, 0)
            for part in parts_of(ends.positions_in(number, failed), _FOUND_AT_ONCE):
                yield from self._items_of(self._read(part, {number: states}))

    def retry_failed(self) -> int:
        """Run the dead jobs of the batch again.

        Returns:
            The number of jobs that run again.
        """
        queues = acting(self._queues)
        return sum(
            result.done
            for number, states in sorted(self._ends().items())
            for result in bulk.retry_all(
                queues, self._rows(ends.positions_in(number, states.get("dead", 0)))
            )
        )

    def cancel(self) -> BulkResult:
        """Cancel the jobs that wait, and ask the handlers of those that run to stop.

        Returns:
            How many were cancelled (`done`) and asked to stop (`asked`).
        """
        queues, slices, items = acting(self._queues), self._ends(), self._items()
        changed = BulkResult()
        for number in range(-(-items // SLICE)):
            many = min(SLICE, items - number * SLICE)
            left = (1 << many) - 1 & ~ends.ended_in(slices.get(number, {}))
            pages = bulk.cancel_all(queues, self._rows(ends.positions_in(number, left)))
            changed = changed.plus(bulk.sum_of(pages))
            self._ends()  # joins what each job has left
        return changed

    def to_arrow(self) -> Any:  # noqa: ANN401  (pyarrow has no types)
        """Wait for all jobs, and return the results as a table; needs `dueline[arrow]`.

        Returns:
            A `pyarrow.Table` with the columns index, status, value and error, in the order of the
            items. The value is null where a job failed, and a struct where handlers return dicts.

        Raises:
            BadInput: The results have no common type.
            ConfigError: pyarrow is not installed.
        """
        from dueline.api.batch_tables import table_of  # noqa: PLC0415  (needs pyarrow)

        return table_of(item for ended in self._in_order(None) for item in self._items_of(ended))

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas has no types)
        """Wait for all jobs, and return the results as a DataFrame; needs pandas, too.

        Returns:
            The columns status, value and error by index; where handlers return dicts, a column for
            each of their keys instead of value.

        Raises:
            BadInput: As in `to_arrow`; so is ConfigError.
        """
        from dueline.api.batch_tables import frame_of  # noqa: PLC0415  (needs pyarrow)

        return frame_of(self.to_arrow())

    acounts = twin(counts)
    aretry_failed = twin(retry_failed)
    acancel = twin(cancel)
    ato_arrow = twin(to_arrow)
    ato_pandas = twin(to_pandas)

    async def await_(
        self,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `wait`)
        *,
        progress: bool = True,
    ) -> BatchCounts:
        """Wait like `wait`, without blocking the event loop.

        Args:
            timeout: Maximum wait.
            progress: Whether progress is shown.

        Raises:
            TimeoutError: As in `wait`; so is StoreUnavailable.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.wait, timeout, progress=progress)

    async def aresults(
        self,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `results`)
        *,
        return_exceptions: bool = False,
    ) -> AsyncIterator[R_co]:
        """Yield results like `results`, without blocking the event loop.

        Args:
            timeout: Maximum duration of all waits.
            return_exceptions: Yield a JobFailed in the place of a result that is missing.

        Raises:
            JobFailed: As in `results`; so are TimeoutError and NotFound.
        """
        async for ended in _in_threads(self._in_order(timeout)):
            for value in self._values(ended, return_exceptions=return_exceptions):
                yield value

    async def aas_completed(
        self,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `as_completed`)
    ) -> AsyncIterator[BatchItem[R_co]]:
        """Yield ended jobs like `as_completed`, without blocking the event loop.

        Args:
            timeout: Maximum duration of all waits.

        Raises:
            TimeoutError: As in `as_completed`; so is NotFound.
        """
        async for ended in _in_threads(self._completed(timeout)):
            for item in self._items_of(ended):
                yield item

    async def afailures(self) -> AsyncIterator[BatchItem[R_co]]:
        """Yield failed jobs like `failures`, without blocking the event loop."""
        async for items in _in_threads(parts_of(self.failures(), RANGE)):
            for item in items:
                yield item

    def _views(self, timeout: timedelta | float | None) -> Iterator[tuple[BatchCounts, Slices]]:
        """Yield how the batch is, until the time is over; log why it does not go on."""
        report_us, ended = self._clock.monotonic_us() + REPORT_AFTER_US, -1
        for pause_s in pauses(self._clock, timeout):
            if pause_s:
                self._clock.sleep(pause_s)
            slices = self._ends()
            counts = _counts(self._items(), slices)
            now_us = self._clock.monotonic_us()
            if counts.ended != ended:
                report_us, ended = max(report_us, now_us + REPORT_AFTER_US), counts.ended
            elif now_us >= report_us and counts.left:
                report_us = now_us + REPORT_EVERY_US
                self._report_wait()
            yield counts, slices

    def _report_wait(self) -> None:
        engine = self._queues.engine
        live = answer_of(engine.store, lambda: live_workers(engine))
        if not any(self.queue in worker.queues for worker in live):
            log.warning("batch %s waits: no live worker serves the queue %s", self.name, self.queue)

    def _late(self, counts: BatchCounts) -> TimeoutError:
        return TimeoutError(
            f"The batch {self.name} has {counts.left} of {counts.items} jobs that have not ended."
        )

    def _in_order(self, timeout: timedelta | float | None) -> Iterator[Mapping[int, Outcome]]:
        position, counts = 0, BatchCounts()
        for counts, slices in self._views(timeout):
            while position < counts.items:
                number, place = divmod(position, SLICE)
                states = slices.get(number, {})
                waiting = ~(ends.ended_in(states) >> place)
                ready = min((waiting & -waiting).bit_length() - 1, SLICE - place, RANGE)
                if not ready:
                    break
                yield self._read(range(position, position + ready), slices)
                position += ready
            if position >= counts.items:
                return
        raise self._late(counts)

    def _completed(self, timeout: timedelta | float | None) -> Iterator[Mapping[int, Outcome]]:
        seen: dict[int, int] = {}
        counts = BatchCounts()
        for counts, slices in self._views(timeout):
            for number, states in sorted(slices.items()):
                ended = ends.ended_in(states)
                fresh = ended & ~seen.get(number, 0)
                for part in parts_of(ends.positions_in(number, fresh), RANGE):
                    yield self._read(part, slices)
                seen[number] = ended | seen.get(number, 0)
            if not counts.left:
                return
        raise self._late(counts)

    def _read(self, positions: Sequence[int], slices: Slices) -> Mapping[int, Outcome]:
        """Return how jobs ended, in the order of their positions.

        Raises: NotFound: A job is done, and its result is not kept.
        """
        engine = self._queues.engine
        outcomes = answer_of(engine.store, lambda: outcomes_at(engine, self._batch.id, positions))
        return {
            position: outcomes.get(position) or self._unkept(position, slices)
            for position in positions
        }

    def _items_of(self, ended: Mapping[int, Outcome]) -> Iterator[BatchItem[R_co]]:
        ids = ids_at(self._batch.id, ended)
        done = [outcome.value for outcome in ended.values() if outcome.state == DONE]
        values = iter(self._decoded(done))
        for (position, outcome), job_id in zip(ended.items(), ids, strict=True):
            job: Job[R_co] = Job(job_id, self._queues, self._clock, self._kind, self._tasks)
            value = next(values) if outcome.state == DONE else None
            yield BatchItem(position, job, outcome.state, value, outcome.error)

    def _values(self, ended: Mapping[int, Outcome], *, return_exceptions: bool) -> Iterator[Any]:
        if all(outcome.state == DONE for outcome in ended.values()):
            yield from self._decoded([outcome.value for outcome in ended.values()])
            return
        for item in self._items_of(ended):
            if item.status == DONE:
                yield item.value
            elif not return_exceptions:
                item.result()
            else:
                try:
                    item.result()
                except JobFailed as error:
                    yield error

    def _decoded(self, values: Sequence[str]) -> Sequence[Any]:
        return decoded(self._queues, values, self._kind)

    def _unkept(self, position: int, slices: Slices) -> Outcome:
        """Return what is known of a job without a result."""
        number, place = divmod(position, SLICE)
        states = slices.get(number, {})
        state = next((name for name, marks in states.items() if marks >> place & 1), DONE)
        if state == DONE:
            raise NotFound(
                f"The result of the item {position} of the batch {self.name} has expired, or is "
                "not kept.",
                hint=f"Read results earlier, or keep them for longer: app.queue({self.queue!r}, "
                "keep=...).",
            )
        return Outcome(state, 0, error="Its error is no longer kept.")  # type: ignore[arg-type]

    def _rows(self, positions: Sequence[int]) -> Iterator[Any]:
        """Yield the rows of jobs that have one."""
        for part in parts_of(positions, _FOUND_AT_ONCE):
            for row in self._queues.engine.store.find(ids_at(self._batch.id, part)):
                if row is not None:
                    yield row


def _counts(items: int, slices: Slices) -> BatchCounts:
    by_state: dict[str, int] = {}
    for states in slices.values():
        for state, marks in states.items():
            if state != AGAIN:
                by_state[state] = by_state.get(state, 0) + marks.bit_count()
    return BatchCounts(max(items, sum(by_state.values())), **by_state)


async def _in_threads(parts: Iterator[Any]) -> AsyncIterator[Any]:
    """Yield what an iterator yields, which waits in another thread."""
    from asyncio import to_thread  # noqa: PLC0415  (slow to load)

    while (part := await to_thread(next, parts, None)) is not None:
        yield part


def glance(batch: Batch[R_co]) -> tuple[BatchCounts, Iterator[BatchItem[R_co]]]:
    """Return how many jobs are in each state, and those that failed, without any write.

    For pages and lists: `Batch.counts` also completes and joins what others left.
    """
    store, known = batch._queues.engine.store, batch._batch  # noqa: SLF001  (of this module)
    slices = ends.read(store, known.id)
    counts = _counts(records.head_of(store, known.id).items, slices)
    return counts, batch._failures_in(slices)  # noqa: SLF001
