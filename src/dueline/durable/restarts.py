"""New generations that a claim begins, after a restart or a retry, and patches of the code."""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from dueline.core.attempt import DurablePlace, Parked
from dueline.core.errors import StoreCorrupt
from dueline.durable import removal
from dueline.durable.activation import Activation
from dueline.durable.driving import Part
from dueline.durable.log import PATCH, Entry, Head, number_of, whole_entry_at
from dueline.durable.signals import KEEP_TAKEN_US, forget_taken, read_inbox
from dueline.durable.suspension import Suspended

RESTART: Final = "restart"

_CALLS: Final = {"result": "call", "gathered": "gather"}
"""The kind of the call before the record of its end."""


def restart(
    run: Activation, key: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Generator[Part, Any, NoReturn]:
    """Record the arguments of the next generation, and begin it (rule D13)."""
    codec, body = run.handler.write_small(args, kwargs)
    entry = yield from run.replayed(key, RESTART, "")
    if entry is None:
        run.expect_whole()
        yield from run.write(key, Head(RESTART, codec=codec), body)
    yield from begin_next(run, key)
    raise AssertionError("it is interrupted")


def begin_next(run: Activation, key: str) -> Generator[Part, Any, NoReturn]:
    """Begin the generation whose arguments are recorded; remove what is not read any more."""
    generation = run.place.generation
    yield from run.blocking(partial(_make_room, run, generation))
    place = DurablePlace(
        generation + 1,
        arguments=(run.log.generation_of(key), key),
        version=run.handler.version,
    )
    now_us = run.engine.time.latest_us()
    run.interrupt(Suspended(Parked(now_us, place, 0, 0, "restarted"), "The function restarts."))


def _make_room(run: Activation, generation: int) -> None:
    engine, job_id = run.engine, run.job.id
    removal.name_generation(engine, job_id, generation + 1)
    before_us = engine.time.earliest_us() - KEEP_TAKEN_US
    # The signals first: the mark of one whose record is gone may count as void.
    signals = read_inbox(engine.store, job_id).signals
    forget_taken(engine.store, job_id, signals, before_us)
    first = run.place.kept[0][0] if run.place.kept else generation
    removal.remove_old_generations(engine, job_id, first, before_us)


def go_on(run: Activation) -> Generator[Part, Any, None]:
    """Begin the next generation if a restart is recorded in this one."""
    for key, entry in run.log.entries.items():
        if entry.head.kind == RESTART:
            yield from begin_next(run, key)


def go_on_after_failure(run: Activation) -> Generator[Part, Any, NoReturn]:
    """Begin the next generation of a retried function, which reads what was before its failure.

    The log was opened under the fence of this claim, so nothing is recorded in it any more.
    """
    after = continued(run.place, _before_failure(run.log.entries), run.log.entries)
    name = partial(removal.name_generation, run.engine, run.job.id, after.generation)
    yield from run.blocking(name)
    now_us = run.engine.time.latest_us()
    run.interrupt(Suspended(Parked(now_us, after, 0, 0, "restarted"), "The function goes on."))


def _before_failure(entries: Mapping[str, Entry]) -> int:
    """Return the last position before what failed, if that is the last record of all."""
    last = last_of(entries)
    entry = entries.get(f"{last:05}")
    if entry is None or entry.head.state in ("done", ""):
        return last if entry is not None else max(last - 1, 0)
    before = entries.get(f"{last - 1:05}")
    is_call = before is not None and before.head.kind == _CALLS.get(entry.head.kind)
    return last - 2 if is_call else last - 1


def last_of(entries: Mapping[str, Entry]) -> int:
    """Return the last position of which something is recorded."""
    return max(map(number_of, entries), default=0)


def continued(place: DurablePlace, to: int, entries: Mapping[str, Entry]) -> DurablePlace:
    """Return the place of the next generation, which keeps the records up to a position."""
    kept: list[tuple[int, int]] = []
    first = 0
    for generation, last in (*place.kept, (place.generation, to)):
        if min(last, to) > first:
            first = min(last, to)
            kept.append((generation, first))
    length = sum(0 < number_of(key) <= to for key in entries)
    return DurablePlace(
        place.generation + 1, length, stored=min(place.stored, to), kept=tuple(kept),
        arguments=place.arguments, version=place.version, origins=place.origins,
    )  # fmt: skip


def arguments_of(
    run: Activation, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Generator[Part, Any, tuple[Sequence[Any], Mapping[str, Any]]]:
    """Return the arguments of this generation: those of a restart, or of the row."""
    if run.place.arguments is None:
        return args, kwargs
    generation, key = run.place.arguments
    entry = yield from run.blocking(partial(_read, run, generation, key))
    run.line.at_us = max(run.line.at_us, entry.head.at_us)
    return run.handler.read(entry.head.codec, entry.value)


def _read(run: Activation, generation: int, key: str) -> Entry:
    entry = whole_entry_at(run.engine.store, run.job.id, generation, key)
    if entry is None:
        raise StoreCorrupt(f"The arguments of the generation {generation + 1} are missing.")
    return entry


def patched(run: Activation, name: str) -> bool:
    """Return whether the code with a patch was first here; the next write records it (rule D7)."""
    if run.suspension is not None:
        raise run.suspension
    key = f"{PATCH}{name}"
    if key in run.log.entries or key in run.log.deferred:
        return True
    if run.log.last > run.line.path[0] or run.end is not None:
        return False
    run.check()
    now_us, count = run.engine.time.latest_us(), run.line.path[0]
    head = Head("patch", name, fence=run.job.fence, at_us=now_us, count=count)
    run.log.deferred[key] = Entry(head)
    return True
