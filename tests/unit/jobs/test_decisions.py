"""One write decides, and carries the rest, whatever stops and whatever arrives late."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dueline.core.clock import DAY_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Token
from dueline.core.store import NO_VERSION, Commit, Drop, Group, Put, Record, Store
from dueline.jobs.decisions import Completion, Decision, complete, decide, of_record
from dueline.store_tests.calls import (
    claim,
    lane_of,
    move,
    new_job,
    put_in,
    records_in,
    row_of,
    rows_in,
    stream_of,
    token_of,
)
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, GivenUp
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import Stopped
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import EVERY_KIND, store_on

STEPS_MAX = 50
OPEN, CLOSED, OTHER = token_of(1), token_of(2), token_of(3)


def carrying(
    number: int = 1, *, version: Token = OPEN, expect: bytes = NO_VERSION, partition: str = "p"
) -> Decision:
    """Return a decision that inserts a numbered job and a row; its record is closed afterwards."""
    key = f"key {number}"
    write = Commit(partition, (Put(key, version, b"open", expect=expect),))
    carried = Group(jobs=[new_job(number)], rows=[row_of(number)])
    return of_record(write, carried, Put(key, CLOSED, b"closed"))


def kept(number: int = 1) -> Decision:
    """Return a decision whose record stays as it is."""
    decision = carrying(number)
    return Decision(decision.opened().write, decision.carried)


def contents(store: Store) -> tuple[object, ...]:
    """Return all that decisions of these tests write."""
    return rows_in(store, lane_of()), stream_of(store), records_in(store, "p")


NOTHING: tuple[object, ...] = ([], [], [])
APPLIED: tuple[object, ...] = ([new_job(1)], [row_of(1)], [Record("key 1", CLOSED, b"closed")])


class Scene:
    """A cluster, and processes that do something before each step."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.cluster = Cluster()
        self.names: list[str] = []

    def store(self, before: Callable[[str], object] = lambda _name: None) -> SteppedMemoryStore:
        """Return the store as a process of its own sees it."""

        def step(name: str) -> None:
            self.names.append(name)
            before(name)

        return SteppedMemoryStore(self.clock, cluster=self.cluster, step=step)

    def failing(self, number: int, error: BaseException) -> SteppedMemoryStore:
        """Return the store of a process that fails before one of its steps."""
        self.names.clear()

        def fail(_name: str) -> None:
            if len(self.names) == number:
                raise error

        return self.store(fail)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_on(request.param, tmp_path, HandClock())


# --- each kind of store ----------------------------------------------------------------------


def test_a_decision_is_applied_with_all_that_it_carries(store: Store) -> None:
    assert decide(store, [carrying()]) == [True]
    assert contents(store) == APPLIED


def test_a_decision_that_is_refused_carries_nothing(store: Store) -> None:
    put = Put("key 1", OTHER, b"another")
    assert store.commit("p", [put])
    assert decide(store, [carrying()]) == [False]
    assert decide(store, [carrying(expect=OPEN)]) == [False]
    assert contents(store) == ([], [], [Record("key 1", OTHER, b"another")])
    assert decide(store, [carrying(expect=OTHER)]) == [True]
    assert contents(store) == APPLIED


def test_a_record_that_is_never_closed_keeps_its_cell(store: Store) -> None:
    assert decide(store, [kept()]) == [True]
    assert records_in(store, "p") == [Record("key 1", OPEN, b"open")]


def test_a_carried_verdict_that_is_refused_is_no_success(store: Store) -> None:
    put_in(store, new_job(1))
    (job,) = claim(store, lane_of()).jobs
    retake = kept()._replace(carried=Group(verdicts=[move(job, 0)]))
    assert decide(store, [retake]) == [True]
    assert store.settle([Drop(job)]) == [False]
    retake = kept(2)._replace(carried=retake.carried)
    assert decide(store, [retake]) == [False]


def test_none_is_applied_after_one_that_is_refused(store: Store) -> None:
    assert store.commit("p", [Put("key 3", OTHER, b"another")])
    held = decide(store, [kept(number) for number in range(1, 6)], in_order=True)
    added = [True, True, False, False, False] if not store.transactional else [False] * 5
    assert held == added
    numbers = [number for number, is_added in enumerate(held, 1) if is_added]
    assert rows_in(store, lane_of()) == [new_job(number) for number in numbers]


def test_many_are_applied_at_once_and_each_refused_one_is_named(store: Store) -> None:
    places = {number: f"p{number % 3}" for number in range(1, 8)}
    assert store.commit("p1", [Put("key 4", OTHER, b"another")])
    many = [carrying(number, partition=place) for number, place in places.items()]
    held = decide(store, many)
    assert held == [not store.transactional and place != "p1" for place in places.values()]
    added = [new_job(n) for n, is_added in zip(places, held, strict=True) if is_added]
    assert rows_in(store, lane_of()) == added
    assert decide(store, []) == []


# --- a store without transactions -------------------------------------------------------------


def test_nothing_is_sent_before_the_decision_and_the_record_is_closed_last(scene: Scene) -> None:
    # rules C1 and C3
    assert decide(scene.store(), [carrying()]) == [True]
    order = [name for name in scene.names if name in ("commit", "insert", "append")]
    assert order == ["commit", "insert", "append", "commit"]


def test_what_carries_nothing_is_one_write(scene: Scene) -> None:
    store = scene.store()
    assert decide(store, [carrying()._replace(carried=Group())]) == [True]
    assert scene.names == ["commit"]
    assert records_in(store, "p") == [Record("key 1", CLOSED, b"closed")]


def test_decisions_about_one_partition_are_one_write(scene: Scene) -> None:
    decide(scene.store(), [kept(number) for number in range(1, 10)])
    assert scene.names.count("commit") == scene.names.count("insert") == 1
    scene.names.clear()
    decide(scene.store(), [kept(number) for number in range(10, 20)], in_order=True)
    assert (scene.names.count("commit"), scene.names.count("insert")) == (10, 1)


def test_a_write_holds_a_limited_number_of_bytes(scene: Scene) -> None:
    large = Put("", OPEN, bytes(10_000), expect=NO_VERSION)
    writes = [Commit("p", (large._replace(key=f"key {number}"),)) for number in range(9)]
    assert decide(scene.store(), [Decision(write, Group()) for write in writes]) == [True] * 9
    assert scene.names == ["commit"] * 3


def finish(store: Store) -> None:
    """Do what the next process does: complete a record that is open, or decide anew."""
    match records_in(store, "p"):
        case [Record(version=version)] if version == OPEN:
            assert complete(store, carrying(), age_us=0) is Completion.HERE
        case []:
            assert decide(store, [carrying()]) == [True]


def test_a_process_that_stops_anywhere_leaves_nothing_or_all_of_it() -> None:
    # rules C1 to C4: before each step, and so after each
    for number in range(1, STEPS_MAX):
        scene = Scene()
        try:
            decide(scene.failing(number, Stopped()), [carrying()])
        except Stopped:
            stored = contents(scene.store())
            assert stored == NOTHING or stored[2] == [Record("key 1", OPEN, b"open")]
            finish(scene.store())
            assert contents(scene.store()) == APPLIED
        else:
            assert contents(scene.store()) == APPLIED
            return
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize("skips", range(4))
def test_a_step_may_arrive_late(skips: int) -> None:
    # rules C2 and C3: while the same process repeats it, or another one completes the record
    for number in range(1, STEPS_MAX):
        scene = Scene()
        store = scene.failing(number, GivenUp(skips=skips))
        with suppress(Unknown):
            decide(store, [carrying()])
        if len(scene.names) < number:
            return
        finish(scene.store())
        finish(store)
        for _ in range(skips + 1):  # the late one has arrived
            contents(store)
        finish(scene.store())
        assert contents(store) == APPLIED
    raise AssertionError("it never comes to an end")


def test_two_decide_about_one_record_in_any_order() -> None:
    # rule C1
    def lead(turns: Turns) -> None:
        scene = Scene()
        held: list[list[bool]] = []
        first = carrying()
        second = carrying(version=OTHER)._replace(carried=Group(jobs=[new_job(2)]))
        turns.run(
            [
                lambda: held.append(decide(scene.store(turns.step), [first])),
                lambda: held.append(decide(scene.store(turns.step), [second])),
            ]
        )
        assert sorted(held) == [[False], [True]]
        assert len(rows_in(scene.store(), lane_of())) == 1

    assert every_order(lead, switches_max=3) > 10


def test_two_complete_one_record_in_any_order() -> None:
    # rules C2 and C3: one of them may be the process that decided
    def lead(turns: Turns) -> None:
        scene = Scene()
        scene.store().commit("p", carrying().opened().commit().writes)
        done: list[Completion] = []
        act = lambda: done.append(complete(scene.store(turns.step), carrying(), age_us=0))  # noqa: E731
        turns.run([act, act])
        assert sorted(completion.name for completion in done) == ["ELSEWHERE", "HERE"]
        assert contents(scene.store()) == APPLIED

    assert every_order(lead, switches_max=3) > 10


def test_a_job_that_has_ended_is_not_inserted_again(scene: Scene) -> None:
    # rule B1
    store = scene.store()
    assert decide(store, [kept()]) == [True]
    assert store.settle([Drop(new_job(1))]) == [True]
    assert complete(store, kept(), age_us=DAY_US - 1) is Completion.HERE
    assert rows_in(store, lane_of()) == []


def test_a_day_after_the_decision_its_record_is_closed_without_the_rest(scene: Scene) -> None:
    # rule C5
    store = scene.store()
    assert store.commit("p", carrying().opened().commit().writes)
    assert complete(store, carrying(), age_us=DAY_US) is Completion.TOO_LATE
    assert contents(store) == ([], [], [Record("key 1", CLOSED, b"closed")])


def error_of(store: Store, decisions: list[Decision], *, in_order: bool) -> Exception | None:
    """Return what a call fails with."""
    try:
        decide(store, decisions, in_order=in_order)
    except StoreUnavailable as error:
        return error
    return None


@pytest.mark.parametrize("in_order", [False, True])
def test_a_failure_after_the_first_decision_says_that_some_may_be_stored(
    scene: Scene,
    *,
    in_order: bool,
) -> None:
    # rule C7
    two = [kept(1), carrying(2, partition="q")]
    assert decide(scene.store(), two, in_order=in_order) == [True, True]
    for number in range(1, len(scene.names) + 1):
        scene = Scene()
        down = scene.failing(number, StoreUnavailable("down"))
        error = error_of(down, two, in_order=in_order)
        is_decided = bool(records_in(scene.store(), "p"))
        assert type(error) is (Unknown if is_decided else StoreUnavailable)


def test_a_transaction_leaves_nothing_to_complete(tmp_path: Path) -> None:
    store = store_on("memory", tmp_path, HandClock())
    assert decide(store, [carrying()]) == [True]
    assert complete(store, carrying(), age_us=0) is Completion.ELSEWHERE
    assert contents(store) == APPLIED
