"""Each law can fail: broken stores, and the law that notices."""

import inspect
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from dueline.store_tests.factory import KeepingFactory
from dueline.store_tests.laws import Laws
from dueline.stores.memory.store import MemoryStore
from tests.harness import broken_prefetch as ahead
from tests.harness import broken_stores as stores
from tests.harness import broken_streams as streams
from tests.harness.store_comparison import StoreComparison
from tests.mutants.table import tell

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

BY_MODEL = "test_any_life_is_the_models"

BROKEN: dict[type[MemoryStore], str] = {
    stores.AnyToken: "test_a_verdict_on_a_claim_that_was_taken_over_changes_nothing",
    stores.LateIsStale: "test_a_late_outcome_is_accepted_without_another_claim",
    stores.ExtendRenews: "test_an_extension_keeps_the_token",
    stores.ExtendForgetsTheStart: "test_a_job_once_started_stays_so_until_its_verdict",
    stores.FenceStays: "test_a_fence_grows_by_one_with_each_claim_and_never_falls",
    stores.EveryDeathIsACrash: "test_a_claim_that_died_before_the_start_counts_no_crash",
    stores.NoDeathIsACrash: "test_a_claim_that_died_on_a_started_job_counts_a_crash",
    stores.Early: "test_no_job_is_claimed_before_its_time",
    stores.Unordered: "test_a_lane_gives_its_jobs_by_time_and_then_by_id",
    stores.OwnPreference: "test_lanes_are_claimed_in_the_order_of_the_wants",
    stores.Greedy: "test_the_limit_counts_over_all_wants",
    stores.Generous: "test_a_claim_brings_at_most_what_each_want_says",
    stores.NextOmitsTheClaimed: "test_next_at_counts_what_is_claimed",
    stores.DeadInSilence: "test_a_claim_reports_the_rows_that_died_as_they_were",
    stores.ClaimLooksAtTheClock: "test_calls_about_jobs_and_streams_do_not_look_at_the_clock",
    stores.AddOverwrites: "test_adding_again_leaves_a_claim_as_it_is",
    stores.AddForgetsTheLane: "test_an_insert_lists_its_lane",
    stores.ListsUnderClosedBuckets: "test_a_late_insert_is_listed_above_the_closed_buckets",
    stores.ListsOnce: "test_an_insert_into_a_lane_that_was_forgotten_is_seen",
    stores.MoveNeverLists: "test_a_job_that_is_moved_forward_is_seen",
    stores.MoveListsByWhatWasRead: "test_a_job_given_back_after_its_claim_was_extended_is_seen",
    stores.CarryForgetsTheLane: "test_a_job_that_is_carried_is_seen_in_its_new_lane",
    stores.SweepsTheLiving: "test_a_sweep_never_unlists_a_lane_with_due_jobs",
    stores.SweepsTheFuture: "test_a_lane_of_future_jobs_is_listed_when_they_are_due",
    stores.SweepsNothing: "test_empty_lanes_of_closed_buckets_are_unlisted",
    stores.MarksGoBack: "test_marks_only_grow",
    stores.SharesOneList: "test_a_lane_is_listed_with_its_queue_and_shard_alone",
    stores.ExpectsNothing: "test_a_put_that_expects_a_version_holds_on_that_one",
    stores.CommitsInPart: "test_one_expectation_that_fails_fails_the_whole_commit",
    stores.NothingExpires: "test_an_expired_record_is_absent",
    stores.FullPagesOnly: "test_an_expired_record_is_absent",
    streams.AppendOverwrites: "test_a_row_that_is_appended_again_is_there_once",
    streams.AppendsBelowTheMark: "test_a_row_at_or_below_the_mark_is_stored_above_it",
    streams.ClosesBack: "test_a_mark_only_grows",
    streams.TailGoesPast: "test_a_reader_goes_up_to_an_instant",
    streams.ExpiresTheOpen: "test_what_has_expired_is_gone_and_the_rest_stays",
    streams.TailStartsAnew: "test_a_reader_goes_on_where_it_stopped",
    stores.GroupsInPart: "test_a_stale_verdict_fails_its_whole_group",
    stores.GroupsMixed: "test_what_is_added_again_before_its_end_is_gone_after_it",
    stores.GroupsDepend: "test_groups_are_independent_of_each_other",
    stores.TwoHolders: "test_threads_claim_each_job_once",
}

BROKEN_BESIDE: dict[type[MemoryStore], str] = {
    ahead.TakesTheDue: "test_a_claim_ahead_takes_what_waits_for_a_time_soon_to_come",
    ahead.LooksFurther: "test_a_claim_ahead_takes_what_waits_for_a_time_soon_to_come",
    ahead.TakesTheHeld: "test_what_is_held_is_not_claimed_before_its_lease_ends",
    ahead.TakesTheDecided: "test_what_is_held_is_not_claimed_before_its_lease_ends",
    ahead.LeasesFromNow: "test_a_lease_taken_ahead_counts_from_the_jobs_time",
    ahead.GreedyAhead: "test_a_row_is_claimed_ahead_once",
    stores.TellsOfOnePage: "test_every_lane_that_holds_a_row_is_listed",
    stores.TellsOfEmptyLanes: "test_a_lane_that_holds_no_row_any_more_is_not",
}
"""Noticed by a law alone: in random lives nothing is claimed ahead, and no census is held."""


ONLY_BY_A_LAW = (
    stores.ClaimLooksAtTheClock,  # random lives are led in the machine's past
    stores.MarksGoBack,  # their time never goes back
    stores.MoveListsByWhatWasRead,  # takes six steps in a row
    streams.AppendsBelowTheMark,  # they close no stream
    streams.ClosesBack,  # see above
    streams.TailGoesPast,  # see above
    streams.ExpiresTheOpen,  # see above
    streams.TailStartsAnew,  # they read streams to the end
)
"""What random lives do not notice in `EXAMPLES` of them."""

EXAMPLES = 400


def laws() -> Iterator[tuple[str, Callable[..., None]]]:
    """List the laws that need no process."""
    for name, law in inspect.getmembers(Laws(), inspect.ismethod):
        if name.startswith("test_"):
            yield name, law


def does_fail(law: Callable[..., None], make: type[MemoryStore]) -> bool:
    """Return whether a law does not hold for a store."""
    factory = KeepingFactory(make)
    given = {"factory": factory, "store": factory.open(factory.fresh())}
    try:
        law(**{name: given[name] for name in inspect.signature(law).parameters})
    except Exception:  # noqa: BLE001  a law may fail in any way
        return True
    return False


def test_every_law_holds_for_the_model() -> None:
    assert [name for name, law in laws() if does_fail(law, MemoryStore)] == []


@pytest.mark.parametrize("broken", [*BROKEN, *BROKEN_BESIDE])
def test_a_broken_store_is_noticed_by_the_law_that_it_breaks(broken: type[MemoryStore]) -> None:
    assert does_fail(dict(laws())[{**BROKEN, **BROKEN_BESIDE}[broken]], broken)


@pytest.mark.mutants
@pytest.mark.parametrize("broken", [broken for broken in BROKEN if broken not in ONLY_BY_A_LAW])
def test_a_broken_store_is_noticed_by_random_lives(
    broken: type[MemoryStore], record_property: Callable[[str, object], None]
) -> None:
    began_s = time.process_time()
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            lambda: StoreComparison(KeepingFactory(broken)),  # type: ignore[arg-type]  # as in ModelLaws
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                derandomize=True,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
    tell(
        record_property,
        f"    store {broken.__name__}",
        f"tests/harness/store_comparison.py: {BY_MODEL}; dueline.store_tests: {BROKEN[broken]}",
        time.process_time() - began_s,
    )
