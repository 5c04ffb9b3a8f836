"""Waits: a function that waits is parked, and holds nothing."""

from collections.abc import Generator
from functools import partial
from typing import Any, Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.retry import WAIT_US_MAX
from dueline.core.store import Put
from dueline.durable.activation import Activation
from dueline.durable.driving import Part
from dueline.durable.log import Entry, Head, note_of
from dueline.durable.signals import (
    KEEP_TAKEN_US,
    Inbox,
    Mark,
    Signal,
    first_free,
    forget_taken,
    mark_key,
    named,
    read_inbox,
)
from dueline.jobs.function_list import inbox_of

CHECK_US_MIN: Final = 60 * SECOND_US
CHECK_US_MAX: Final = 15 * 60 * SECOND_US
"""A wait is checked after a minute, then when it is twice as old, at least every 15 minutes."""


def check_us(age_us: int) -> int:
    """Return how long a wait of this age is not checked."""
    return min(max(age_us, CHECK_US_MIN), CHECK_US_MAX)


NEVER: Final = object()
"""The default of a wait without one: the time-out raises."""


def sleep(run: Activation, key: str, wait_us: int) -> Generator[Part, Any, None]:
    """Wait until a time that is recorded first."""
    entry = yield from run.replayed(key, "sleep", "")
    if entry is None:
        until_us = run.engine.time.latest_us() + wait_us
        entry = yield from run.write(key, Head("sleep", until_us=until_us))
    note = note_of(key, "cancel")
    until_us = entry.head.until_us
    # A worker whose clock was ahead may have gone on (rule D9).
    is_over = until_us <= run.engine.time.latest_us() or run.log.has_after(key)
    if note not in run.log.entries and not is_over and run.end is None and run.is_cancelled:
        yield from run.write(note, Head("cancel"))
    if note in run.log.entries:
        run.pass_to(run.log.entries[note].head.at_us)
        raise run.cancelled()
    if not is_over and run.end is not None:
        run.unwind()
    if not is_over:
        run.park(until_us, sleeps=True)
    run.pass_to(until_us)


class SignalTerms(NamedTuple):
    """A wait for a signal. timeout_us: None for ever. kind: annotation of the value."""

    name: str
    timeout_us: int | None = None
    default: Any = NEVER
    kind: Any = Any


def signal(run: Activation, key: str, terms: SignalTerms) -> Generator[Part, Any, Any]:
    """Wait for a signal; return its value, or the default after the time-out."""
    name, timeout_us, default, kind = terms
    entry = yield from run.replayed(key, "signal", name)
    if entry is None:
        entry = yield from _taken(run, key, name)
    if entry is None:
        entry = yield from _awaited(run, key, name, timeout_us)
    if entry.head.state == "timed_out":
        if default is NEVER:
            raise run.report(TimeoutError(f"The signal {name} did not arrive in time."))
        return default
    try:
        return run.handler.read_value(entry.head.codec, entry.value, kind)
    except ValueError as error:
        run.stop(f"the value of the signal {name} does not fit: {error}")


def _awaited(
    run: Activation, key: str, name: str, timeout_us: int | None
) -> Generator[Part, Any, Entry]:
    """Record the time-out if its time has come; otherwise park."""
    now_us = run.engine.time.latest_us()
    note = note_of(key, "wait")
    wait = run.log.entries.get(note)
    if wait is None:
        until_us = 0 if timeout_us is None else now_us + timeout_us
        wait = yield from run.write(note, Head("wait", name, until_us=until_us))
    until_us = wait.head.until_us or now_us + WAIT_US_MAX
    if until_us <= now_us:
        return (yield from run.write(key, Head("signal", name, "timed_out")))
    run.park(min(until_us, now_us + check_us(now_us - wait.head.at_us)), awaits=name)


def _taken(run: Activation, key: str, name: str) -> Generator[Part, Any, Entry | None]:
    """Take the oldest unread signal of a name (rule D12); None without one."""
    own = (run.place.generation, key)
    while True:
        early, run.inbox = run.inbox, None
        signal = yield from run.blocking(partial(_find, run, early, name, own))
        if signal is None and early is not None:
            continue  # one may have come since
        if signal is None:
            return None
        if signal.mark is None or (signal.mark.generation, signal.mark.key) != own:
            mark = Mark(*own, run.job.fence, run.engine.time.latest_us())
            put = Put(mark_key(signal), run.engine.ids.token(), encode(mark), expect=signal.version)
            commit = partial(run.engine.store.commit, inbox_of(run.job.id), (put,))
            is_marked = yield from run.blocking(commit)
            run.check_after()
            if not is_marked:  # a mark that another process wrote is read again
                continue
        head = Head("signal", name, codec=signal.codec, source=signal.key)
        return (yield from run.write(key, head, signal.value))


def _find(run: Activation, inbox: Inbox | None, name: str, own: tuple[int, str]) -> Signal | None:
    """Return the signal that a position has marked, or else the oldest that none has taken.

    inbox: as it was read before; None to read it now.
    """
    store, job_id = run.engine.store, run.job.id
    inbox = inbox or read_inbox(store, job_id)
    forget_taken(store, job_id, inbox.signals, run.engine.time.earliest_us() - KEEP_TAKEN_US)
    signals = named(inbox.signals, name)
    for each in signals:
        if each.mark and (each.mark.generation, each.mark.key) == own:
            return each
    return first_free(store, job_id, run.place, signals)
