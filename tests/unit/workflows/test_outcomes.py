"""Outcomes of steps as they are stored, and which workflows are old."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dueline.core.attempt import Done, Ended, Outcome
from dueline.core.call_options import CallOptions, CallTerms, StepPlace, flow_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId, State
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Commit, Put, Store
from dueline.jobs import results
from dueline.jobs.completion import successes
from dueline.store_tests.calls import new_job, put_in, token_of
from dueline.stores.memory.store import MemoryStore
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, Gathered, Layout, Node
from dueline.workflows.parts import Graph, Group, Step, StepCall, group, pipeline, wait_for
from dueline.workflows.readiness import End
from dueline.workflows.release import may_be_held
from dueline.workflows.workflow import FlowProgress
from tests.harness.clocks import NOW_US, HandClock

LARGE = 1024
FLOW = JobId(b"\x01" * 15 + b"\x00")


@pytest.fixture
def store(clock: HandClock) -> MemoryStore:
    return MemoryStore(clock)


def job_of(step: int, *, flow: JobId = FLOW, token: int = 1) -> Job:
    """Return the claimed job of a step."""
    opts = CallOptions(step=StepPlace(step)).to_bytes()
    job = new_job(1)._replace(id=records.job_of(flow, step), opts=opts)
    return job._replace(token=token_of(token), state=State.STARTED)


def write(store: Store, commits: Sequence[Commit]) -> None:
    for commit in commits:
        assert store.commit(commit.partition, commit.writes)


def outcome(state: str, text: str, ended_us: int = 9) -> Outcome:
    if state == "done":
        return Outcome("done", ended_us, value=text)
    return Outcome(state, ended_us, error=text)  # type: ignore[arg-type]


DONE = outcome("done", "7")
VALUES = ["", "null", "x" * LARGE, "y" * (LARGE + 1), '" a  b "']


@pytest.mark.parametrize("step", [0, BLOCK - 1, BLOCK, 99_999])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_done_step_is_read_as_it_was_recorded(
    store: MemoryStore, step: int, value: str, *, is_bulk: bool
) -> None:
    job = job_of(step)
    if is_bulk:
        write(store, records.record_done([(job, 9, value)]))
    else:
        write(store, records.record(job, outcome("done", value)))
    block = step // BLOCK
    assert records.ends(store, FLOW, [block]) == {step: End("done", value, "", 9)}
    found = records.ends(store, FLOW, [block], with_values=False)[step]
    assert (found.state, found.ended_us) == ("done", 9)
    assert (found.value == value) == (len(value) <= LARGE)  # large ones are apart
    assert records.ended(store, FLOW, block) == {step}
    assert records.ends(store, FLOW, [block + 1]) == {}
    assert records.step_of(job) == (FLOW, step)
    assert flow_of(job.id, step) == FLOW


def test_successes_of_all_kinds_are_stored_in_one_group(
    store: MemoryStore, clock: HandClock
) -> None:
    """Plain jobs, a step, and jobs that keep their results for other times."""
    kept = {"second": SECOND_US, "never": 0}
    jobs = {"plain": new_job(2), "other": new_job(3), "step": job_of(4)}
    for number, (name, keep_us) in enumerate(kept.items(), 4):
        opts = CallOptions(terms=CallTerms(keep_us=keep_us)).to_bytes()
        jobs[name] = new_job(number)._replace(opts=opts)
    put_in(store, *jobs.values())
    ended = [
        Ended(job, Done(b'"%s"' % name.encode()), NOW_US, NOW_US) for name, job in jobs.items()
    ]
    settings = {job.lane.queue: QueueSettings(keep_us=DAY_US) for job in jobs.values()}
    assert successes(ended[-1:], settings).commits == []  # nothing is kept
    assert store.together([successes(ended, settings)]) == [True]
    assert store.find([job.id for job in jobs.values()]) == [None] * len(jobs)
    assert records.ends(store, FLOW, [0]) == {4: End("done", '"step"', "", NOW_US)}
    for after_us, names in ((0, {*jobs} - {"never"}), (SECOND_US, {"plain", "other", "step"})):
        clock.advance(us=after_us)
        found = {name: results.read(store, job.id) for name, job in jobs.items()}
        values = {name: end.value for name, end in found.items() if end is not None}
        assert values == {name: f'"{name}"' for name in names}


@pytest.mark.parametrize("state", ["dead", "cancelled", "expired", "discarded"])
@pytest.mark.parametrize("error", ["", "ValueError: a  b", "z" * 5000])
def test_a_failed_step_is_read_as_it_was_recorded(
    store: MemoryStore, state: str, error: str
) -> None:
    write(store, records.record(job_of(3), outcome(state, error)))
    assert records.ends(store, FLOW, [0]) == {3: End(state, "", error, 9)}


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("steps", [[3], [3, 4], [4, 3], [9, 3, 5]])
@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_death_does_not_hide_an_outcome_whichever_comes_first(
    store: MemoryStore, steps: list[int], order: list[int], *, is_bulk: bool
) -> None:
    # rule W6
    done = records.record_done([(job_of(step, token=2), 9, "7") for step in steps])
    if not is_bulk:
        done = [c for step in steps for c in records.record(job_of(step, token=2), DONE)]
    deaths = [c for step in steps for c in records.record(job_of(step), outcome("dead", "no", 5))]
    for number in order:
        write(store, [deaths, done][number])
    expected = dict.fromkeys(steps, End("done", "7", "", 9))
    assert records.ends(store, FLOW, [0]) == expected


def test_many_done_steps_are_recorded_by_block(store: MemoryStore) -> None:
    steps = [BLOCK + 1, 5, 0, BLOCK, 7]
    done = [(job_of(step, token=step + 1), step, f"{step}" * (step == 7) * 2000) for step in steps]
    commits = records.record_done([*done, (new_job(99), 1, "no step")])
    write(store, commits)
    assert [commit.partition.endswith("values/0") for commit in commits] == [True, False, False]
    for block, expected in ((0, [0, 5, 7]), (1, [BLOCK, BLOCK + 1])):
        found = records.ends(store, FLOW, [block])
        assert sorted(found) == expected
        assert {step: end.ended_us for step, end in found.items()} == {s: s for s in expected}
    assert records.ends(store, FLOW, [0])[7].value == "7" * 2000
    assert records.ends(store, FLOW, [0, 1]).keys() == set(steps)


def test_a_large_value_that_is_not_readable_yet_is_no_outcome_yet(store: MemoryStore) -> None:
    apart, end = records.record(job_of(3), outcome("done", "x" * (LARGE + 1)))
    write(store, [end])
    assert records.ends(store, FLOW, [0]) == {}
    assert records.ends(store, FLOW, [0], with_values=False).keys() == {3}
    write(store, [apart])
    assert records.ends(store, FLOW, [0])[3].value == "x" * (LARGE + 1)


def test_a_damaged_outcome_is_named(store: MemoryStore) -> None:
    assert store.commit(f"flows/{FLOW.hex()}/0", (Put("000003", b"1" * 16, b"done x 7"),))
    with pytest.raises(StoreCorrupt, match="000003"):
        records.ends(store, FLOW, [0])


def test_a_job_without_a_workflow_has_no_outcome_to_record() -> None:
    assert records.record(new_job(1), outcome("done", "7")) == []
    assert records.step_of(new_job(1)) is None
    assert records.place_of(new_job(1)) is None
    assert records.place_of(new_job(1)._replace(opts=b"damaged")) is None


@pytest.fixture
def flows(store: MemoryStore) -> list[JobId]:
    """Store workflows: on three days, the second of which has three."""
    ids, found = Ids(), list[JobId]()
    for at_us in (NOW_US, NOW_US + DAY_US, NOW_US + DAY_US + 1000, NOW_US + DAY_US + 2000,
                  NOW_US + 2 * DAY_US):  # fmt: skip
        (flow,) = ids.many(1, at_us)
        found.append(flow)
        write(store, records.put_layout(flow, Layout("n", (Node("t"),), 0), version=flow))
    return found


def test_workflows_that_started_before_a_time_are_found_in_pages(
    store: MemoryStore, flows: list[JobId]
) -> None:
    times_us = [0, DAY_US, DAY_US + 1000, DAY_US + 2000, 2 * DAY_US]
    for us in sorted({*times_us, *(one + 1000 for one in times_us), 9 * DAY_US}):
        expected = [flow for flow, at in zip(flows, times_us, strict=True) if at < us]
        listed = list(records.started_before(store, NOW_US + us, after=""))
        assert [flow for _, flow in listed] == expected
        for number, (place, _) in enumerate(listed):
            rest = records.started_before(store, NOW_US + us, after=place)
            assert [flow for _, flow in rest] == expected[number + 1 :]
    assert [flow for flow, _ in records.listed(store)] == [
        flows[4], flows[3], flows[2], flows[1], flows[0]
    ]  # fmt: skip


def test_a_day_is_listed_until_its_last_workflow_is_forgotten(
    store: MemoryStore, flows: list[JobId]
) -> None:
    layout = Layout("n", (Node("t"),), 0)
    for number, left in ((1, 4), (0, 3), (2, 2), (3, 1), (4, 0)):
        assert list(records.forget(store, flows[number], layout))
        assert len(list(records.listed(store))) == left
        days = {1: 3, 0: 2, 2: 2, 3: 1, 4: 0}[number]
        assert len(store.read("flows", after=None, limit=9)) == days
        assert records.read(store, flows[number]) is None


def test_only_a_step_that_was_parked_and_never_started_may_be_held() -> None:
    def held(state: State, parked_us: int = 5, result: bytes = b"") -> bool:
        opts = CallOptions(step=StepPlace(1, parked_us)).to_bytes()
        return may_be_held(new_job(1)._replace(opts=opts, state=state, outcome=result))

    assert [held(state) for state in State] == [
        state in (State.WAITING, State.CLAIMED) for state in State
    ]
    assert not held(State.WAITING, 0)
    assert not held(State.WAITING, 5, b"ended")
    assert not may_be_held(new_job(1))


# --- the bounds of parts ----------------------------------------------------------------------

A = Step("a", lambda _: StepCall("a", "q", 0, b"[]"))


@pytest.mark.parametrize("name", ["x", "x" * 128, "a b"])
@pytest.mark.parametrize("timeout", [None, 1e-6, 10 * 366 * 24 * 3600 - 4 * 24 * 3600])
def test_a_wait_has_a_name_and_an_end_within_bounds(name: str, timeout: float | None) -> None:
    wait = wait_for(name, timeout=timeout)
    assert wait.name == name
    assert wait.timeout_us == (0 if timeout is None else round(timeout * SECOND_US))


@pytest.mark.parametrize(
    ("parts", "at_least"), [(0, 0), (0, 1), (1, 0), (1, 1), (3, 3), (3, 0.5), (3, 1.0), (3, None)]
)
def test_a_group_may_need_none_or_all_of_its_parts(parts: int, at_least: float | None) -> None:
    made = group([A] * parts, at_least=at_least)
    assert (len(made.parts), made.at_least, made.failures) == (parts, at_least, "stop")


def test_the_options_of_parts_that_are_not_given_are_these() -> None:
    assert Group((A,)).failures == "stop"
    assert (A.takes, A.undo, A.alone().takes) == (True, None, False)
    assert pipeline(A).on_failure == "stop"
    assert wait_for("x").timeout_us == 0
    assert isinstance(Graph({}), Graph)
    assert StepCall("a", "q", 0, b"") == StepCall(
        "a", "q", 0, b"", priority=0, tenant="", tags=(), due_us=None, expires_us=None, limits=(),
        terms=None, headers=(),
    )  # fmt: skip
    assert Node("t") == Node(
        "t", given=(), after=(), unless=None, is_lenient=False, signal="", timeout_us=0,
        cancels_from=-1, undoes=(),
    )  # fmt: skip
    assert Gathered((1,)) == Gathered((1,), rule="stop", at_least=0)
    assert End("done") == End("done", value="", error="", ended_us=0)


def test_the_progress_counts_what_has_ended_in_any_way() -> None:
    progress = FlowProgress(9, {"done": 2, "dead": 1, "cancelled": 3})
    assert (progress.done, progress.left) == (2, 3)
    assert replace(progress, ended={}).left == 9
    assert FlowProgress(9).done == 0
