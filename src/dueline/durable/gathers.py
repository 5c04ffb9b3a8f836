"""Gathers: many calls at once, whose results a durable function gets as a list.

The first position of a gather says how many calls it has; its jobs are stored in parts, each
decided by a record (rule D4). The second position says how all of them ended. Its results are
recorded before it, in parts, too.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dueline.core.attempt import CallPlace, Outcome
from dueline.core.codec import JSON, decode, encode
from dueline.core.errors import BadInput
from dueline.core.job import Job, JobId
from dueline.durable.activation import Activation
from dueline.durable.calls import Called, ChildCall, is_sure, made, place_of, read, value_of
from dueline.durable.driving import Part
from dueline.durable.errors import CallFailed
from dueline.durable.log import Head, note_of
from dueline.durable.waits import CHECK_US_MAX, check_us
from dueline.jobs.called_jobs import ends_of, limit_of

CALLS_MAX: Final = 10_000
RESULTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum number of calls, and maximum size of their results together."""

_PART: Final = 500
_PART_BYTES: Final = 256 * 1024
"""Maximum number of calls or results in a record, and about their maximum size."""

_CHECK_US: Final = 50_000
"""A check reads all ends: the first one is later by this for each call."""

_TOO_LARGE: Final = "too_large"


class Item(NamedTuple):
    """A recorded result. job: id of the job, in hexadecimal digits."""

    state: str
    job: str
    codec: int
    data: bytes


class Gathered(NamedTuple):
    """A gather whose jobs are stored. place: of its calls. since_us: when it was recorded."""

    name: str
    children: Sequence[ChildCall]
    jobs: Sequence[str]
    place: CallPlace
    since_us: int


def check_size(children: Sequence[ChildCall]) -> None:
    """Raise BadInput if a gather has too many calls."""
    if len(children) > CALLS_MAX:
        raise BadInput(
            f"A gather has {len(children)} calls; {CALLS_MAX} are allowed.",
            hint="Gather them in several calls of a durable function, one for each part.",
        )


def gather(
    run: Activation, key: str, children: Sequence[ChildCall], limit: int | None
) -> Generator[Part, Any, Gathered]:
    """Record calls and insert their jobs, part by part."""
    count = len(children)
    place = place_of(run, key, count)
    name = f"{count} calls"
    entry = yield from run.replayed(key, "gather", name)
    if entry is None:
        entry = yield from run.write(key, Head("gather", name, count=count))
    own = ""
    if limit is not None:
        own = yield from run.blocking(partial(limit_of, run.engine, place, limit))
    ids: list[str] = []
    part = 0
    while len(ids) < count:
        ids += yield from _part(run, part, children, place._replace(number=len(ids)), own)
        part += 1
    return Gathered(name, children, ids, place, entry.head.at_us)


def _note_of_part(key: str, part: int) -> str:
    return note_of(key, f"calls{part:04}")


def _part(
    run: Activation, part: int, children: Sequence[ChildCall], place: CallPlace, limit: str
) -> Generator[Part, Any, list[str]]:
    """Store the jobs of some calls, from a number on, unless a record says that they are."""
    note = _note_of_part(place.key, part)
    entry = yield from run.recorded(note)
    first = place.number
    if entry is None:
        if run.end is not None:
            run.unwind()
        own = list(_next(children, first))
        calls = [
            (child, place._replace(number=number), limit)
            for number, child in enumerate(own, first + 1)
        ]
        rows = yield from made(run, calls)
        head = Head("calls", count=len(rows), digest=_digest(own))
        yield from run.write(note, head, encode(rows), jobs=rows)
        return [row.id.hex() for row in rows]
    rows = decode(entry.value, list[Job])
    if entry.head.digest != _digest(children[first : first + entry.head.count]):
        run.stop(
            f"the arguments of calls {first + 1} to {first + len(rows)} of a gather differ from "
            "those that it recorded: code between calls must not read what changes"
        )
    is_last = _note_of_part(place.key, part + 1) not in run.log.entries
    if is_last and not is_sure(run, note):
        ended = {number for number, _ in (yield from _ends(run, place))}
        missing = [row for number, row in enumerate(rows, first + 1) if number not in ended]
        if missing:
            yield from run.blocking(partial(run.log.insert_again, missing))
    return [row.id.hex() for row in rows]


def _next(children: Sequence[ChildCall], first: int) -> Iterator[ChildCall]:
    """Yield the calls of the next part."""
    size = 0
    for child in children[first : first + _PART]:
        yield child
        size += len(child.request().bodies[0])
        if size > _PART_BYTES:
            return


def _digest(calls: Sequence[ChildCall]) -> str:
    """Return the digest of the arguments of calls; those that are encrypted differ each time."""
    digest = sha256()
    for request in (call.request() for call in calls):
        body = request.bodies[0] if request.codec == JSON else b""
        digest.update(encode([request.task, body]))
    return digest.hexdigest()[:16]


def results(
    run: Activation, key: str, gathered: Gathered, *, returns_errors: bool
) -> Generator[Part, Any, list[Any]]:
    """Wait for the ends of all calls; return their results, as they are recorded."""
    entry = yield from run.replayed(key, "gathered", gathered.name)
    if entry is None:
        items = yield from _collected(run, key, gathered)
        size = sum(len(item.data) for item in items)
        state = "done" if size <= RESULTS_BYTES_MAX else _TOO_LARGE
        head = Head("gathered", gathered.name, state, count=size)
        entry = yield from run.write(key, head)
    else:
        items = yield from _recorded(run, key)
    if entry.head.state == _TOO_LARGE:
        raise run.report(BadInput(
            f"The results of a gather have {entry.head.count} bytes; {RESULTS_BYTES_MAX} are "
            "allowed.",
            hint="Store them elsewhere, and return their locations.",
        ))  # fmt: skip
    values = [
        read(run, item.codec, item.data, _called(gathered, child, item), item.state)
        for child, item in zip(gathered.children, items, strict=True)
    ]
    if not returns_errors:
        for value in values:
            if isinstance(value, CallFailed):
                raise run.report(value)
    return values


def _called(gathered: Gathered, child: ChildCall, item: Item) -> Called:
    job_id = JobId(bytes.fromhex(item.job))
    return Called(gathered.place.key, child.task, child.kind, job_id, gathered.since_us)


def _recorded(run: Activation, key: str) -> Generator[Part, Any, list[Item]]:
    """Read the parts of the results that are recorded."""
    items: list[Item] = []
    part = 0
    while (note := note_of(key, f"results{part:04}")) in run.log.entries:
        entry = yield from run.recorded(note)
        assert entry is not None
        items += decode(entry.value, list[Item])
        part += 1
    return items


def _collected(run: Activation, key: str, gathered: Gathered) -> Generator[Part, Any, list[Item]]:
    """Record how the calls ended, part by part; park if not all have."""
    ends = yield from _ends(run, gathered.place)
    count = gathered.place.calls
    if len(ends) < count:
        now_us = run.engine.time.latest_us()
        wait_us = max(check_us(now_us - gathered.since_us), min(count * _CHECK_US, CHECK_US_MAX))
        run.park(now_us + wait_us, call=gathered.place)
    items = yield from _recorded(run, key)
    part = sum(entry.startswith(note_of(key, "results")) for entry in run.log.entries)
    total = sum(len(item.data) for item in items)
    while len(items) < count and total <= RESULTS_BYTES_MAX:
        new: list[Item] = []
        size = 0
        for number in range(len(items), min(len(items) + _PART, count)):
            new.append(_item(run, gathered, number, ends[number][1]))
            size += len(new[-1].data)
            if size > _PART_BYTES:
                break
        note = note_of(key, f"results{part:04}")
        yield from run.write(note, Head("results", count=len(new)), encode(new))
        items += new
        total += size
        part += 1
    return items


def _item(run: Activation, gathered: Gathered, number: int, outcome: Outcome) -> Item:
    task = gathered.children[number].task
    stored = run.handler.write_value(value_of(run.engine.blobs, outcome), task, job=run.job)
    return Item(outcome.state, gathered.jobs[number], stored.codec, stored.data)


def _ends(run: Activation, place: CallPlace) -> Generator[Part, Any, list[tuple[int, Outcome]]]:
    return (yield from run.blocking(lambda: list(ends_of(run.engine.store, place))))
