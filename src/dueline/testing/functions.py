"""Durable functions under test: time is skipped, steps are replaced."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dueline.api.application import Dueline
from dueline.api.job_handle import Job
from dueline.core.clock import SECOND_US
from dueline.core.job import Job as Row
from dueline.durable.rehearsal import Double, Rehearsal
from dueline.durable.steps import name_of
from dueline.durable.stopped import stop_of
from dueline.durable.views import RecordedCall, view_of
from dueline.jobs.parked_functions import is_parked
from dueline.testing.clock import VirtualClock

SKIPS_MAX = 10_000
"""Maximum number of times that the clock skips to the next due job."""


class Bench(Protocol):
    """The application under test, as the functions need it."""

    app: Dueline
    clock: VirtualClock
    rehearsal: Rehearsal

    def drain(self, *, raises: bool = True) -> object:
        """Run due jobs."""
        ...

    def enqueued(self) -> Sequence[Row]:
        """Return the rows of waiting jobs."""
        ...


class FunctionsOnBench:
    """The durable functions of an application under test.

    Each function is suspended and replayed at every call, so that side effects, clocks and
    randomness between the calls show themselves.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def replace(
        self,
        step: Callable[..., Any] | str,
        value: object = None,
        *,
        raises: Exception | None = None,
    ) -> None:
        """Replace a step in all durable functions of this test.

        Args:
            step: The function of the step, or the name of the call.
            value: What the step returns.
            raises: What each attempt of the step raises instead.
        """
        name = step if isinstance(step, str) else name_of(step, None)
        self._bench.rehearsal.doubles[name] = Double(value, raises)

    def run(self, job: Job[Any], *, until: str | None = None) -> Any:  # noqa: ANN401
        """Run due jobs, and skip the time to the next one, until a function has ended.

        Args:
            job: The function's job.
            until: Name of a signal: run until the function waits for it.

        Returns:
            The result of the function; None if it waits for `until`.

        Raises:
            JobFailed: The function has failed, expired, or was cancelled.
            AssertionError: Its code does not repeat what it recorded, or it waits for a signal
                that nothing sends.
        """
        for _ in range(SKIPS_MAX):
            self._bench.drain(raises=False)
            row = self._bench.app.queues.find(job._id).row  # noqa: SLF001
            if row is None or job.status in ("dead", "expired"):
                if until is not None:
                    raise AssertionError(f"It ended and never waited for the signal {until}.")
                return job.result(timeout=0)
            if (stop := stop_of(row)) is not None:
                raise AssertionError(f"{row.task} is stopped: {stop.why}")
            call = self._open_call(row)
            if until is not None and call is not None and _awaits(call) == until:
                return None
            self._skip(row, call)
        raise AssertionError(f"The function does not end: the time was skipped {SKIPS_MAX} times.")

    def _open_call(self, row: Row) -> RecordedCall | None:
        if not is_parked(row):
            return None
        calls = view_of(self._bench.app.engine.store, row.id, row).open_calls
        return calls[-1] if calls else None

    def _skip(self, own: Row, call: RecordedCall | None) -> None:
        """Advance the clock to the next job that is due."""
        times = [due for row in self._bench.enqueued() if (due := self._due_us(row)) is not None]
        if not times:
            if call is not None and not _awaits(call):
                raise AssertionError(
                    f"{own.task} waits for {call.name}, which call {call.position} called, and no "
                    "job is due."
                )
            name = "" if call is None else _awaits(call)
            raise AssertionError(
                f"{own.task} waits for the signal {name}, and no other job is due: send it with "
                f"job.signal({name!r}, ...), or run it until={name!r} and send it then."
            )
        wait_us = min(times) - self._bench.clock.wall_us()
        self._bench.clock.advance(max(0, wait_us) / SECOND_US)

    def _due_us(self, row: Row) -> int | None:
        """Return when a job goes on by itself; None for never: checks of a wait do not count."""
        if stop_of(row) is not None:
            return None
        call = self._open_call(row)
        if call is not None and call.state == "running":
            return None
        if call is None or not _awaits(call):
            return row.at_us
        return call.until_us or None


def _awaits(call: RecordedCall) -> str:
    """Return the signal that a call waits for."""
    return call.name if call.state == "waiting" else ""
