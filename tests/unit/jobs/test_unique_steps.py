"""One living job for a key, whatever the order of the steps."""

from collections import Counter
from collections.abc import Sequence

import pytest

from dueline.core.call_options import Mode
from dueline.core.clock import SECOND_US
from dueline.core.errors import Duplicate, EnqueueUnknown, StoreUnavailable
from dueline.core.job import Job, State
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import EnqueueRequest
from tests.harness.calls import claim_all
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import AFTER_LEASES_US, Stage, Stopped
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.unique_jobs import KEEPING_NOTHING, MODES, alive, end_of, keyed, keys_held

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

STEPS_MAX = 200


# --- stopped, or paused, at any step of a store without transactions -------------------------


def stage_with(settings: QueueSettings, *stops: int) -> Stage:
    """Set a stage whose handler returns."""
    stage = Stage(lambda number: number, settings=settings)
    stage.queues().engine.catalog.settings("default")
    stage.steps = 0
    stage.stop_at = frozenset(stops)
    return stage


def living(stage: Stage) -> list[Job]:
    """List the rows of jobs that have not ended, wherever they are."""
    rows = {row.id: row for row in stage.rows() if row.state != State.DEAD and not row.outcome}
    return list(rows.values())


def attempt(stage: Stage, calls: EnqueueRequest) -> str:
    """Enqueue as a client of its own; tell which job stands for the call."""
    try:
        return stage.queues().enqueue(calls)[0].id.hex()
    except Duplicate as error:
        return error.job_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [pytest.param(QueueSettings(), marks=pytest.mark.long), KEEPING_NOTHING],
    ids=["keep", "nothing"],
)
@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
def test_a_producer_is_stopped_at_any_step(
    first: Mode, second: Mode, settings: QueueSettings
) -> None:
    # C12
    for stop_at in range(1, STEPS_MAX):
        stage = stage_with(settings, stop_at)
        is_stopped = False
        try:
            attempt(stage, keyed(1, mode=first))
            attempt(stage, keyed(2, mode=first, due_us=NOW_US + SECOND_US))
        except Stopped:
            is_stopped = True
        stage.stop_at = frozenset()
        stands = attempt(stage, keyed(3, mode=second))
        assert [row.id.hex() for row in living(stage)] == [stands]
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.work_to_the_end()
        assert stage.calls == 1
        if not is_stopped:
            return
    raise AssertionError("the producer never comes to an end")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [QueueSettings(), KEEPING_NOTHING], ids=["keep", "nothing"])
@pytest.mark.parametrize("mode", MODES)
def test_a_producer_pauses_at_any_step_while_others_go_on(
    mode: Mode, settings: QueueSettings
) -> None:
    # C12: others add, run and end jobs of the key, and add one more; then it goes on
    for stop_at in range(1, STEPS_MAX):
        stage = stage_with(settings, stop_at)
        others: list[str] = []

        def meanwhile(stage: Stage = stage, others: list[str] = others) -> None:
            stage.stop_at = frozenset()
            others.append(attempt(stage, keyed(2, mode="existing")))
            stage.clock.advance(us=AFTER_LEASES_US)
            stage.work_to_the_end()
            others.append(attempt(stage, keyed(3, mode="existing")))

        stage.meanwhile = meanwhile
        stands = attempt(stage, keyed(1, mode=mode))
        if not others:
            return
        assert len(living(stage)) == 1
        before = stage.calls
        assert before == 1
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.work_to_the_end()
        assert stage.calls == before + 1
        assert stands
    raise AssertionError("the producer never comes to an end")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_two_producers_in_any_order(mode: Mode) -> None:
    # C12
    def lead(turns: Turns) -> None:
        stage = stage_with(KEEPING_NOTHING)
        stage.turns = turns
        stands: list[str] = []
        acts = [
            lambda number=number: stands.append(attempt(stage, keyed(number, mode=mode)))
            for number in (1, 2)
        ]
        turns.run(acts)
        stage.turns = None
        (row,) = living(stage)
        assert row.id.hex() in stands

    assert every_order(lead, switches_max=2) > 10


@pytest.mark.parametrize("mode", MODES)
def test_a_producer_and_a_finisher_in_any_order(mode: Mode) -> None:
    # C12
    def lead(turns: Turns) -> None:
        stage = stage_with(KEEPING_NOTHING)
        attempt(stage, keyed(1))
        (row,) = claim_all(worker := stage.queues())
        stage.turns = turns
        stands: list[str] = []
        turns.run(
            [
                lambda: stands.append(attempt(stage, keyed(2, mode=mode))),
                lambda: end_of(worker, row),
            ]
        )
        stage.turns = None
        left = [job.id.hex() for job in living(stage)]
        assert left in ([], stands)  # the finished job stood for the call, or it has its own
        assert left or stands == [row.id.hex()]
        attempt(stage, keyed(3, mode="existing"))
        assert len(living(stage)) == 1

    assert every_order(lead, switches_max=2) > 10


# --- many keys in one call -------------------------------------------------------------------

KEYS = ("a", "b", "c")


def bulk(*keys: str, mode: Mode = "reject") -> list[EnqueueRequest]:
    """Make calls with keys, for one write."""
    return [keyed(number, key=key, mode=mode) for number, key in enumerate(keys, 1)]


def attempt_all(stage: Stage, calls: Sequence[EnqueueRequest]) -> int:
    """Enqueue calls as a client of its own; return how many are stored, from the first on."""
    try:
        return len(stage.queues().enqueue_all(calls))
    except Duplicate as error:
        return len(calls) - error.unsent


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_bulk_producer_is_stopped_at_any_step(mode: Mode) -> None:
    # C22
    for stop_at in range(1, STEPS_MAX):
        stage = stage_with(KEEPING_NOTHING, stop_at)
        is_stopped = False
        try:
            assert attempt_all(stage, bulk(*KEYS, mode=mode)) == len(KEYS)
        except Stopped:
            is_stopped = True
        stage.stop_at = frozenset()
        stands = {attempt(stage, keyed(9, key=key, mode="existing")) for key in KEYS}
        assert {row.id.hex() for row in living(stage)} == stands
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.work_to_the_end()
        assert stage.calls == len(KEYS)
        if not is_stopped:
            return
    raise AssertionError("the producer never comes to an end")


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("mode", MODES)
def test_a_bulk_producer_pauses_at_any_step_while_a_key_is_taken(mode: Mode, key: str) -> None:
    # C22: another call has the key, runs and ends, or holds it until the bulk call is over
    for stop_at in range(1, STEPS_MAX):
        for has_ended in (False, True):
            stage = stage_with(KEEPING_NOTHING, stop_at)
            others: list[str] = []

            def meanwhile(
                *,
                stage: Stage = stage,
                others: list[str] = others,
                has_ended: bool = has_ended,
            ) -> None:
                stage.stop_at = frozenset()
                others.append(attempt(stage, keyed(8, key=key, mode="existing")))
                if has_ended:
                    stage.clock.advance(us=AFTER_LEASES_US)
                    stage.work_to_the_end()

            stage.meanwhile = meanwhile
            stored = attempt_all(stage, bulk(*KEYS, mode=mode))
            if not others:
                return
            assert stored in (len(KEYS), KEYS.index(key))
            if stored < len(KEYS):
                assert mode == "reject"
                assert not has_ended
                free = [spare for spare in KEYS[stored:] if spare != key]
                assert not any(keys_held(stage.queues(), spare) for spare in free)
            held = {
                attempt(stage, keyed(9, key=unique_key, mode="existing")) for unique_key in KEYS
            }
            assert {row.id.hex() for row in living(stage)} == held
    raise AssertionError("the producer never comes to an end")


def test_two_bulk_producers_in_any_order() -> None:
    # C22: both want the same keys; those after the first held one belong to the other producer
    def lead(turns: Turns) -> None:
        stage = stage_with(KEEPING_NOTHING)
        stage.turns = turns
        stored: list[int] = []
        act = lambda: stored.append(attempt_all(stage, bulk("a", "b")))  # noqa: E731
        turns.run([act, act])
        stage.turns = None
        assert sorted(stored) == [0, 2]
        assert len(living(stage)) == 2

    assert every_order(lead, switches_max=2) > 10


@pytest.mark.parametrize("name", ["insert", "commit"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_of_a_bulk_may_have_been_stored_is_said(name: str, count: int) -> None:
    # C22
    stage = stage_with(KEEPING_NOTHING)
    queues = stage.queues()
    queues.enqueue_all(bulk("before"))
    stage.failing = {name: count}
    calls = bulk(*KEYS, "d")
    with pytest.raises(StoreUnavailable) as caught:
        queues.enqueue_all(calls)
    stage.failing = {}
    error = caught.value
    doubt = error.jobs if isinstance(error, EnqueueUnknown) else []
    assert len(doubt) == (0 if name == "commit" else len(calls))
    assert error.unsent == (len(calls) if name == "commit" else 0)
    queues.enqueue_again(doubt)
    queues.enqueue_all(calls[len(calls) - error.unsent :])
    assert alive(queues) == [1, 1, 2, 3, 4]


def test_rows_of_many_keys_are_added_together() -> None:
    # C22: a key of its own costs one conditional write, not an insert by itself
    stage = stage_with(KEEPING_NOTHING)
    queues = stage.queues()
    queues.enqueue_all(bulk("before"))
    stage.names.clear()
    keys = [f"key {number}" for number in range(250)]
    queues.enqueue_all(bulk(*keys))
    names = Counter(stage.names)
    assert (names["commit"], names["insert"]) == (250, 1)
    assert names["records"] <= 3
    assert len(living(stage)) == 251


@pytest.mark.parametrize("held", [[], ["key 3", "key 77"]])
def test_keys_of_a_partition_are_taken_together(held: list[str]) -> None:
    # C22: unless a call may be refused for one
    stage = stage_with(KEEPING_NOTHING)
    queues = stage.queues()
    queues.enqueue_all(bulk("before", *held, mode="existing"))
    stage.names.clear()
    keys = [f"key {number}" for number in range(250)]
    queues.enqueue_all(bulk(*keys, mode="existing"))
    names = Counter(stage.names)
    assert names["insert"] == 1 + bool(held)  # the free keys of partitions with a held one
    assert names["commit"] <= 16 + len(held)
    assert len(living(stage)) == 251


# --- answers that do not come ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["insert", "commit"])
def test_what_may_have_been_stored_is_said_and_may_be_sent_again(name: str) -> None:
    cluster, clock = Cluster(), HandClock()
    failing = {name: 0}

    def step(step_name: str) -> None:
        if failing.get(step_name):
            failing[step_name] -= 1
            raise StoreUnavailable

    store = SteppedMemoryStore(clock, cluster=cluster, step=step)
    queues = queues_on(store, clock, KEEPING_NOTHING)
    queues.engine.catalog.settings("default")
    failing[name] = 1
    with pytest.raises(StoreUnavailable) as caught:
        queues.enqueue(keyed(1))
    if name == "commit":  # the record was not written, so nothing was
        assert not isinstance(caught.value, EnqueueUnknown)
        assert not keys_held(queues)
        return
    assert isinstance(caught.value, EnqueueUnknown)
    queues.enqueue_again(caught.value.jobs)
    assert alive(queues) == [1]
