"""One run of a durable function: what its calls share."""

import random
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from dueline.core.attempt import CallPlace, DurablePlace, Ending, Parked
from dueline.core.call_options import durable_place, read_options
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.ids import derived
from dueline.core.job import Job
from dueline.core.logging import log
from dueline.core.retry import Retry
from dueline.durable.driving import Blocking, Call, Part
from dueline.durable.log import Entry, Head, Log, is_position, key_of, number_of, shown
from dueline.durable.positions import Line
from dueline.durable.rehearsal import Rehearsal
from dueline.durable.signals import Inbox
from dueline.durable.suspension import (
    StopKind,
    Suspended,
    Unwound,
    claim_lost,
    stopped,
    store_failed,
)
from dueline.durable.values import ValueHandler
from dueline.tasks.hooks import StepCall, StepSpan
from dueline.tasks.progress import Control
from dueline.tasks.raised import Cancel
from dueline.tasks.watching import FunctionWatch

T = TypeVar("T")

CANCELLED: Final = "Its end was asked for."


class Undo(NamedTuple):
    """A compensation. key: of its step. value: the step's result. is_known: whether it has one."""

    key: str
    name: str
    function: Callable[[Any], Any]
    value: Any
    retry: Retry


class Activation:
    """The run of a durable function under one claim.

    Args:
      engine: The engine.
      job: The row of the claim.
      handler: Its handler.
      control: What the worker knows of the claim.

    Attributes:
      log: The log.
      line: The calls of the function.
      suspension: Why the run is over; None while it goes on.
      inbox: What the function had received when this run began, until a wait has read it.
      end: The record of how the function ends; None while it goes on.
      undos: Compensations of the steps that are done, the first first.
      reported: Errors that calls raised from their records.
      must_cancel: Its end was requested before this run.
      hurried_us: Waits for attempts of steps that began before are over.
      knows_cancel: The cancel was delivered to the function, by a record.
      ending: How the attempt ends, if the function has decided it.
      undoing: Key of the step that is undone now; empty without one.
      rehearsal: What a test changes; None outside of tests.
      watch: Counts what it does, and makes spans.
    """

    def __init__(self, engine: Engine, job: Job, handler: ValueHandler, control: Control) -> None:
        self.engine = engine
        self.job = job
        self.handler = handler
        self.place = durable_place(job) or DurablePlace()
        self.log = Log(engine, job, self.place)
        self.line = Line(job.enqueued_us)
        self.suspension: Suspended | None = None
        self.inbox: Inbox | None = None
        self.end: Entry | None = None
        self.undos: list[Undo] = []
        self.reported: list[BaseException] = []
        self.must_cancel = False
        self.hurried_us = 0
        self.knows_cancel = False
        self.ending: Ending | None = None
        self.undoing = ""
        self.rehearsal: Rehearsal | None = None
        self.watch = FunctionWatch()
        self._replays_since_us: int | None = engine.clock.monotonic_us()
        self._has_warned = False
        self._control = control

    # Suspensions

    def interrupt(self, suspension: Suspended, cause: BaseException | None = None) -> NoReturn:
        """End the run; the first reason counts."""
        if self.suspension is None:
            self.suspension = suspension
        raise self.suspension from cause

    def stop(self, why: str, kind: StopKind = "code") -> NoReturn:
        """End the run, since this worker cannot continue the function."""
        now_us = self.engine.time.latest_us()
        self.interrupt(stopped(self.job, self.place, why, now_us, kind=kind))

    def park(
        self,
        at_us: int,
        *,
        awaits: str = "",
        error: str = "",
        call: CallPlace | None = None,
        sleeps: bool = False,
    ) -> NoReturn:
        """End the run, and its claim, until a time (rule D6).

        The jobs of the calls before are stored: the function went on after that (rule D4).
        """
        expires_us = read_options(self.job.opts).expires_us
        if expires_us is not None:  # as the row is then due
            at_us = min(at_us, max(expires_us, self.engine.time.latest_us()))
        is_fresh = self.log.written > 0
        stored = self.line.path[0] - (self.line.open is not None)
        place = self.place._replace(
            length=len(self.log), parked_us=at_us, stops=0, stored=max(self.place.stored, stored),
            sleeps=sleeps,
        )  # fmt: skip
        errors, crashes = (0, 0) if is_fresh else (self.job.errors, self.job.crashes)
        is_deaf = self.knows_cancel or self.end is not None
        ending = Parked(at_us, place, errors, crashes, error=error, awaits=awaits,
                        ignores_cancel=is_deaf, call=call)  # fmt: skip
        self.interrupt(Suspended(ending, "The function waits."))

    def expect_whole(self) -> None:
        """Stop a function whose code ends before its log does (rule D7)."""
        made = self.line.path[0]
        if self.log.last > made:
            self.stop(
                f"its code ended after {made} calls, its log has a record of call {self.log.last}"
            )

    def check(self) -> None:
        """Raise if nothing may be done any more (rules D10, D11)."""
        if self.suspension is not None:
            raise self.suspension
        claim = self.job.claim()
        until_us = max(self.job.at_us, self._control.lasts_until_us(claim))
        is_over = self._control.is_lost(claim) or self._control.is_overdue(claim)
        if is_over or until_us < self.engine.time.latest_us() or self._control.is_draining:
            self.interrupt(claim_lost())

    def check_after(self) -> None:
        """Raise if what was just done may not be recorded: a stopping worker still records it."""
        if self.suspension is not None:
            raise self.suspension
        claim = self.job.claim()
        if self._control.was_taken(claim) or self._control.is_overdue(claim):
            self.interrupt(claim_lost())

    @property
    def is_overdue(self) -> bool:
        """Whether the function runs longer than its time limit."""
        return self._control.is_overdue(self.job.claim())

    @property
    def is_cancelled(self) -> bool:
        """Whether the end of the function was requested, and is to be delivered."""
        is_asked = self.must_cancel or self._control.is_cancelled(self.job.claim())
        return is_asked and not self.knows_cancel

    # Parts of calls

    def blocking(self, call: Callable[[], T]) -> Call[T]:
        """Call the store."""
        return self.storing(_blocking(call))

    def storing(self, call: Call[T]) -> Call[T]:
        """Run a call of the store; its errors end the run."""
        try:
            return (yield from call)
        except Suspended as suspension:
            self.interrupt(suspension)
        except StoreUnavailable as error:
            self.interrupt(store_failed(error), error)
        except StoreCorrupt as error:
            self.stop(error.message, "log")

    def recorded(self, key: str) -> Generator[Part, Any, Entry | None]:
        """Return a record with its value; None without one. A value that lies apart is read."""
        entry = self.log.entries.get(key)
        if entry is None or not entry.head.apart:
            return entry
        return (yield from self.blocking(lambda: self.log.whole(key, entry)))

    def write(
        self, key: str, head: Head, value: bytes = b"", *, jobs: Sequence[Job] = ()
    ) -> Generator[Part, Any, Entry]:
        """Write the record of a position, and insert jobs that it decides; return it."""
        if is_position(key):
            head = head.changed(digest=self.line.digest)
        entry = yield from self.storing(self.log.write(key, head, value, jobs=jobs))
        self.watch.ended(self.job, head.kind, head.state)
        if is_position(key):
            self.pass_to(entry.head.at_us)
        return entry

    def pass_to(self, at_us: int) -> None:
        """Move the time of the branch on: to that of a record, or to the end of a sleep."""
        self.line.at_us = max(self.line.at_us, at_us)

    def guarded(self, call: Call[T], name: str) -> Call[T]:
        """Run a call at the position that was taken; note its end."""
        try:
            self.check()
            return (yield from call)
        except (Suspended, GeneratorExit):
            raise
        except BaseException as error:
            if _is_cancellation(error):
                why = f"The call of {name} was cancelled from outside: use timeout= of the call."
                self.outside(error, why)
            raise
        finally:
            self.line.end()

    def outside(self, error: BaseException, why: str) -> NoReturn:
        """End the run after a cancellation: of the worker, of the time limit, or of the code."""
        self.check_after()
        if self._control.is_lost(self.job.claim()):
            self.interrupt(claim_lost(), error)
        self.interrupt(self.failed_attempt(why), error)

    def failed_attempt(self, why: str) -> Suspended:
        """Return the suspension after which a failure of the function's own code counts."""
        errors = 1 if self.log.written else self.job.errors + 1
        wait_us = self.policy().wait_us(errors, 1.0)
        at_us = self.engine.time.latest_us() + wait_us
        place = self.place._replace(length=len(self.log), parked_us=0, stops=0)
        return Suspended(Parked(at_us, place, errors, self.job.crashes, "retried", why), why)

    def policy(self) -> Retry:
        """Return the policy of the function's own errors."""
        return self.handler.policy_of(self.job)

    def take(self, name: str) -> str:
        """Return the key of the position of a call that begins."""
        if self.suspension is not None:
            raise self.suspension
        return key_of(self.line.take(name))

    def replayed(self, key: str, kind: str, name: str) -> Generator[Part, Any, Entry | None]:
        """Return the record of a position; None if the call is to be made now.

        Raises:
          Cancel: The cancel of the function was delivered here, or is now.
        """
        entry = yield from self.recorded(key)
        if entry is None:
            self.end_replay()
        if entry is None and self.end is not None:
            self.unwind()
        if entry is None:
            self._compare(key, self.log.begun(key), (kind, name))
            self.rehearse()
        if entry is None and self.is_cancelled:
            entry = yield from self.write(key, Head("cancel"))
        if entry is None:
            return None
        self.pass_to(entry.head.at_us)
        if entry.head.kind == "cancel":
            raise self.cancelled()
        self._compare(key, entry.head, (kind, name))
        self._expect_arguments(key, entry.head)
        return entry

    def traced(
        self, kind: str, name: str, key: str, attempt: int
    ) -> AbstractContextManager[StepSpan]:
        """Make the span of an attempt of a step, or of the compensation of one."""
        position = shown(self.undoing or key)
        call = StepCall(self.job.id.hex(), self.job.task, kind, name, position, attempt)
        return self.watch.step(call)

    def end_replay(self) -> None:
        """Count the time of the replay, once: what follows is not recorded yet."""
        if self._replays_since_us is not None:
            took_us = self.engine.clock.monotonic_us() - self._replays_since_us
            self._replays_since_us = None
            self.watch.replayed(self.job, took_us)

    def _compare(self, key: str, recorded: Head | None, called: tuple[str, str]) -> None:
        """Stop if what is recorded of a position has another kind or name (rule D7)."""
        if recorded is None or (recorded.kind, recorded.name) == called:
            return
        self.stop(
            f"call {shown(key)} was {_call(recorded.kind, recorded.name)}, the code now calls "
            f"{_call(*called)}"
        )

    def _expect_arguments(self, key: str, head: Head) -> None:
        """Warn if a step has other arguments than its record; stop a function under test."""
        digest = self.line.digest
        if not digest or not head.digest or digest == head.digest:
            return
        call = f"call {shown(key)}, {head.name},"
        if self.rehearsal is not None:
            self.stop(
                f"{call} has other arguments at a replay: code between calls must not read clocks, "
                "randomness or anything else that changes"
            )
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "job=%s task=%s %s has other arguments than its record, whose result is used: code "
                "between calls must not read what changes", self.job.id.hex(), self.job.task, call,
            )  # fmt: skip

    def rehearse(self) -> None:
        """Suspend a function under test after each record, so that it is replayed up to there."""
        if self.rehearsal is not None and self.rehearsal.suspends and self.log.written:
            self.park(self.engine.time.latest_us())

    def cancelled(self) -> Cancel:
        """Return the error by which a recorded cancel is delivered."""
        self.knows_cancel = True
        error: Cancel = self.report(Cancel(CANCELLED))
        return error

    def unwind(self) -> NoReturn:
        """End the run at the last record of a function that has ended."""
        ending = Parked(self.job.at_us, self.place, self.job.errors, self.job.crashes)
        self.interrupt(Unwound(ending, "The function has ended."))

    def report(self, error: Any) -> Any:  # noqa: ANN401  (an exception)
        """Note an error that a record raises: uncaught, it ends the function at once."""
        self.reported.append(error)
        return error

    # Values that are derived

    def seed(self) -> bytes:
        """Return what a random value is derived from: job, generation, position and draw."""
        self.line.draws += 1
        job_id, generation, key = self._origin(key_of(self.line.path))
        cause = job_id + f"{generation}/{key}".encode()
        return derived(cause, self.line.draws)

    def random(self) -> random.Random:
        """Return a source of chance that is the same at each replay."""
        return random.Random(self.seed())

    def share(self, number: int) -> float:
        """Return a share in [0, 1) for the jitter of a wait."""
        return int.from_bytes(derived(self.job.token, number)[:4]) / 2**32

    def key(self) -> str:
        """Return the idempotency key of the call or compensation that runs, or of the next call."""
        job_id, generation, key = self._origin(self.undoing or key_of(self.line.next_path))
        position = f"{key}-undo" if self.undoing else key
        return f"{job_id.hex()}-{generation}-{position}"

    def _origin(self, key: str) -> tuple[bytes, int, str]:
        """Return the job and generation that came to a position first, and its key."""
        generation = self.place.owner(number_of(key))
        return self.place.origin(generation) or self.job.id, generation, key


def _blocking(call: Callable[[], T]) -> Call[T]:
    value: T = yield Blocking(call)
    return value


def _call(kind: str, name: str) -> str:
    """Return a call as the code has it, such as `wait_signal(go)`; a step by its name alone."""
    word = {"signal": "wait_signal", "gathered": "gather"}.get(kind, kind)
    return name if kind == "step" else f"{word}({name})"


def _is_cancellation(error: BaseException) -> bool:
    loaded = sys.modules.get("asyncio.exceptions")
    return isinstance(error, getattr(loaded, "CancelledError", ()))
