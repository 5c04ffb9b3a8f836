"""Whatever happens in a handler becomes an ending."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from dueline.api.signals import passed_on
from dueline.core.attempt import Cancelled, Done, Ending, Failed, GivenBack, Snoozed, misfit_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.errors import BadInput, LeaseLost
from dueline.core.job import Claim
from dueline.core.lane import with_task
from dueline.core.retry import WAIT_US_MAX, Retry
from dueline.tasks.failures import TRACEBACK_CHARACTERS_MAX
from dueline.tasks.handler import Context, Handler
from dueline.tasks.raised import Cancel, Snooze
from dueline.worker.assignment import Assignment, overtaking
from dueline.worker.execution import (
    ASYNC_GRACE_US,
    UNKNOWN_TASK_WAIT_US,
    Execution,
)
from tests.harness.calls import row_of
from tests.harness.clocks import NOW_US

NAME = "tests.task"


def handler_of(
    function: Callable[..., Any], *, retry: Retry | None = None, timeout_us: int | None = None
) -> Handler:
    """Register a function."""
    return Handler(function, name=NAME, retry=retry or Retry(), timeout_us=timeout_us)


def ending_of(
    function: Callable[..., Any],
    *,
    body: bytes = b"[]",
    keep: bool = True,
    retry: Retry | None = None,
    timeout_us: int | None = None,
    lost: Sequence[Claim] = (),
) -> Ending:
    """Run a job of a function."""
    handler = handler_of(function, retry=retry, timeout_us=timeout_us)
    execution = Execution({NAME: handler})
    execution.controls.lose(lost)
    row = row_of(7)._replace(body=body, errors=2, fence=5)
    return execution.run(Assignment(row, keep), NOW_US)


def failed(
    function: Callable[..., Any], *, body: bytes = b"[]", retry: Retry | None = None
) -> Failed:
    """Run a job that fails."""
    ending = ending_of(function, body=body, retry=retry)
    assert isinstance(ending, Failed)
    return ending


def raising(error: BaseException) -> Callable[[], NoReturn]:
    """Make a handler that fails."""

    def handler() -> NoReturn:
        raise error

    return handler


def test_what_a_handler_returns_is_its_result() -> None:
    assert ending_of(lambda: {"a": [1, None]}) == Done(b'{"a":[1,null]}')


def test_a_result_that_nobody_wants_is_not_written() -> None:
    assert ending_of(object, keep=False) == Done(b"")


def test_arguments_come_as_they_were_given() -> None:
    def handler(day: timedelta, *rest: int, last: str) -> list[object]:
        return [day.days, rest, last]

    body = b'{"args":["P2D",3,4],"kwargs":{"last":"x"}}'
    assert ending_of(handler, body=body) == Done(b'[2,[3,4],"x"]')


def test_a_context_comes_first_and_knows_the_job() -> None:
    # C7: the fence, for outside systems
    def handler(ctx: Context, a: int) -> list[object]:
        ctx.check_cancelled()
        return [ctx.job_id.hex(), ctx.fence, ctx.attempt, ctx.task, ctx.queue, a]

    assert ending_of(handler, body=b"[3]") == Done(encode([f"{7:032x}", 5, 3, NAME, "default", 3]))


def test_a_handler_that_asks_learns_that_its_claim_was_lost() -> None:
    # C19
    def handler(ctx: Context) -> None:
        ctx.check_cancelled()

    job_id = row_of(7).id
    ending = ending_of(handler, lost=[Claim(job_id, 5)])
    assert isinstance(ending, Cancelled)
    assert f"{7:032x} was lost" in ending.reason
    # an earlier claim of the same job is another matter
    assert ending_of(handler, lost=[Claim(job_id, 4)]) == Done(b"null")


def test_only_so_many_lost_claims_are_remembered() -> None:
    execution = Execution({})
    execution.controls.lose(Claim(row_of(7).id, fence) for fence in range(20_000))
    assert len(execution.controls._lost) == 10_000
    assert execution.controls.is_lost(Claim(row_of(7).id, 19_999))


def test_coroutines_run_to_their_end() -> None:
    # A2
    async def handler(ctx: Context, a: int) -> int:
        await asyncio.sleep(0)
        return a + ctx.fence

    assert ending_of(handler, body=b"[3]") == Done(b"8")


def test_a_coroutine_that_takes_too_long_is_ended_while_it_waits() -> None:
    # R9
    async def handler() -> None:
        await asyncio.sleep(60)

    ending = ending_of(handler, timeout_us=10_000)
    assert isinstance(ending, Failed)
    assert (ending.error_type, ending.retry) == ("JobTimeout", True)
    assert "`timeout`" in ending.message


def test_a_timeout_of_a_coroutines_own_is_its_own() -> None:
    async def handler() -> None:
        raise TimeoutError("upstream")

    ending = ending_of(handler, timeout_us=60 * SECOND_US)
    assert isinstance(ending, Failed)
    assert (ending.error_type, ending.message) == ("TimeoutError", "upstream")


def test_snooze_and_cancel_are_no_failures() -> None:
    assert ending_of(raising(Snooze(minutes=1))) == Snoozed(60 * SECOND_US)
    assert ending_of(raising(Cancel("not wanted"))) == Cancelled("not wanted")


def test_snooze_and_cancel_hold_whatever_they_are_given() -> None:
    for seconds in (-1, 86_400_000_000_000):
        with pytest.raises(BadInput, match="must be"):
            Snooze(seconds)
    assert ending_of(raising(Snooze(days=3660))) == Snoozed(WAIT_US_MAX)
    reason: Any = ValueError("not wanted")
    assert ending_of(raising(Cancel(reason))) == Cancelled("not wanted")


def test_a_lost_lease_ends_the_job_without_a_result() -> None:
    assert ending_of(raising(LeaseLost("gone"))) == Cancelled("gone")


def test_a_task_that_this_worker_does_not_know_is_left_to_others() -> None:
    execution = Execution({})
    assert execution.run(Assignment(row_of(), keep=True), NOW_US) == GivenBack(UNKNOWN_TASK_WAIT_US)
    assert execution.timeout_us(row_of()) is None


def test_the_time_limit_is_the_tasks_own() -> None:
    async def waits() -> None: ...

    # a coroutine is cancelled by its loop first
    for function, limit_us in ((len, 5), (waits, 5 + ASYNC_GRACE_US)):
        execution = Execution({NAME: handler_of(function, timeout_us=5)})
        assert execution.timeout_us(row_of()) == limit_us


# --- failures --------------------------------------------------------------------------------


def test_a_failure_tells_type_message_and_where() -> None:
    ending = failed(raising(ValueError("no such day")))
    assert (ending.error_type, ending.message, ending.retry) == ("ValueError", "no such day", True)
    assert ending.retry_after_us is None
    assert "raise error" in ending.traceback
    assert ending.traceback.rstrip().endswith("ValueError: no such day")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_nothing_that_a_handler_raises_ends_the_worker(error: BaseException) -> None:
    with passed_on(lambda _: None):  # as in a worker, where Ctrl-C raises nothing
        ending = failed(raising(error))
    assert ending.error_type == type(error).__name__
    assert not ending.retry


def test_the_policy_says_what_is_tried_again() -> None:
    # R2
    policy = Retry(on=(OSError,))
    assert not failed(raising(ValueError()), retry=policy).retry
    assert failed(raising(OSError()), retry=policy).retry


def test_arguments_that_do_not_fit_wait_for_another_version() -> None:
    # rule P13
    def handler(a: int) -> None: ...

    for body in (b'["x"]', b"[]", b"[1,2]", b'{"args":[1],"kwargs":{"b":2}}'):
        ending = ending_of(handler, body=body)
        assert isinstance(ending, GivenBack)
        assert ending.misfit.startswith("The arguments do not fit ")
    assert misfit_of(ending_of(handler, body=b"[1]")) == ""


def test_damaged_arguments_are_not_tried_again() -> None:
    def handler(a: object) -> None: ...

    for body in (b'["\xff"]', b'{"args": ["\xff"]}', b"[" * 5000):
        ending = failed(handler, body=body)
        assert (ending.error_type, ending.retry) == ("BadInput", False)


def test_a_result_that_cannot_be_written_is_not_tried_again() -> None:
    ending = failed(object)
    assert (ending.error_type, ending.retry) == ("BadInput", False)
    assert "keep=0" in ending.message
    assert not failed(raising(BadInput("own"))).retry


def test_a_long_traceback_keeps_its_innermost_part() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 9000)
        (deep if n % 2 else other)(n - 1)

    def other(n: int) -> None:
        deep(n)

    ending = failed(deep, body=b"[300]")
    assert len(ending.traceback) == TRACEBACK_CHARACTERS_MAX
    assert ending.traceback.rstrip().endswith("x" * 9000)


class Later(Exception):
    def __init__(self, wait: object) -> None:
        super().__init__("later")
        self.retry_after = wait


@pytest.mark.parametrize(
    ("wait", "us"),
    [
        (3, 3 * SECOND_US),
        (0.5, 500_000),
        (0, 0),
        (timedelta(days=1), DAY_US),
        (-1, None),
        (True, None),
        ("3", None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
    ],
)
def test_an_error_may_say_when_to_try_again(wait: object, us: int | None) -> None:
    # R2
    assert failed(raising(Later(wait))).retry_after_us == us


class Hostile(Exception):
    @property
    def retry_after(self) -> float:
        raise RuntimeError("no attribute for you")

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def test_an_error_that_fails_when_it_is_asked_is_a_failure_all_the_same() -> None:
    ending = failed(raising(Hostile()))
    assert (ending.error_type, ending.message) == ("Hostile", "(its text cannot be shown)")
    assert ending.retry_after_us is None


@pytest.mark.parametrize("make", [ValueError, Cancel])
def test_text_that_no_store_can_keep_is_made_readable(make: type[Exception]) -> None:
    # a file name that is not UTF-8 comes as a lone surrogate
    ending = ending_of(raising(make("no file a\udcffb")))
    assert isinstance(ending, Failed | Cancelled)
    for text in ending:
        if isinstance(text, str):
            text.encode()
    told = ending.message if isinstance(ending, Failed) else ending.reason
    assert told == "no file a\\udcffb"


def test_locals_are_never_told() -> None:
    def handler(password: str) -> None:
        raise ValueError(len(password))

    ending = failed(handler, body=b'["s3cret"]')
    assert "s3cret" not in str(ending)


# --- order -----------------------------------------------------------------------------------


def urgent(*priorities: int) -> list[Assignment]:
    """Make assignments of these priorities."""
    return [
        Assignment(row._replace(lane=row.lane._replace(priority=priority)), keep=True)
        for priority, row in zip(priorities, map(row_of, range(1, 99)), strict=False)
    ]


@pytest.mark.parametrize(
    ("coming", "waiting", "count"),
    [((5, 5, 3), (4, 1), 2), ((5,), (5,), 0), ((5, 4), (), 0), ((), (1,), 0), ((9, 8), (1,), 2)],
)
def test_what_is_more_urgent_than_all_that_waits_goes_first(
    coming: tuple[int, ...], waiting: tuple[int, ...], count: int
) -> None:
    # T3
    assert overtaking(urgent(*coming), urgent(*waiting)) == count


def test_what_was_due_earlier_goes_first_in_its_queue_and_tenant() -> None:
    # such a job came late: its transaction was open for long
    (late, first) = urgent(1, 1)
    late = late._replace(job=late.job._replace(pos_us=first.job.pos_us - 1))
    other = late._replace(job=late.job._replace(lane=late.job.lane._replace(tenant="b")))
    assert overtaking([late, first], [first]) == 1
    assert overtaking([other], [first]) == 0, "tenants take turns by other rules"
    assert overtaking([first], [first]) == 0


def test_a_function_that_has_begun_goes_before_new_jobs_of_its_tenant() -> None:
    # rule D16
    (begun, first) = urgent(1, 1)
    lane = with_task(begun.job.lane, "f", 0)
    begun = begun._replace(job=begun.job._replace(lane=lane, pos_us=first.job.pos_us + 1))
    other = begun._replace(job=begun.job._replace(lane=lane._replace(queue="other")))
    assert overtaking([begun, begun, first], [first]) == 2
    assert overtaking([begun], [begun]) == overtaking([first], [begun]) == 0
    assert overtaking([other], [first]) == 0
    assert overtaking(urgent(2), [begun]) == 1


def test_nothing_overtakes_a_job_whose_wait_may_have_made_it_the_most_urgent() -> None:
    # T5
    assert overtaking(urgent(9), [assignment._replace(firm=True) for assignment in urgent(1)]) == 0


@pytest.mark.parametrize(
    "error", [ValueError("no"), Snooze(5), Cancel("why"), LeaseLost("gone"), SystemExit(3)]
)
@pytest.mark.parametrize("body", [b"[1]", b'{"args": [1]}', b'["no number"]', b"{"])
def test_a_job_ends_alike_whether_its_result_is_kept_or_not(
    error: BaseException, body: bytes
) -> None:
    seen: list[int] = []

    def function(number: int) -> None:
        seen.append(number)
        raise error

    execution = Execution({NAME: handler_of(function)})
    job = row_of()._replace(body=body)
    kept, not_kept = (execution.run(Assignment(job, keep), 0) for keep in (True, False))
    if isinstance(kept, Failed) and isinstance(not_kept, Failed):
        assert kept._replace(traceback="") == not_kept._replace(traceback="")
    else:
        assert kept == not_kept
    assert seen in ([], [1, 1])


def test_a_job_whose_end_is_wished_for_is_not_called() -> None:
    seen: list[int] = []
    execution = Execution({NAME: handler_of(seen.append)})
    execution.controls.cancel([row_of(1).claim()])
    endings = [execution.run(Assignment(row_of(n), keep=False), 0) for n in (1, 2)]
    assert [type(ending) for ending in endings] == [Cancelled, Done]
    assert seen == [2]
