"""One living job for a key, wherever a producer is stopped."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dueline.core.attempt import Outcome
from dueline.core.call_options import Mode
from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, NotFound, Unknown
from dueline.core.store import Group, Store
from dueline.jobs.queue import Queues
from tests.harness.calls import claim_all
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.lives import Stopped
from tests.harness.queues import queues_on
from tests.harness.unique_jobs import alive, end_of, keyed
from tests.harness.world import store_on


def a_second_call_is_refused_and_names_the_first(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1))
    with pytest.raises(Duplicate) as caught:
        queues.enqueue(keyed(2))
    assert caught.value.job_id == first.id.hex()
    assert isinstance(caught.value, Conflict)
    queues.enqueue(keyed(3, key="another"))
    assert alive(queues) == [1, 3]


def a_second_call_is_answered_the_first_job(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1, mode="existing"))
    (second,) = queues.enqueue(keyed(2, mode="existing"))
    assert second.id == first.id
    assert alive(queues) == [1]


def a_second_call_takes_the_place_of_a_waiting_job(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1, mode="replace"))
    (second,) = queues.enqueue(keyed(2, mode="replace"))
    assert alive(queues) == [2]
    if queues.engine.catalog.settings("default").keep_us:
        assert queues.find(first.id).outcome == Outcome(
            "cancelled", NOW_US, error=f"Replaced by the job {second.id.hex()}."
        )
    else:
        with pytest.raises(NotFound):
            queues.find(first.id)
    with pytest.raises(Duplicate) as caught:
        queues.enqueue(keyed(3))
    assert caught.value.job_id == second.id.hex()


def the_earlier_due_of_both_is_kept(queues: Queues, first_s: int, second_s: int) -> None:
    # C12
    first_us, second_us = NOW_US + first_s * SECOND_US, NOW_US + second_s * SECOND_US
    (first,) = queues.enqueue(keyed(1, mode="earliest", due_us=first_us))
    (second,) = queues.enqueue(keyed(2, mode="earliest", due_us=second_us))
    assert second.id == first.id
    assert alive(queues) == [1]
    row = queues.find(first.id).row
    assert row is not None
    assert (row.at_us, row.due_us) == (min(first_us, second_us),) * 2


def of_many_calls_the_last_runs_once_at_the_first_time(
    queues: Queues, first_s: int, second_s: int
) -> None:
    # T13
    first_us, second_us = NOW_US + first_s * SECOND_US, NOW_US + second_s * SECOND_US
    queues.enqueue(keyed(1, mode="last", due_us=first_us))
    queues.enqueue(keyed(2, mode="last", due_us=NOW_US + 90 * SECOND_US))
    (last,) = queues.enqueue(keyed(3, mode="last", due_us=second_us))
    assert alive(queues) == [3]
    row = queues.find(last.id).row
    assert row is not None
    assert row.at_us == row.due_us == row.pos_us == min(first_us, second_us)
    queues.enqueue_again([last])
    assert alive(queues) == [3]


CHANGES = ("add", "settle", "commit", "together", "append")


class Watched:
    """A store, stopped for good before its n-th change, or right after it."""

    def __init__(self, store: Store, *, stop_at: int, after: bool) -> None:
        """Take the store, and where to stop."""
        self._store = store
        self._stop_at = stop_at
        self._after = after
        self.count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the store has)
        value = getattr(self._store, name)
        if name not in CHANGES:
            return value

        def change(*args: object) -> object:
            self.count += 1
            if self.count == self._stop_at and not self._after:
                raise Stopped
            answer = value(*args)
            if self.count == self._stop_at:
                raise Stopped
            return answer

        return change


def a_producer_is_stopped_at_any_call(
    queues: Queues, first: Mode, second: Mode, *, after: bool, held: bool
) -> None:
    # C12: the next one has its job, or is told of one that lives; never two, never none
    clock = queues.engine.catalog._clock
    for stop_at in range(1, 12):
        key = f"key {stop_at}"
        if held:
            queues.enqueue(keyed(10, key=key, due_us=NOW_US + 60 * SECOND_US))
        watched: Any = Watched(queues.engine.store, stop_at=stop_at, after=after)
        defaults = queues.engine.catalog.settings("default")
        stopped = queues_on(watched, clock, defaults)
        is_stopped = True
        try:
            with suppress(Duplicate):
                stopped.enqueue(keyed(1, key=key, mode=first))
            is_stopped = False
        except Stopped:
            pass
        try:
            (stands,) = queues.enqueue(keyed(2, key=key, mode=second))
            stands_id = stands.id.hex()
        except Duplicate as error:
            stands_id = error.job_id
        living = [row for row in queues.engine.jobs_of("default") if not row.outcome]
        assert [row.id.hex() for row in living] == [stands_id]
        queues.cancel(living[0].id)
        assert alive(queues) == []
        if not is_stopped:
            return
    raise AssertionError("the producer never comes to an end")


def ended_meanwhile(kind: str, folder: Path) -> None:
    """Land the first request of a call, and end its job, while the second is sent."""
    clock = HandClock()
    store = store_on(kind, folder, clock)
    queues = queues_on(store, clock)
    queues.engine.catalog.settings("default")
    apply = store.together
    held_back: list[Sequence[Group]] = []

    def give_up(groups: Sequence[Group]) -> Sequence[bool]:
        held_back.append(groups)
        raise Unknown("The store did not answer.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "together", give_up)
        with pytest.raises(EnqueueUnknown) as unknown:
            queues.enqueue(keyed(1))

    with pytest.MonkeyPatch.context() as patch:

        def land_first(groups: Sequence[Group]) -> Sequence[bool]:
            patch.undo()
            assert list(apply(held_back[0])) == [True]
            (row,) = claim_all(queues)
            assert end_of(queues, row)
            return apply(groups)

        patch.setattr(store, "together", land_first)
        queues.enqueue_again(unknown.value.jobs)
    assert alive(queues) == []
    store.close()
