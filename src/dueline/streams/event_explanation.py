"""What became of an event of a stream: which groups it reaches, and what it waits for.

An event of a task's topics becomes a job, which the caller explains.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, NamedTuple

from dueline.coordination.leases import grants
from dueline.core.clock import DAY_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.ids import created_us
from dueline.core.job import JobId
from dueline.core.pagination import rows_in
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Row, Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.explanation import Condition, Explanation, explanation_of, when
from dueline.log import trimming
from dueline.log.checkpoint import Checkpoint
from dueline.streams import dead_letters, groups, resharding, topics
from dueline.streams.event import Event, Position
from dueline.streams.groups import ROWS_COUNTED_MAX, Group

SCAN_MAX: Final = 2_000
"""Maximum number of events of a shard that are read to find one by its id."""

_PAGE: Final = 64
_LAST_ID: Final = b"\xff" * 16


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a consumer group does with an event.

    Attributes:
        group: Its name; that of a task with `on=` is `task NAME`.
        pattern: The topics that it reads; None if it reads all events.
        job: The id of the job of the event; empty for other groups, and before it is inserted.
        explanation: What the event waits for, or what became of it. The reason is `never` if the
            group does not get it, and `done` if the group is past it.
    """

    group: str
    pattern: str | None
    job: str
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class EventDetails:
    """An event, and what each consumer group does with it.

    Attributes:
        stream: Name of the stream.
        id: The id of the event.
        event: The event; None if it is no longer in the stream.
        deliveries: One for each registered group, by name.
    """

    stream: str
    id: str
    event: Event | None
    deliveries: Sequence[Delivery]


class _Asked(NamedTuple):
    """What is asked. row: of the event; one that has expired has no body."""

    store: Store
    stream: str
    settings: StreamSettings
    row: Row
    now_us: int
    job_explained: Callable[[JobId], Explanation]

    @property
    def place(self) -> tuple[int, bytes]:
        return self.row.at_us, self.row.id


def explain_event(
    engine: Engine, stream: str, event: str, job_explained: Callable[[JobId], Explanation]
) -> EventDetails:
    """Explain to which groups an event goes, and what it waits for.

    Args:
      event: its id or position.
      job_explained: explains a job; the reason is `unknown` if nothing is known of it.

    Raises:
      BadInput: this is neither an id nor a position.
      NotFound: the stream does not exist, or it has no such event and none can have expired.
    """
    place = _read(event)
    settings = resharding.settings_of(engine.store, stream)
    if settings is None:
        raise NotFound(f"There is no stream {stream:.80}.", hint="See `dueline streams list`.")
    row = _row_at(engine.store, stream, settings, place)
    if row is None:
        trimmed = trimming.places(engine.store, stream).values()
        if place.first_us > max((at_us for at_us, _ in trimmed), default=-1):
            raise NotFound(
                f"The stream {stream} has no event {event:.80}.",
                hint=f"See `dueline streams read {stream}`; an event whose transaction is open is "
                "not there yet.",
            )
    asked = _Asked(
        engine.store, stream, settings, row or Row(stream, 0, place.first_us, place.id, b""),
        engine.time.latest_us(), job_explained,
    )  # fmt: skip
    known = sorted(groups.registered(engine.store, stream).items())
    shown = None if row is None else Event(row)
    deliveries = [_delivery(asked, shown, name, group) for name, group in known]
    return EventDetails(stream, place.id.hex(), shown, deliveries)


class _Wanted(NamedTuple):
    """Where an event is looked for. exact_us: its time, if a position was given."""

    id: bytes
    first_us: int
    exact_us: int | None


def _read(text: str) -> _Wanted:
    text = text.strip().lower()
    if text.count("-") == 1:
        position = Position.parse(text)
        return _Wanted(position.id, position.at_us, position.at_us)
    try:
        row_id = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        row_id = b""
    if len(row_id) != len(_LAST_ID):
        raise BadInput(
            f"{text!r:.80} is not an event.", hint="Use its id of 32 digits, or its position."
        )
    return _Wanted(row_id, created_us(JobId(row_id)), None)


def _row_at(store: Store, stream: str, settings: StreamSettings, wanted: _Wanted) -> Row | None:
    """Return the row of an event. An id has the time of the append, which rows do not precede."""
    after, last_us = (wanted.first_us - 1, _LAST_ID), wanted.first_us + DAY_US
    if wanted.exact_us is not None:
        after, last_us = (wanted.exact_us, _before(wanted.id)), wanted.exact_us
    for shard in resharding.shards_of(settings):
        rows = rows_in(store, stream, shard, after=after, until_us=SEALED_US, page_size=_PAGE)
        near = takewhile(lambda row: row.at_us <= last_us, islice(rows, SCAN_MAX))
        row = next((row for row in near if row.id == wanted.id), None)
        if row is not None:
            return row
    return None


def _before(row_id: bytes) -> bytes:
    """Return the last id before one."""
    return (int.from_bytes(row_id) - 1).to_bytes(len(row_id)) if any(row_id) else b""


def _delivery(asked: _Asked, event: Event | None, name: str, group: Group) -> Delivery:
    pattern = group.pattern
    if event is not None and pattern is not None and not topics.matches(pattern, event.topic):
        topic = f"the topic {event.topic}" if event.topic else "an event without a topic"
        why = Explanation("never", f"Its pattern {pattern} does not match {topic}.")
        return Delivery(name, pattern, "", why)
    if name.startswith(topics.TASK_PREFIX):
        job_id = topics.job_id_of(name, asked.row.id)
        explanation = asked.job_explained(job_id)
        if explanation.reason != "unknown":
            return Delivery(name, pattern, job_id.hex(), explanation)
    if event is None:
        return Delivery(name, pattern, "", _expired(asked, group))
    known = groups.places(asked.store, asked.stream, name)
    present = known.get(asked.row.shard, Checkpoint("", ""))
    if asked.place <= (present.place or (group.from_us, b"")):
        return Delivery(name, pattern, "", _passed(asked, event, name, group, present))
    conditions = list(_conditions(asked, name, group, known))
    return Delivery(name, pattern, "", explanation_of("", conditions))


def _began_later(asked: _Asked, group: Group) -> Explanation:
    since = when(group.from_us, asked.now_us)
    return Explanation("never", f"It began with the events since {since}.")


def _expired(asked: _Asked, group: Group) -> Explanation:
    if asked.row.at_us < group.from_us:
        return _began_later(asked, group)
    return Explanation("expired", "The event has expired: the group was past it by then.")


def _passed(
    asked: _Asked, event: Event, name: str, group: Group, present: Checkpoint
) -> Explanation:
    """Explain an event that is at or before the position of a group."""
    if asked.row.at_us < group.from_us:
        return _began_later(asked, group)
    note, key = dead_letters.read_note(present.note), dead_letters.key_of(asked.row)
    if key in note.parked:
        rows = dead_letters.rows_of(
            asked.store, asked.stream, name, asked.row.shard, key=key, after=note.place(key),
            limit=dead_letters.LISTED_MAX,
        )  # fmt: skip
        if any(row.id == asked.row.id for row in rows):
            which = ["--event", event.id] if event.key is None else ["--key", event.key]
            words = ["dueline", "streams", "unpark", asked.stream, "--group", name, *which]
            command = shlex.join(words)
            clause = f"it is dead-lettered, with the later events of its key (`{command}`)"
            dead = Condition("dead", event.id, clause, "operator", command=command)
            return explanation_of("", [dead])
    if name.startswith(topics.TASK_PREFIX):
        return Explanation("done", "Its job has ended, and nothing of the job is kept any more.")
    return Explanation(
        "done", "The group is past it: it was handled, or skipped by `dueline streams seek`."
    )


def _conditions(
    asked: _Asked, name: str, group: Group, known: Mapping[int, Checkpoint]
) -> Iterator[Condition]:
    """Yield what must change before a group gets an event that it has not read."""
    stream, shard = asked.stream, asked.row.shard
    for pause in asked.settings.paused:
        if pause.group in (None, name) and pause.shard in (None, shard):
            words = ["dueline", "streams", "resume", stream]
            words += [] if pause.group is None else ["--group", pause.group]
            words += [] if pause.shard is None else ["--shard", str(pause.shard)]
            command = shlex.join(words)
            clause = f"{pause.text} is paused (`{command}`)"
            yield Condition("paused", pause.text, clause, "operator", command=command)
    members = groups.members(asked.store, stream, name)
    if not members:
        task = name.removeprefix(topics.TASK_PREFIX)
        clause = f"no consumer of the group {name} runs"
        if task != name:
            clause = f"no live worker has the task {task}, and such a worker inserts its jobs"
        yield Condition("no worker", name, clause, "operator")
    earlier = [
        old
        for old in resharding.before(asked.settings, shard)
        if not resharding.is_read_out(known.get(old))
    ]
    if earlier:
        clause = (
            f"what is left in {len(earlier)} old shard(s), from before a resharding, comes first"
        )
        yield Condition("waiting", f"{stream}/{shard}", clause, "work")
    before, is_capped = _unread_before(asked, group, known)
    if before:
        number = f"{len(before)} event{' comes' if len(before) == 1 else 's come'}"
        number = f"at least {number}" if is_capped else number
        waits = span_text(max(0, asked.now_us - before[0].at_us))
        clause = f"{number} first in its shard {shard}, and the oldest waits for {waits}"
        facts = {"shard": shard, "behind": len(before)}
        yield Condition("waiting", f"{stream}/{shard}", clause, "work", facts=facts)
    if members:
        yield _holder(asked, name, members)


def _holder(asked: _Asked, name: str, members: Sequence[groups.Member]) -> Condition:
    """Return who handles the shard of an event."""
    shard, now_us = asked.row.shard, asked.now_us
    grant = grants(asked.store, groups.leases_at(asked.stream, name)).get(str(shard))
    if grant is None or grant.until_us <= now_us:
        clause = f"no member of the group holds its shard {shard} yet"
        return Condition("waiting", f"{asked.stream}/{shard}", clause, "work")
    busy_us = next((member.busy_us for member in members if member.name == grant.holder), 0)
    doing = "reads it next, or repeats a batch that failed: see its log"
    if busy_us:
        doing = f"has been handling one batch for {span_text(max(0, now_us - busy_us))}"
    clause = f"{grant.holder}, which holds its shard {shard}, {doing}"
    return Condition("claimed", grant.holder, clause, "work")


def _unread_before(
    asked: _Asked, group: Group, known: Mapping[int, Checkpoint]
) -> tuple[Sequence[Row], bool]:
    """Return what a group reads before an event; True: of the first ROWS_COUNTED_MAX only."""
    present = known.get(asked.row.shard)
    after = (present.place if present else None) or (group.from_us, b"")
    rows = rows_in(asked.store, asked.stream, asked.row.shard, after=after, until_us=SEALED_US)
    near = islice(rows, ROWS_COUNTED_MAX)
    earlier = list(takewhile(lambda row: (row.at_us, row.id) < asked.place, near))
    wanted = list(filter(topics.chosen(group.pattern), earlier))
    return wanted, len(earlier) == ROWS_COUNTED_MAX
