"""Records of workflows: their layouts, and the outcomes of their steps.

The outcomes of a workflow are a set that only grows. Each step has its own key in it, so repeated
and concurrent writes lead to the same set (rule W2). A dead step may be retried: its death has
another key than its outcome, and counts until there is an outcome (rule W6).
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from dueline.core.attempt import Outcome
from dueline.core.call_options import StepPlace, flow_of, read_options
from dueline.core.clock import DAY_US
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records
from dueline.workflows.graph import BLOCK, Layout, read_layout
from dueline.workflows.readiness import End

_LARGE: Final = 1024
"""Larger values are stored separately, so that counting outcomes does not read them."""

_APART: Final = "apart"  # no JSON
_BETWEEN: Final = "\x1e"
"""Separates the outcomes in one record; no JSON contains it."""

_DIGITS: Final = 6
_DAYS: Final = "flows"
_LAYOUT: Final = "layout"
_ENDS_A_PAGE: Final = 2 * BLOCK


def step_of(job: Job) -> tuple[JobId, int] | None:
    """Return the workflow and the step of a job; None: it has none."""
    return _step_of(job.id, job.opts) if job.opts else None


@lru_cache(maxsize=4096)
def _step_of(job_id: JobId, opts: bytes) -> tuple[JobId, int] | None:
    """Return the workflow and the step; cached, since callers ask several times for a job."""
    place = _place_in(opts)
    return None if place is None else (flow_of(job_id, place.number), place.number)


def flow_with(job: Job) -> JobId:
    """Return the workflow of a job that is a step."""
    place = step_of(job)
    assert place is not None
    return place[0]


def place_of(job: Job) -> StepPlace | None:
    """Return a job's place in its workflow; None if it has none, or it cannot be read."""
    return _place_in(job.opts) if job.opts else None


def _place_in(opts: bytes) -> StepPlace | None:
    try:
        return read_options(opts).step
    except StoreCorrupt:  # the worker that runs the job reports it
        return None


def job_of(flow: JobId, step: int) -> JobId:
    """Return the job id of a step."""
    return JobId((int.from_bytes(flow) + step + 1).to_bytes(16))


# The layout, and the list of all workflows


def put_layout(flow: JobId, layout: Layout, *, version: bytes) -> list[Commit]:
    """Return the writes that store a workflow; the same for every repeat."""
    day = _day_of(flow)
    return [
        Commit(_place(flow), (Put(_LAYOUT, version, layout.to_bytes()),)),
        Commit(f"{_DAYS}/{day}", (Put(flow.hex(), version, layout.name.encode()),)),
        Commit(_DAYS, (Put(day, version, b""),)),
    ]


def read(records: Records, flow: JobId) -> Layout | None:
    """Read the layout of a workflow; None: it does not exist, or has expired."""
    record = record_at(records, _place(flow), _LAYOUT)
    return None if record is None else read_layout(record.value)


def unreadable_in(records: Records) -> Iterator[Unreadable]:
    """Yield damaged records of workflows: layouts and outcomes."""
    for flow, _ in listed(records):
        try:
            layout = read(records, flow)
            if layout is not None:
                ends(records, flow, layout.blocks(), with_values=False)
        except StoreCorrupt as error:
            yield Unreadable(f"workflow {flow.hex()}", error.message)


def listed(records: Records) -> Iterator[tuple[JobId, str]]:
    """Yield the stored workflows and their names, the newest days first."""
    for day in sorted((record.key for record in records_in(records, _DAYS)), reverse=True):
        for record in reversed(list(records_in(records, f"{_DAYS}/{day}"))):
            yield JobId(bytes.fromhex(record.key)), record.value.decode()


def _day_of(flow: JobId) -> str:
    return f"{created_us(flow) // DAY_US:06}"


# Outcomes


def record(job: Job, outcome: Outcome) -> list[Commit]:
    """Return the writes that record the outcome of a step; nothing for a job without workflow.

    A death does not overwrite an outcome, nor a late outcome a later one. The version is the token
    of the claim.
    """
    place = step_of(job)
    if place is None:
        return []
    flow, step = place
    block, state, value = (flow, step // BLOCK), outcome.state, outcome.value
    key = f"{step:06}-dead" if state == "dead" else f"{step:06}"
    commits = []
    if len(value) > _LARGE:
        commits.append(Commit(_values(*block), (Put(key, job.token, value.encode()),)))
        value = _APART
    text = f"{state} {outcome.ended_us} {value or outcome.error}"
    return [*commits, Commit(_block(*block), (Put(key, job.token, text.encode()),))]


def record_done(done: Iterable[tuple[Job, int, str]]) -> list[Commit]:
    """Return the writes that record done steps, on stores with transactions.

    One record for all in a block is faster than one for each. No other process writes it: its key
    has the number of the first step and the token of its claim.

    Args: done: jobs, when they ended, and their results, JSON.
    """
    blocks: dict[tuple[JobId, int], list[tuple[int, str, bytes]]] = defaultdict(list)
    apart: dict[tuple[JobId, int], list[Put]] = defaultdict(list)
    for job, ended_us, value in done:
        place = step_of(job)
        if place is None:
            continue
        flow, step = place
        block = (flow, step // BLOCK)
        is_large = len(value) > _LARGE
        if is_large:
            apart[block].append(Put(f"{step:06}", job.token, value.encode()))
        text = f"{step} {ended_us} {_APART if is_large else value}"
        blocks[block].append((step, text, job.token))
    commits = [Commit(_values(*block), puts) for block, puts in apart.items()]
    for block, ends in blocks.items():
        ends.sort()
        first, _, token = ends[0]
        data = _BETWEEN.join([each for _, each, _ in ends]).encode()
        commits.append(Commit(_block(*block), (Put(f"{first:06}+{token.hex()}", token, data),)))
    return commits


def copies(flow: JobId, ends: Mapping[int, End]) -> Iterator[Commit]:
    """Yield the writes of outcomes of another workflow; the same for every repeat."""
    blocks: dict[int, list[Put]] = defaultdict(list)
    for step, end in sorted(ends.items()):
        value = end.value
        key = f"{step:06}" if end.is_final else f"{step:06}-dead"
        if len(value) > _LARGE:
            yield Commit(_values(flow, step // BLOCK), (Put(key, flow, value.encode()),))
            value = _APART
        text = f"{end.state} {end.ended_us} {value or end.error}"
        blocks[step // BLOCK].append(Put(key, flow, text.encode()))
    yield from (Commit(_block(flow, block), puts) for block, puts in blocks.items())


def ended(records: Records, flow: JobId, block: int) -> set[int]:
    """Read which steps of a block have ended."""
    return {step for step, *_ in _read_ends(records, flow, block)}


def ends(
    records: Records, flow: JobId, blocks: Iterable[int], *, with_values: bool = True
) -> dict[int, End]:
    """Read the outcomes of the ended steps of some blocks."""
    outcomes: dict[int, End] = {}
    for block in blocks:
        for step, state, at_us, text in _read_ends(records, flow, block):
            value, error = (text, "") if state == "done" else ("", text)
            if with_values and value == _APART:
                apart = record_at(records, _values(flow, block), f"{step:06}")
                if apart is None:  # it is not readable yet
                    continue
                value = apart.value.decode()
            outcomes.setdefault(step, End(state, value, error, at_us))  # an outcome comes first
    return outcomes


def _read_ends(records: Records, flow: JobId, block: int) -> Iterator[tuple[int, str, int, str]]:
    """Yield the outcomes of a block: step, state, when, value or error.

    The outcome of a step comes before its death: the key of a record of many starts with its first
    step, and "+" sorts before "-".
    """
    for key, _, data in records_in(records, _block(flow, block), page_size=_ENDS_A_PAGE):
        try:
            yield from _ends_in(key, data.decode())
        except ValueError as error:
            raise StoreCorrupt(
                f"The record {_block(flow, block)}/{key} with outcomes of workflow steps cannot be "
                f"read: {error}."
            ) from error


def _ends_in(key: str, text: str) -> Iterator[tuple[int, str, int, str]]:
    if key[_DIGITS : _DIGITS + 1] == "+":
        for line in text.split(_BETWEEN):
            step, at_us, value = line.split(" ", 2)
            yield int(step), "done", int(at_us), value
    else:
        state, at_us, value = text.split(" ", 2)
        yield int(key[:_DIGITS]), state, int(at_us), value


def put_full(flow: JobId, step: int, block: int, *, version: bytes) -> Commit:
    """Return the write that records that all needs of a step in a block have ended."""
    return Commit(f"{_place(flow)}/full/{step}", (Put(f"{block:06}", version, b""),))


def full(records: Records, flow: JobId, step: int) -> set[int]:
    """Read in which blocks all needs of a step have ended."""
    return {int(record.key) for record in records_in(records, f"{_place(flow)}/full/{step}")}


# Signals


def signal(flow: JobId, name: str, value: bytes, *, version: bytes) -> Commit:
    """Return the write of a signal; only the first one succeeds."""
    return Commit(f"{_place(flow)}/signals", (Put(name, version, value, expect=NO_VERSION),))


def signalled(records: Records, flow: JobId, name: str) -> bytes | None:
    """Read the value of a signal, JSON; None: it was not sent."""
    signal = record_at(records, f"{_place(flow)}/signals", name)
    return None if signal is None else signal.value


# Retention


def started_before(records: Records, before_us: int, *, after: str) -> Iterator[tuple[str, JobId]]:
    """Yield workflows that were started before a timestamp, with their places in the list.

    Args: after: the place to continue after, the earliest first; empty for all.
    """
    last, (first, _, begun) = f"{before_us // DAY_US:06}", after.partition("/")
    for day in sorted(record.key for record in records_in(records, _DAYS)):
        if not first <= day <= last:
            continue
        for record in records_in(
            records, f"{_DAYS}/{day}", after=begun if begun and day == first else None
        ):
            flow = JobId(bytes.fromhex(record.key))
            if created_us(flow) < before_us:
                yield f"{day}/{record.key}", flow


def forget(records: Records, flow: JobId, layout: Layout | None) -> Iterator[str]:
    """Delete the records of a workflow, its place in the list last.

    It may be stopped anywhere, and repeated. layout: None if only the place is left.

    Yields: the partition of each deletion.
    """
    for partition in () if layout is None else partitions_of(flow, layout):
        while page := records.read(partition, after=None, limit=_ENDS_A_PAGE):
            records.commit(partition, [Delete(record.key) for record in page])
            yield partition
    day = _day_of(flow)
    records.commit(f"{_DAYS}/{day}", [Delete(flow.hex())])
    if not records.read(f"{_DAYS}/{day}", after=None, limit=1):
        records.commit(_DAYS, [Delete(day)])


def partitions_of(flow: JobId, layout: Layout) -> Iterator[str]:
    """Yield the partitions of a workflow; the layout is in the last."""
    place = _place(flow)
    for block in layout.blocks():
        yield _block(flow, block)
        yield _values(flow, block)
    for step in range(len(layout.nodes)):
        if len(layout.needs_by_block(step)) > BLOCKS_READ:
            yield f"{place}/full/{step}"
    yield f"{place}/signals"
    yield place


BLOCKS_READ: Final = 2
"""If the needs of a step are in more blocks, the full ones are recorded."""


def _place(flow: JobId) -> str:
    return f"flows/{flow.hex()}"


def _block(flow: JobId, block: int) -> str:
    return f"{_place(flow)}/{block}"


def _values(flow: JobId, block: int) -> str:
    return f"{_place(flow)}/values/{block}"


class Layouts:
    """A cache of layouts, which never change; threads may share it.

    It also holds which of their steps have ended: these sets only grow.
    """

    def __init__(self, most: int = 200_000) -> None:
        self._found: dict[JobId, Layout] = {}
        self._ended: dict[JobId, dict[int, set[int]]] = {}
        self._left = most
        self._guard = threading.Lock()

    def get(self, records: Records, flow: JobId) -> Layout | None:
        """Return the layout of a workflow; None: it does not exist, or has expired."""
        layout = self._found.get(flow)
        if layout is None and (layout := read(records, flow)) is not None:
            with self._guard:
                self._keep(flow, layout)
        return layout

    def ended(self, flow: JobId) -> dict[int, set[int]]:
        """Return the known ended steps of a workflow, by block; callers add to it."""
        return self._ended.get(flow, defaultdict(set))

    def _keep(self, flow: JobId, layout: Layout) -> None:
        if flow in self._found:  # by another thread, meanwhile
            return
        self._found[flow] = layout
        self._ended[flow] = defaultdict(set)
        self._left -= len(layout.nodes) + 1
        while self._left < 0 and len(self._found) > 1:
            oldest = next(iter(self._found))
            self._ended.pop(oldest, None)
            self._left += len(self._found.pop(oldest).nodes) + 1
