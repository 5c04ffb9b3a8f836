"""Runs of one job, whose worker is stopped before any step."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from dueline.core.attempt import read_epitaph
from dueline.core.errors import Conflict, NotFound
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import CRASHES_MAX, Retry
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from dueline.tasks.raised import Cancel, Snooze
from tests.harness.lives import AFTER_LEASES_US, KEEPING, ChildDied, Killed, Stage, Stopped, put_one

STEPS_MAX = 400


FINAL = ("done", "dead", "cancelled")


def text_of(call: int) -> str:
    """Tell the calls of a handler apart."""
    return f"call {call}"


def fail(call: int) -> object:
    raise ValueError(text_of(call))


def cancel(call: int) -> object:
    raise Cancel(text_of(call))


def kill(_call: int) -> object:
    raise Killed


def first(error: Exception) -> Callable[[int], object]:
    """Make a handler whose first call fails, and whose others return."""

    def act(call: int) -> object:
        if call == 1:
            raise error
        return text_of(call)

    return act


def kill_child(_call: int) -> object:
    raise ChildDied


@dataclass(frozen=True)
class Life:
    """What a handler does, how the job ends, and how many calls that takes by itself.

    operator: what somebody does to the job before the worker begins.
    """

    act: Callable[[int], object]
    state: str
    calls: int
    retry: Retry = field(default_factory=Retry)
    settings: QueueSettings = KEEPING
    operator: Callable[[Queues, bytes], object] | None = None


ONCE = Retry(attempts=1)


LIVES = {
    "done": Life(text_of, "done", 1),
    "dead": Life(fail, "dead", 1, retry=ONCE),
    "cancelled by its handler": Life(cancel, "cancelled", 1),
    "cancelled by an operator": Life(
        text_of,
        "cancelled",
        0,
        operator=lambda queues, job_id: queues.cancel(job_id),  # type: ignore[arg-type]
    ),
    "retried": Life(first(ValueError("once")), "done", 2),
    "snoozed": Life(first(Snooze(60)), "done", 2),
    "killed with its worker": Life(first(Killed()), "done", 2),
    "killed with its child": Life(first(ChildDied()), "done", 2),
    "poison for workers": Life(kill, "dead", CRASHES_MAX),
    "poison for children": Life(kill_child, "dead", CRASHES_MAX),
    "done without history": Life(text_of, "done", 1, settings=replace(KEEPING, history="off")),
    "dead without history": Life(
        fail, "dead", 1, retry=ONCE, settings=QueueSettings(history="off", keep_us=0)
    ),
    "done without a result": Life(text_of, "done", 1, settings=QueueSettings(keep_us=0)),
}


def set_stage(stage: Stage, *stops: int) -> Stage:
    """Put the job on a stage, then say where it is stopped."""
    put_one(stage)
    stage.stop_at = frozenset(stops)
    return stage


def lead(stage: Stage, life: Life) -> None:
    """Lead the job's life to its end, then sweep."""
    if life.operator:
        queues = stage.queues()
        (job,) = stage.rows()
        try:
            life.operator(queues, job.id)
        except Stopped:
            stage.clock.advance(us=AFTER_LEASES_US)
        except Conflict:  # a worker was quicker
            assert stage.meanwhile
    stage.work_to_the_end()
    stage.watch()
    stage.sweep_to_the_end()
    stage.stop_at = frozenset()


def check_end(stage: Stage, life: Life) -> None:
    """Check that the first recorded end is the only one, and that nothing is left over."""
    (job_id,) = stage.ends
    end = stage.ends[job_id]
    queues = stage.queues()
    if life.settings.keep_us or life.state == "dead":
        job = queues.find(job_id)
        assert job.status == end.state
        told = read_epitaph(job.row.error)[0] if job.row else job.outcome and job.outcome.error
        assert told == end.error
        assert not job.outcome or job.outcome.value == end.value
    else:
        with pytest.raises(NotFound):
            queues.find(job_id)
    assert len(stage.rows()) == (end.state == "dead")
    assert [row.lane.queue for row in stage.rows()] == [stage.dead_queue] * (end.state == "dead")
    assert stage.listed(stage.queue) == 0
    assert stage.listed(stage.dead_queue) == (end.state == "dead")
    told_ends = list(attempts(queues.engine.store, stage.queue, 1))
    assert set(Counter(attempt.fence for attempt in told_ends).values()) <= {1}
    finals = [attempt for attempt in told_ends if attempt.outcome in FINAL]
    has_history = life.settings.history != "off" and not (life.operator and end.value == "")
    assert [attempt.outcome for attempt in finals] == [end.state] * has_history


def check_calls(stage: Stage) -> None:
    """Check that no handler was called after the end was recorded."""
    assert list(stage.calls_at_end.values()) == [stage.calls]


def states_of(life: Life) -> set[str]:
    """Tell how a job may end: an operator may be stopped before anything is written."""
    return {life.state, "done"} if life.operator else {life.state}


def stop_everywhere(life: Life, set_stage_for: Callable[[Life, int], Stage]) -> int:
    """Lead a life once for every step of it; tell how many there are."""
    for number in range(1, STEPS_MAX):
        stage = set_stage_for(life, number)
        lead(stage, life)
        check_end(stage, life)
        check_calls(stage)
        (end,) = stage.ends.values()
        if stage.steps < number:  # nothing was stopped
            assert (stage.calls, end.state) == (life.calls, life.state)
            return stage.steps
        assert end.state in states_of(life)
        assert stage.calls <= max(1, life.calls) + 1
    raise AssertionError("the life never runs through")
