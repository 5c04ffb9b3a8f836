"""How a durable function begins a run, and how it ends: the record of the end, compensations."""

from collections.abc import Generator
from typing import Any, Final

from dueline.core.attempt import Cancelled, Ended, Ending, Expired, Failed, Outcome
from dueline.core.call_options import CallOptions, is_past
from dueline.core.errors import BadInput, LeaseLost
from dueline.core.logging import log
from dueline.core.retry import decide, is_poison
from dueline.core.validation import check_delivery
from dueline.durable import restarts
from dueline.durable.activation import CANCELLED, Activation
from dueline.durable.driving import Part
from dueline.durable.log import Entry, Head, is_position, shown
from dueline.durable.signals import Inbox, read_inbox
from dueline.durable.steps import StepTerms, attempts
from dueline.durable.suspension import Suspended, Unwound
from dueline.jobs.parked_functions import END
from dueline.tasks.failures import failure
from dueline.tasks.raised import Cancel, Snooze

DEATHS: Final = "deaths"
"""Key of the note on how often workers died at one length of the log."""

_ERROR_CHARACTERS_MAX: Final = 4096


def begin(run: Activation) -> Generator[Part, Any, None]:
    """Read the log and the inbox of the function, before its code runs."""
    run.check()
    job = run.job
    try:
        settings = run.engine.catalog.settings(job.lane.queue)
        check_delivery(CallOptions(durable=run.place), settings, job.task, job.lane.queue)
    except BadInput as error:
        run.ending = Failed("BadInput", str(error), "", retry=False)
        run.interrupt(Suspended(run.ending, error.message))
    run.inbox = inbox = yield from run.blocking(lambda: _read(run))
    yield from restarts.go_on(run)
    if len(run.log) < run.place.length:  # rule D14
        why = f"it has begun, and its log has {len(run.log)} of {run.place.length} records"
        run.stop(why, "log")
    yield from _expect_no_poison(run)
    run.knows_cancel = any(entry.head.kind == "cancel" for entry in run.log.entries.values())
    run.must_cancel, run.hurried_us = inbox.is_cancelled, inbox.hurried_us
    run.log.is_listed |= not inbox.is_empty
    run.end = yield from run.recorded(END)
    if run.end is None and inbox.retried == run.place.generation:
        yield from restarts.go_on_after_failure(run)
    if run.end is None and is_past(job, run.engine.time.latest_us()):
        if not len(run.log):
            run.ending = Expired()
            run.interrupt(Suspended(Expired(), "It expired before it began."))
        run.end = yield from run.write(END, Head(END, state="expired"))
    elif run.end is None and job.errors >= run.policy().attempts:
        failed = Failed("JobTimeout", job.error, "", retry=False)
        run.end = yield from _write_end(run, "failed", failed)


def _read(run: Activation) -> Inbox:
    """Read the log, then the inbox."""
    run.log.load()
    return read_inbox(run.engine.store, run.job.id)


def _expect_no_poison(run: Activation) -> Generator[Part, Any, None]:
    """Stop a function at one position of which workers die; after the wait it is tried again.

    The row counts deaths until something is recorded; the note says how many of them are known.
    """
    crashes = run.job.crashes
    known = run.log.entries.get(DEATHS)
    seen = 0 if known is None or known.head.crashes > crashes else known.head.crashes
    if crashes == seen:
        return
    length = sum(key != DEATHS for key in run.log.entries)
    deaths = crashes - seen
    if known is not None and known.head.until_us == length:
        deaths += known.head.tries
    head = Head(DEATHS, tries=deaths, crashes=crashes, until_us=length)
    yield from run.storing(run.log.note(DEATHS, head))
    if is_poison(deaths):
        run.stop(f"{deaths} workers died on it at the same position", "deaths")


def returned(run: Activation, value: object) -> Generator[Part, Any, Any]:
    """Decide what becomes of a function that returned; return the value.

    A success needs no record: the outcome of the row decides, under the claim's token.
    """
    if run.suspension is not None and not isinstance(run.suspension, Unwound):
        log.warning(
            "job=%s task=%s returned after it was suspended (%s): do not catch BaseException "
            "around calls of its context", run.job.id.hex(), run.job.task, run.suspension,
        )  # fmt: skip
        raise run.suspension
    if run.end is not None:
        return (yield from conclude(run))
    run.expect_whole()
    run.rehearse()
    try:
        run.line.expect_ended()
        run.handler.write_result(value, run.job)
    except BadInput as error:
        yield from failed(run, error)
        raise
    return value


def failed(run: Activation, error: BaseException) -> Generator[Part, Any, None]:
    """Decide what becomes of a function that raised; its error goes on unless this raises."""
    if run.suspension is not None and not isinstance(run.suspension, Unwound):
        raise run.suspension
    if run.end is not None:
        yield from conclude(run)
        return
    run.check_after()
    if isinstance(error, Snooze | LeaseLost):
        return
    if not isinstance(error, Exception):
        run.outside(error, f"The function was interrupted by {type(error).__name__}.")
    run.expect_whole()
    if isinstance(error, Cancel):
        run.ending = Cancelled(error.message)
        if run.undos:
            why = Failed("", error.message, "", retry=False)
            run.end = yield from _write_end(run, "cancelled", why)
            yield from conclude(run)
        return
    ending = failure(error, run.handler)
    ending = ending._replace(is_fresh=run.log.written > 0)
    if any(error is each for each in run.reported):
        ending = ending._replace(retry=False)
    now_us = run.engine.time.latest_us()
    decision = decide(Ended(run.job, ending, 0, now_us), run.policy(), 1.0)
    run.ending = ending
    if not isinstance(decision, Outcome):
        return
    run.ending = ending._replace(retry=False)
    if run.undos:
        run.end = yield from _write_end(run, "failed", ending)
        yield from conclude(run)


def _write_end(run: Activation, state: str, why: Failed) -> Generator[Part, Any, Entry]:
    """Record how the function ends, before its first compensation (rule D5)."""
    shown = [why.error_type, why.message[:_ERROR_CHARACTERS_MAX],
             why.traceback[-_ERROR_CHARACTERS_MAX:]]  # fmt: skip
    stored = run.handler.write_value(shown, run.job.task)
    return (yield from run.write(END, Head(END, state=state, codec=stored.codec), stored.data))


def conclude(run: Activation) -> Generator[Part, Any, Any]:
    """Go on from the record of the end: run compensations, then decide the ending."""
    assert run.end is not None
    run.suspension = None
    run.end_replay()
    _expect_compensations(run)
    for undo in reversed(run.undos):
        key = f"undo/{undo.key}"
        if key in run.log.entries:
            continue
        run.undoing = undo.key
        terms = StepTerms(undo.name, undo.function, (undo.value,), retry=undo.retry)
        entry = yield from attempts(run, key, terms, "undo")
        if entry.head.state != "done":
            log.error(
                "job=%s task=%s: the compensation of %s failed, the others go on",
                run.job.id.hex(), run.job.task, undo.name,
            )  # fmt: skip
    run.ending = _ending_of(run, run.end)
    raise Suspended(run.ending, f"The function has ended: {run.end.head.state}.")


def _expect_compensations(run: Activation) -> None:
    """Stop a function whose code did not reach all steps that are to be undone (rule D5)."""
    reached = {undo.key for undo in run.undos}
    for key, entry in run.log.entries.items():
        if is_position(key) and entry.head.undo and key not in reached:
            run.stop(
                f"call {shown(key)}, {entry.head.name}, is to be undone, and the code does not "
                "reach it"
            )


def _ending_of(run: Activation, end: Entry) -> Ending:
    """Return how the job ends, by the record of the function's end."""
    if end.head.state == "expired":
        return Expired()
    kind, text, traceback = run.handler.read_value(end.head.codec, end.value, list[str])
    if end.head.state == "cancelled":
        return Cancelled(text or CANCELLED)
    return Failed(kind, text, traceback, retry=False)


def ending_after(run: Activation, ending: Ending) -> Ending:
    """Return how the attempt ends: as the function decided, or as it was interrupted."""
    run.end_replay()
    if run.suspension is not None and not isinstance(run.suspension, Unwound):
        return run.suspension.ending  # also if it was decided, but not recorded, how it ends
    if run.ending is not None:
        if isinstance(run.ending, Failed) and isinstance(ending, Failed):
            return run.ending._replace(lines=ending.lines)
        return run.ending
    if isinstance(ending, Failed):  # raised before its code ran: arguments that do not fit
        return ending._replace(is_fresh=run.log.written > 0)
    return ending
