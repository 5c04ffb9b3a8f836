"""How workflows are laid out, and which of their steps have ended.

The ends of a workflow are a set that only grows: each step has a place of its own in it, so that
repeats, and workers that write at once, come to the same set (rule W2). A step that died may be
retried: its death has another place than its end, and counts until there is one (rule W6).
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from dueline.core.attempt import Outcome
from dueline.core.call_options import StepPlace, read_options
from dueline.core.clock import DAY_US
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import born_us
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records
from dueline.core.tuples import made
from dueline.workflows.graph import BLOCK, Layout, read_layout
from dueline.workflows.readiness import End

_LARGE: Final = 1024
"""The values of larger ends lie by themselves, so that who counts ends does not read them."""

_APART: Final = "apart"  # no JSON
_BETWEEN: Final = "\x1e"
"""Stands between the ends in one record; no JSON holds it."""

_DIGITS: Final = 6
_DAYS: Final = "flows"
_LAYOUT: Final = "layout"
_ENDS_A_PAGE: Final = 2 * BLOCK


def step_of(job: Job) -> tuple[JobId, int] | None:
    """Tell of which workflow a job is, and which step; None: of none."""
    return _step_of(job.id, job.opts) if job.opts else None


@lru_cache(maxsize=4096)
def _step_of(job_id: JobId, opts: bytes) -> tuple[JobId, int] | None:
    """Tell it; what is asked of a job several times is reckoned once."""
    place = _place_in(opts)
    return None if place is None else (flow_of(job_id, place.number), place.number)


def place_of(job: Job) -> StepPlace | None:
    """Tell a job's place in its workflow; None where it is of none, or that cannot be read."""
    return _place_in(job.opts) if job.opts else None


def _place_in(opts: bytes) -> StepPlace | None:
    try:
        return read_options(opts).step
    except StoreCorrupt:  # whoever runs it says so
        return None


def flow_of(job_id: JobId, step: int) -> JobId:
    """Tell the workflow's id from that of one of its steps: they count up from it."""
    return JobId((int.from_bytes(job_id) - step - 1).to_bytes(16))


def job_of(flow: JobId, step: int) -> JobId:
    """Tell the id of a step's job."""
    return JobId((int.from_bytes(flow) + step + 1).to_bytes(16))


# The layout, and the list of all workflows


def put_layout(flow: JobId, layout: Layout, *, version: bytes) -> list[Commit]:
    """Make the writes that store a workflow; the same for every repeat."""
    day = _day_of(flow)
    return [
        Commit(_place(flow), (Put(_LAYOUT, version, layout.to_bytes()),)),
        Commit(f"{_DAYS}/{day}", (Put(flow.hex(), version, layout.name.encode()),)),
        Commit(_DAYS, (Put(day, version, b""),)),
    ]


def read(records: Records, flow: JobId) -> Layout | None:
    """Read how a workflow is laid out; None: there is none, or nothing is kept of it."""
    record = record_at(records, _place(flow), _LAYOUT)
    return None if record is None else read_layout(record.value)


def unreadable_in(records: Records) -> Iterator[Unreadable]:
    """Yield damaged records of workflows: layouts, and how steps ended."""
    for flow, _ in listed(records):
        try:
            layout = read(records, flow)
            if layout is not None:
                ends(records, flow, layout.blocks(), with_values=False)
        except StoreCorrupt as error:
            yield Unreadable(f"workflow {flow.hex()}", error.message)


def listed(records: Records) -> Iterator[tuple[JobId, str]]:
    """List the workflows of which something is kept, and their names, the newest days first."""
    for day in sorted((one.key for one in records_in(records, _DAYS)), reverse=True):
        some = list(records_in(records, f"{_DAYS}/{day}"))
        for record in reversed(some):
            yield JobId(bytes.fromhex(record.key)), record.value.decode()


def _day_of(flow: JobId) -> str:
    return f"{born_us(flow) // DAY_US:06}"


# Ends


def record(job: Job, outcome: Outcome) -> list[Commit]:
    """Make the writes that say how a step ended; nothing for a job of no workflow.

    A death does not overwrite an end, nor an end that comes late a later one. The version is the
    claim's token.
    """
    found = step_of(job)
    if found is None:
        return []
    flow, step = found
    block, state, value = (flow, step // BLOCK), outcome.state, outcome.value
    key = f"{step:06}-dead" if state == "dead" else f"{step:06}"
    commits = []
    if len(value) > _LARGE:
        commits.append(Commit(_values(*block), (Put(key, job.token, value.encode()),)))
        value = _APART
    text = f"{state} {outcome.ended_us} {value or outcome.error}"
    return [*commits, Commit(_block(*block), (Put(key, job.token, text.encode()),))]


def record_done(done: Iterable[tuple[Job, int, str]]) -> list[Commit]:
    """Make the writes that say that steps are done, where they and their ends are one transaction.

    One record for all in a block (two thirds of the time of one for each, November 2026), which
    nobody else writes: it is named for the first of them, and for the claim that this one ended by.

    Args: done: jobs, when they ended, and their results, JSON.
    """
    blocks: dict[tuple[JobId, int], list[tuple[int, str, bytes]]] = defaultdict(list)
    apart: dict[tuple[JobId, int], list[Put]] = defaultdict(list)
    for job, ended_us, value in done:
        found = step_of(job)
        if found is None:
            continue
        flow, step = found
        block = (flow, step // BLOCK)
        is_large = len(value) > _LARGE
        if is_large:
            apart[block].append(Put(f"{step:06}", job.token, value.encode()))
        told = f"{step} {ended_us} {_APART if is_large else value}"
        blocks[block].append((step, told, job.token))
    commits = [Commit(_values(*block), puts) for block, puts in apart.items()]
    for block, ends in blocks.items():
        ends.sort()
        first, _, token = ends[0]
        text = _BETWEEN.join([each for _, each, _ in ends]).encode()
        commits.append(Commit(_block(*block), (Put(f"{first:06}+{token.hex()}", token, text),)))
    return commits


def ended(records: Records, flow: JobId, block: int) -> set[int]:
    """Read which steps of a block have ended."""
    return {step for step, *_ in _told(records, flow, block)}


def ends(
    records: Records, flow: JobId, blocks: Iterable[int], *, with_values: bool = True
) -> dict[int, End]:
    """Read how the steps of some blocks ended; those that have not are absent."""
    found: dict[int, End] = {}
    for block in blocks:
        steps: list[int] = []
        cells: list[tuple[str, str, str, int]] = []
        for step, state, at_us, text in _told(records, flow, block):
            value, error = (text, "") if state == "done" else ("", text)
            if with_values and value == _APART:
                apart = record_at(records, _values(flow, block), f"{step:06}")
                if apart is None:  # it is on its way
                    continue
                value = apart.value.decode()
            steps.append(step)
            cells.append((state, value, error, at_us))
        for step, end in zip(steps, made(End, cells), strict=True):
            found.setdefault(step, end)  # it died, and ended all the same
    return found


def _told(records: Records, flow: JobId, block: int) -> Iterator[tuple[int, str, int, str]]:
    """Read what is told of a block: steps, states, when, values or errors.

    The end of a step before its death: a record of many begins with the first of them, and "+" is
    before "-".
    """
    for key, _, data in records_in(records, _block(flow, block), page_size=_ENDS_A_PAGE):
        try:
            yield from _ends_in(key, data.decode())
        except ValueError as error:
            raise StoreCorrupt(
                f"The record {_block(flow, block)}/{key}, of how steps of a workflow ended, cannot "
                f"be read: {error}."
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
    """Make the write that says that all that a step needs in a block has ended."""
    return Commit(f"{_place(flow)}/full/{step}", (Put(f"{block:06}", version, b""),))


def full(records: Records, flow: JobId, step: int) -> set[int]:
    """Read in which blocks all that a step needs has ended."""
    return {int(one.key) for one in records_in(records, f"{_place(flow)}/full/{step}")}


# Signals


def signal(flow: JobId, name: str, value: bytes, *, version: bytes) -> Commit:
    """Make the write that signals a name; it holds once."""
    return Commit(f"{_place(flow)}/signals", (Put(name, version, value, expect=NO_VERSION),))


def signalled(records: Records, flow: JobId, name: str) -> bytes | None:
    """Read what a name was signalled with, JSON; None: it was not."""
    found = record_at(records, f"{_place(flow)}/signals", name)
    return None if found is None else found.value


# Retention


def started_before(records: Records, before_us: int, *, after: str) -> Iterator[tuple[str, JobId]]:
    """List workflows that were started before an instant, with their places in the list.

    Args: after: the place behind which it goes on, the earliest first; empty for all.
    """
    last, (first, _, begun) = f"{before_us // DAY_US:06}", after.partition("/")
    for day in sorted(one.key for one in records_in(records, _DAYS)):
        if not first <= day <= last:
            continue
        for record in records_in(
            records, f"{_DAYS}/{day}", after=begun if begun and day == first else None
        ):
            flow = JobId(bytes.fromhex(record.key))
            if born_us(flow) < before_us:
                yield f"{day}/{record.key}", flow


def forget(records: Records, flow: JobId, layout: Layout | None) -> Iterator[str]:
    """Delete all that is kept of a workflow, its place in the list last.

    It may be left off anywhere, and begun anew. layout: None where only that place is left.

    Yields: where something was deleted, each time.
    """
    for partition in () if layout is None else _partitions(flow, layout):
        while page := records.read(partition, after=None, limit=_ENDS_A_PAGE):
            records.commit(partition, [Delete(one.key) for one in page])
            yield partition
    day = _day_of(flow)
    records.commit(f"{_DAYS}/{day}", [Delete(flow.hex())])
    if not records.read(f"{_DAYS}/{day}", after=None, limit=1):
        records.commit(_DAYS, [Delete(day)])


def _partitions(flow: JobId, layout: Layout) -> Iterator[str]:
    """List where something is kept of a workflow; the layout is in the last."""
    place = _place(flow)
    for block in layout.blocks():
        yield _block(flow, block)
        yield _values(flow, block)
    for step in range(len(layout.nodes)):
        if _is_wide(layout, step):
            yield f"{place}/full/{step}"
    yield f"{place}/signals"
    yield place


def _is_wide(layout: Layout, step: int) -> bool:
    return len(layout.needs_by_block(step)) > BLOCKS_READ


BLOCKS_READ: Final = 2
"""Where what a step needs lies in more blocks, it is noted which of them are full."""


def _place(flow: JobId) -> str:
    return f"flows/{flow.hex()}"


def _block(flow: JobId, block: int) -> str:
    return f"{_place(flow)}/{block}"


def _values(flow: JobId, block: int) -> str:
    return f"{_place(flow)}/values/{block}"


class Layouts:
    """The layouts that were read last; they never change. Threads may share it.

    And which of their steps are known to have ended: such a set only grows.
    """

    def __init__(self, most: int = 200_000) -> None:
        self._found: dict[JobId, Layout] = {}
        self._ended: dict[JobId, dict[int, set[int]]] = {}
        self._left = most
        self._guard = threading.Lock()

    def get(self, records: Records, flow: JobId) -> Layout | None:
        """Tell how a workflow is laid out; None: there is none, or nothing is kept of it."""
        layout = self._found.get(flow)
        if layout is None and (layout := read(records, flow)) is not None:
            with self._guard:
                self._keep(flow, layout)
        return layout

    def ended(self, flow: JobId) -> dict[int, set[int]]:
        """Give the steps of a workflow that are known to have ended, by block; to be added to."""
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
