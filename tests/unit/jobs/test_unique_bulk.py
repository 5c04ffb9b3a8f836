"""Calls with unique keys in one write: as one after the other, with fewer writes."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dueline.core.call_options import Mode
from dueline.core.clock import SECOND_US
from dueline.core.errors import Duplicate, EnqueueUnknown, StoreUnavailable
from dueline.core.job import Job
from dueline.core.store import Group
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.calls import claim_all, number_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.unique_jobs import KEEPING_NOTHING, MODES, alive, end_of, keyed
from tests.harness.world import EVERY_KIND, KINDS, store_on

ANSWERING: tuple[Mode, ...] = ("existing", "earliest", "last")
KEYS = "abcdefgh"


def prepare(queues: Queues) -> None:
    """Let a run, b and c wait, d hold its key for a period, and e have ended."""
    for number, key in enumerate("ae", 1):
        queues.enqueue(keyed(number, key=key))
    queues.enqueue(keyed(3, key="d", within_us=3600 * SECOND_US))
    rows = {number_of(row): row for row in claim_all(queues)}
    assert end_of(queues, rows[2])
    assert end_of(queues, rows[3])
    for number, key in enumerate("bc", 4):
        queues.enqueue(keyed(number, key=key, due_us=NOW_US + number * SECOND_US))


def one_by_one(queues: Queues, calls: Sequence[EnqueueRequest]) -> tuple[list[Job], int]:
    """Enqueue calls by themselves up to a Duplicate; return the jobs and how many are left."""
    placed: list[Job] = []
    for call in calls:
        try:
            placed += queues.enqueue(call)
        except Duplicate:
            break
    return placed, len(calls) - len(placed)


def at_once(queues: Queues, calls: Sequence[EnqueueRequest]) -> tuple[list[Job], int]:
    """Enqueue calls in one write; return the jobs and how many are left."""
    try:
        return list(queues.enqueue_all(calls)), 0
    except Duplicate as error:
        return [], error.unsent


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("modes", [ANSWERING, MODES], ids=["answering", "all modes"])
@pytest.mark.parametrize("seed", range(8))
def test_calls_in_one_write_are_placed_as_one_by_one(
    kind: str, modes: tuple[Mode, ...], seed: int, tmp_path: Path, clock: HandClock
) -> None:
    # C12, C22
    random = Random(seed)
    for number in range(4):
        calls = [
            keyed(
                10 + place,
                key=random.choice(KEYS),
                mode=random.choice(modes),
                due_us=NOW_US + random.randrange(20) * SECOND_US,
            )
            for place in range(random.randrange(2, 12))
        ]
        answers = []
        for name, enqueue in (("single", one_by_one), ("bulk", at_once)):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            store = store_on(kind, folder, clock)
            queues = queues_on(store, clock)
            prepare(queues)
            placed, unsent = enqueue(queues, calls)
            rows = sorted((number_of(row), row.at_us) for row in queues.engine.jobs_of("default"))
            answers.append((unsent, rows, [number_of(job) for job in placed if not unsent]))
            store.close()
        assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_held_cost_no_write(kind: str, tmp_path: Path, clock: HandClock) -> None:
    # C22: those of others are taken together all the same
    store = store_on(kind, tmp_path, clock)
    written: list[int] = []
    together = store.together

    def counted(groups: Sequence[Group]) -> Sequence[bool]:
        written.append(sum(len(group.jobs) for group in groups))
        return together(groups)

    queues = queues_on(store, clock, KEEPING_NOTHING)
    for number in range(0, 100, 10):
        queues.enqueue(keyed(number, key=f"key {number}"))
    store.together = counted  # type: ignore[method-assign]
    calls = [keyed(number, key=f"key {number}", mode="existing") for number in range(100)]
    placed = queues.enqueue_all(calls)
    assert [number_of(job) for job in placed] == list(range(100))
    assert written == [100, 90]
    store.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("mode", ANSWERING)
@pytest.mark.parametrize("fault", Fault)
def test_wherever_an_answer_is_lost_each_key_has_one_job(
    kind: str, mode: Mode, fault: Fault, tmp_path: Path, clock: HandClock
) -> None:
    # C2, C12, C22
    calls = [
        keyed(10 + place, key=key, mode=mode, due_us=NOW_US + place)
        for place, key in enumerate("fbgacb")
    ]
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = store_on(kind, folder, clock)
        queues = queues_on(store, clock, KEEPING_NOTHING)
        prepare(queues)
        failing = FailingStore(store, {number: fault})
        broken = queues_on(failing, clock, KEEPING_NOTHING)
        stored = len(calls)
        try:
            broken.enqueue_all(calls)
        except StoreUnavailable as error:
            doubt = error.jobs if isinstance(error, EnqueueUnknown) else []
            stored -= error.unsent + len(doubt)
            assert stored >= 0
            queues.enqueue_again(doubt)
            queues.enqueue_all(calls[len(calls) - error.unsent :])
        holders = [queues.enqueue(keyed(99, key=key, mode="existing"))[0] for key in "fbgac"]
        assert 99 not in map(number_of, holders)
        numbers = alive(queues)
        assert len(numbers) == len(set("abcfg")) + (mode == "last")
        store.close()
        if failing.calls < number:
            return
    raise AssertionError("the call never comes to an end")
