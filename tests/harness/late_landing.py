"""Requests that are given up and land before their repeats.

What the caller is answered, and what is stored, on any store without transactions.
"""

from collections.abc import Callable, Mapping

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job, State
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import NO_VERSION, Delete, Drop, Extend, Put, Store, Verdict
from dueline.jobs import results
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    put_in,
    rows_in,
    token_of,
)

END_US = NOW_US + LEASE_US
OTHER = lane_of(priority=7)

Late = Callable[[], None]
Silence = Callable[[], Callable[[], None]]

VERDICTS: Mapping[str, Callable[[Job], Verdict]] = {
    "drop": Drop,
    "extend": lambda job: Extend(job, END_US + 5),
    "start": lambda job: Extend(job, job.at_us, started=True),
    "move": lambda job: move(job, NOW_US + 1),
    "hop": lambda job: move(job, NOW_US + 500 * SECOND_US),
    "carry": lambda job: move(job, NOW_US + 1, to=OTHER),
    "outcome": lambda job: move(job, END_US + 5)._replace(outcome=b"done"),
}


class LateLandingLaws:
    """Laws of a store without transactions (rule U5).

    Fixtures of a subclass: `store`, which is empty; `late`, which has it give its next conditional
    write up: no read shows the write, which lands just before its repeat; `silence`, which has the
    store say nothing more, until what it returns is called.
    """

    def test_a_claim_has_its_rows(self, store: Store, late: Late) -> None:
        put_in(store, *new_jobs(3))
        late()
        claimed = claim(store, lane_of())
        assert ids_of(claimed.jobs) == [id_of(1), id_of(2), id_of(3)]
        assert rows_in(store, lane_of()) == list(claimed.jobs)
        assert {job.fence for job in claimed.jobs} == {1}

    def test_a_claim_of_another_is_not_taken_for_ones_own(self, store: Store, late: Late) -> None:
        put_in(store, *new_jobs(2))
        assert len(claim(store, lane_of(), token=9).jobs) == 2
        late()
        claimed = claim(store, lane_of(), now_us=END_US, token=2)
        assert {job.token for job in claimed.jobs} == {token_of(2)}
        assert {job.fence for job in claimed.jobs} == {2}
        assert claim(store, lane_of(), now_us=END_US, token=3).jobs == []

    @pytest.mark.parametrize("verdict", VERDICTS)
    def test_a_verdict_holds(self, store: Store, late: Late, verdict: str) -> None:
        """A verdict holds, once."""
        put_in(store, *new_jobs(2))
        job, stays = claim(store, lane_of()).jobs
        wanted = VERDICTS[verdict](job)
        late()
        assert list(store.settle([wanted])) == [True]
        told = [row for lane in (lane_of(), OTHER) for row in rows_in(store, lane)]
        assert stays in told
        row = next((row for row in told if row.id == job.id), None)
        assert (row is None) == (verdict == "drop")
        assert len(told) == 2 - (row is None)
        if isinstance(wanted, Extend):
            assert row is not None
            assert row.at_us == wanted.at_us
            assert (row.state == State.STARTED) == wanted.started
        elif not isinstance(wanted, Drop):
            assert row is not None
            assert (row.at_us, row.token, row.outcome) == (
                wanted.at_us,
                wanted.token,
                wanted.outcome,
            )

    def test_verdicts_beside_it_hold(self, store: Store, late: Late) -> None:
        """Of several verdicts that go out together each is told as it is."""
        put_in(store, *new_jobs(3))
        jobs = claim(store, lane_of()).jobs
        assert list(store.settle([move(jobs[1], NOW_US + 1, token=77)])) == [True]
        late()
        held = store.settle(
            [move(job, NOW_US + 2, token=80 + number) for number, job in enumerate(jobs)]
        )
        assert list(held) == [True, False, True]

    def test_a_commit_holds(self, store: Store, late: Late) -> None:
        """A commit holds, whatever it expects."""
        late()
        assert store.commit("p", [Put("a", token_of(1), b"1", NO_VERSION)])
        late()
        assert store.commit(
            "p", [Put("a", token_of(2), b"2", token_of(1)), Put("b", token_of(3), b"3", NO_VERSION)]
        )
        late()
        assert store.commit("p", [Delete("a", token_of(2))])
        assert [record.key for record in store.read("p", after=None, limit=9)] == ["b"]

    def test_an_outcome_is_known_by_whoever_repeats_it(
        self, store: Store, late: Late, silence: Silence
    ) -> None:
        """An outcome that is sent again after nobody could say what became of it holds.

        Args: silence: makes the store say nothing more, until what it returns is called.
        """
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        settings = QueueSettings(keep_us=10_000 * DAY_US)  # a node goes by its own clock
        end = finish_of(job, Outcome("done", NOW_US + 5, value="1"), None, settings)
        late()
        speak = silence()
        with pytest.raises(Unknown):
            finish(store, [Finished(job, end)])
        speak()
        assert finish(store, [Finished(job, end)]) == [True]
        assert rows_in(store, lane_of()) == []
        kept = results.read(store, job.id)
        assert kept is not None
        assert kept.value == "1"

    def test_another_outcome_under_the_same_claim_is_refused(self, store: Store) -> None:
        """Of two outcomes of one claim the first counts, and the second is told so."""
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        first, second = (
            move(job, END_US + 5, token=number)._replace(outcome=b"%d" % number)
            for number in (81, 82)
        )
        assert list(store.settle([first])) == [True]
        assert list(store.settle([second, first])) == [False, True]
