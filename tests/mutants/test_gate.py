"""Each rule is needed: without it a test fails, and the table says which."""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from dueline import Dueline
from dueline.core.clock import SECOND_US
from dueline.limits.rate import Rate
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.wakeup import SocketWakeups
from dueline.testing import bench
from tests.harness.clocks import HandClock
from tests.harness.durable_stage import DurableStage
from tests.harness.failing_store import Fault
from tests.harness.queues import queues_on
from tests.integration.wakeups import test_sockets
from tests.mutants import (
    batches,
    births,
    cancels,
    claims,
    decided,
    endings,
    flows,
    functions,
    holds,
    intake,
    leases,
    lists,
    maintenance,
    operators,
    pauses,
    permits,
    requests,
    times,
    trials,
    unknown_tasks,
    wakeups,
    watermarks,
)
from tests.mutants.gate import Mutant, Named, by, each_needed
from tests.simulation import broken, test_found
from tests.stores import (
    test_cursor_cache,
    test_durable_log,
    test_durable_removal,
    test_durable_sleepers,
    test_lane_index,
    test_late_landing,
)
from tests.stores.cassandra import test_pieces
from tests.unit.batches import test_ends
from tests.unit.coordination import test_steps
from tests.unit.core import test_ids, test_watermark
from tests.unit.durable import test_bad_input, test_generations, test_replays
from tests.unit.jobs import (
    test_batch_slices,
    test_changes,
    test_claim_races,
    test_decisions,
    test_outcome_first,
    test_quotas,
    test_races,
    test_unique,
)
from tests.unit.monitor import (
    test_departed,
    test_departed_permits,
    test_expire,
    test_leftovers,
    test_monitor,
    test_vanish,
)
from tests.unit.schedules import test_changes as test_schedule_changes
from tests.unit.schedules import test_overlap, test_storing, test_succession, test_timetable
from tests.unit.streams import test_parking, test_pauses
from tests.unit.worker import (
    test_buffer,
    test_claimer,
    test_controls,
    test_costs,
    test_lapses,
    test_limits,
    test_progress,
    test_rates,
    test_requests,
    test_roll,
    test_settler,
    test_steered,
    test_unknown_tasks,
)
from tests.unit.workflows import test_advancing, test_births, test_undoing


def in_a_scene(test: Callable[..., object], **given: object) -> Named:
    """Name a test of decisions, in a scene of its own."""
    return Named(test, given=lambda: {"scene": test_decisions.Scene(), **given})


def on_steps(test: Callable[..., object], **given: object) -> Named:
    """Name a test, on the store without transactions."""
    return Named(test, "steps", lambda: given)


def stopped(name: str) -> Named:
    """Stop the worker of a run at each step."""
    test = test_outcome_first.test_a_job_has_one_end_wherever_its_worker_is_stopped
    return by(test, name=name)


def on_bench(test: Callable[..., object], **given: object) -> Named:
    """Name a test of durable functions, with an application on a test clock."""

    def made() -> Mapping[str, object]:
        return {"bench": bench.on_bench(Dueline()).__enter__(), **given}

    return Named(test, given=made)


def on_an_engine() -> Mapping[str, object]:
    """Give a test of the log its engine."""
    clock = HandClock()
    return {"engine": queues_on(MemoryStore(clock), clock).engine}


def on_a_stage() -> Mapping[str, object]:
    """Give a test of the removal its stage."""
    clock = HandClock()
    store = MemoryStore(clock)
    return {"stage": DurableStage(store, clock, test_durable_removal.declare)}


def on_a_rate() -> Mapping[str, object]:
    """Give a test of costs a limit that returns its tokens by time."""
    return {"most": Rate(5, SECOND_US)}


def on_sockets() -> Mapping[str, object]:
    """Wake the workers of a queue file."""
    path = Path(tempfile.mkdtemp(), "jobs.db")
    return {"wakeups": SocketWakeups(path, clock=HandClock())}


def on_a_board(test: Callable[..., None]) -> Named:
    """Give a test of the lane list its board."""
    return Named(test, given=lambda: {"board": test_lane_index.FakeBoard()})


def on_a_lane(test: Callable[..., None]) -> Named:
    """Give a test of the claimer's memory its lane."""
    return Named(test, given=lambda: {"lane": test_cursor_cache.FakeLane()})


def on_pieces() -> Mapping[str, object]:
    """Give a test a lane that is read in pieces, and its board."""
    return {"lane": (lane := test_pieces.Lane()), "board": test_pieces.board_on(lane)}


def late(test: Callable[..., object], *, skips: int = 1) -> Named:
    """Give a test a store that gives a request up, which lands when so many steps were skipped."""

    def given() -> Mapping[str, object]:
        store = test_late_landing.LateStore()
        late = partial(store.armed.append, skips)
        return {"store": store, "late": late, "silence": store.silence}

    return Named(test, given=given)


LATE_LAWS = test_late_landing.TestMemory()
DEADLY = by(test_parking.test_an_event_that_kills_its_process_is_dead_lettered, batch=1, deaths=4)
BRIEF = by(test_parking.test_a_member_that_only_holds_a_suspect_changes_nothing)
LATE_WORKER = by(test_races.test_a_late_worker_and_the_next_claimer_make_one_end, state="done")
LATE_ADD = by(test_races.test_a_late_job_is_listed_despite_concurrent_cleanup)
LATE_EXTENSION = by(
    test_claim_races.test_a_late_extension_or_the_next_claimer_has_the_job_but_never_both
)
LATE_APPEND = by(test_watermark.append_against_reader, reading=test_watermark.read_before_closing)
SENT_AGAIN = by(test_found.test_what_has_ended_is_not_run_again_when_it_is_sent_again)
EACH_TIME_ONCE = on_steps(
    test_storing.test_whichever_call_fails_each_time_is_one_job, fault=Fault.AFTER
)
BROKEN_OFF = on_steps(
    test_storing.test_whichever_call_fails_each_time_is_one_job, fault=Fault.BEFORE
)
WITHDRAWN = on_steps(
    test_storing.test_a_change_that_breaks_off_is_seen_through_or_has_changed_nothing,
    fault=Fault.AFTER,
)
REPLACED = by(
    test_succession.test_whichever_call_fails_the_job_before_is_asked_to_end_and_the_next_one_comes,
    fault=Fault.BEFORE,
)
OLD_CLAIM = by(test_progress.test_an_old_claim_changes_nothing_once_a_later_one_began)
LEFT_SLICE = by(test_batch_slices.test_only_what_is_missing_is_inserted)
SLOW_JOB = by(test_buffer.test_what_waits_behind_a_slow_job_is_released_in_time)
REDRIVE = by(test_races.test_a_dead_job_is_one_job_wherever_its_redrive_is_stopped)

MUTANTS = (
    Mutant("E1", births.a_repeated_add_has_a_position_of_its_own,
           by(test_races.test_jobs_are_there_once_wherever_adding_them_is_stopped)),
    Mutant("E1", births.ids_of_time_and_machine,
           by(test_ids.test_a_fork_never_makes_the_ids_of_its_parent)),
    Mutant("E3", lists.no_look, LATE_ADD),
    Mutant("E4", lists.a_second_row_where_the_bucket_was_closed, LATE_ADD),
    Mutant("S1", lists.a_late_read_of_closed,
           on_a_board(test_lane_index.test_closed_is_read_before_any_lane_is_looked_at)),
    Mutant("S2", lists.a_sweep_reads_one_row,
           on_a_board(test_lane_index.test_a_lane_is_read_to_its_end_before_it_is_listed_later)),
    Mutant("S2", lists.a_lane_in_pieces_is_read_once,
           Named(
               test_pieces.test_a_row_that_moves_to_a_piece_that_was_read_is_found,
               given=on_pieces)),
    Mutant("S3", lists.a_lane_listed_later_is_not_read_again,
           on_a_board(test_lane_index.test_a_lane_that_is_listed_later_is_read_once_more)),
    Mutant("S4", lists.one_mark, LATE_ADD),
    Mutant("B1", births.a_dropped_key_lives_again,
           by(test_races.test_a_job_that_was_done_is_not_run_again_when_it_is_added_again)),
    Mutant("B1", broken.what_has_ended_is_added_again, SENT_AGAIN),
    Mutant("B1", births.a_unique_key_is_given_to_a_job_that_ended,
           by(test_unique.test_a_job_that_ended_meanwhile_is_not_stored_again)),
    Mutant("B2", endings.the_key_of_a_retried_job_is_released,
           by(test_settler.test_a_retried_job_of_a_batch_keeps_its_unique_key)),
    Mutant("C1", decided.consequences_come_before_the_decision, in_a_scene(
        test_decisions.test_nothing_is_sent_before_the_decision_and_the_record_is_closed_last)),
    Mutant("C3", decided.a_record_is_closed_before_the_rest_is_stored,
           by(test_decisions.test_a_process_that_stops_anywhere_leaves_nothing_or_all_of_it)),
    Mutant("C3", decided.any_version_of_a_record_is_closed,
           by(test_decisions.test_two_complete_one_record_in_any_order)),
    Mutant("C5", decided.an_insert_is_repeated_for_ever, in_a_scene(
        test_decisions.test_a_day_after_the_decision_its_record_is_closed_without_the_rest)),
    Mutant("C7", decided.decided_counts_as_stored, in_a_scene(
        test_decisions.test_a_failure_after_the_first_decision_says_that_some_may_be_stored,
        in_order=False)),
    Mutant("T3", wakeups.a_dropped_datagram_is_not_suspected,
           Named(
               test_sockets.test_where_one_may_be_lost_the_lane_lists_are_read, given=on_sockets)),
    Mutant("O1", wakeups.one_thread_is_woken_of_several,
           Named(test_sockets.test_several_threads_wait_and_all_are_woken, given=on_sockets)),
    Mutant("P1", claims.an_unfenced_claim,
           by(test_claim_races.test_two_claimers_hold_each_job_once)),
    Mutant("P1", claims.a_claim_by_the_token_alone, LATE_EXTENSION),
    Mutant("P1", claims.the_fence_is_not_raised, stopped("retried")),
    Mutant("P4", claims.a_claim_by_the_fence,
           by(test_claim_races.test_a_job_is_claimed_or_carried_first_and_is_one_job_either_way)),
    Mutant("P2", claims.an_unconditional_verdict, LATE_WORKER),
    Mutant("P2", claims.a_verdict_is_never_refused, LATE_WORKER),
    Mutant("P2", claims.an_extension_that_revives_a_lapsed_claim, LATE_EXTENSION),
    Mutant("P2", endings.any_token_decides, LATE_WORKER),
    Mutant("P5", endings.effects_before_the_outcome, stopped("done")),
    Mutant("P5", endings.drop_before_the_effects, stopped("done")),
    Mutant("P5", endings.drop_before_the_repeated_effects, stopped("done")),
    Mutant("P5", endings.handler_runs_though_there_is_an_outcome, stopped("done")),
    Mutant("P5", endings.outcome_hops, stopped("dead")),
    Mutant("P5", endings.dead_row_is_told_from_the_repeater, stopped("dead")),
    Mutant("P5", endings.history_is_told_twice, stopped("poison for children")),
    Mutant("K1", births.carried_without_a_stub, REDRIVE),
    Mutant("K3", births.stub_goes_before_its_target_comes, REDRIVE),
    Mutant("R2", lists.the_cursor_passes_late_births,
           on_a_lane(
               test_cursor_cache.test_a_birth_that_lands_late_is_found_at_once_within_a_second)),
    Mutant("R3", lists.a_memory_never_grows_old,
           on_a_lane(
               test_cursor_cache.test_a_birth_that_lands_later_is_found_when_the_memory_is_old)),
    Mutant("R5", lists.emptiness_from_the_claimers_memory,
           by(test_races.test_a_sweep_sees_what_its_claimer_does_not_remember)),
    Mutant("R6", lists.the_mark_is_read_behind_the_list,
           by(test_roll.test_nothing_is_passed_over, race=test_roll.a_job_is_born, switches_max=3)),
    Mutant("R7", lists.whatever_a_visit_said_holds,
           by(
               test_roll.test_nothing_is_passed_over,
               race=test_roll.a_job_comes_back, switches_max=3)),
    Mutant("R7", lists.a_lane_that_is_listed_anew_is_known_still,
           by(
               test_roll.test_nothing_is_passed_over,
               race=test_roll.a_job_of_a_known_lane_comes_back, switches_max=3)),
    Mutant("R8", lists.rows_of_producers_that_are_behind_are_not_read_again, on_a_lane(
        test_cursor_cache.test_a_row_of_a_producer_that_is_behind_is_found_within_a_second)),
    Mutant("R9", lists.remembered_claims_are_not_read_again, on_a_lane(
        test_cursor_cache.test_a_claim_that_another_process_released_is_found_within_a_second)),
    Mutant("U5", requests.a_claim_believes_a_refusal,
           late(LATE_LAWS.test_a_claim_has_its_rows)),
    Mutant("U5", requests.a_verdict_believes_a_refusal,
           late(LATE_LAWS.test_verdicts_beside_it_hold)),
    Mutant("U5", requests.a_commit_believes_a_refusal, late(LATE_LAWS.test_a_commit_holds)),
    Mutant("U5", requests.an_outcome_has_another_token_each_time,
           late(LATE_LAWS.test_an_outcome_is_known_by_whoever_repeats_it, skips=0)),
    Mutant("F1", watermarks.no_look_after_append,
           by(test_watermark.test_a_producer_and_a_reader_in_any_order)),
    Mutant("F1", watermarks.look_before_the_append,
           by(test_watermark.test_a_producer_and_a_reader_in_any_order)),
    Mutant("F2", watermarks.mark_that_goes_back,
           by(test_watermark.test_two_readers_raise_the_mark_in_any_order)),
    Mutant("F2", lists.a_mark_that_is_raised_after_the_reading, LATE_APPEND),
    Mutant("F6", maintenance.rows_go_whoever_came_when_that_was_said,
           by(
               test_expire.test_no_group_has_a_gap_in_any_order,
               race=test_expire.monitor_against_a_new_group)),
    Mutant("F6", maintenance.a_group_begins_with_rows_that_were_said_to_go,
           by(
               test_expire.test_no_group_has_a_gap_in_any_order,
               race=test_expire.monitor_against_a_seek)),
    Mutant("F7", trials.attempts_are_not_written_down, DEADLY),
    Mutant("F7", trials.what_ended_well_counts_as_a_death,
           by(test_parking.test_a_member_that_ends_in_good_order_is_no_death)),
    Mutant("F7", trials.whoever_leaves_takes_a_death_back, BRIEF),
    Mutant("F7", trials.whoever_leaves_says_that_all_is_well, BRIEF),
    Mutant("F7", trials.suspects_run_beside_others,
           by(test_parking.test_a_suspect_runs_with_nothing_beside_it_in_its_process)),
    Mutant("M1", maintenance.a_diary_that_anybody_writes,
           by(test_monitor.test_a_stale_monitor_is_fenced_off_in_any_order)),
    Mutant("M1", maintenance.claims_are_freed_without_a_look_whether_their_worker_is_back,
           on_steps(test_departed.test_a_worker_that_comes_back_meanwhile_keeps_its_claims)),
    Mutant("M3", maintenance.whoever_is_silent_is_dead,
           on_steps(
               test_departed.test_a_worker_of_this_very_process_is_not_dead_when_it_was_silent)),
    Mutant("M3", maintenance.whoever_is_in_no_registry_is_dead,
           on_steps(
               test_departed.test_no_claim_is_touched_of_somebody_who_was_never_on_the_roster)),
    Mutant("M3", maintenance.permits_are_given_back_without_a_look_whether_their_worker_is_back,
           on_steps(
               test_departed_permits.test_a_worker_that_comes_back_meanwhile_keeps_its_permits)),
    Mutant("M4", maintenance.a_freed_claim_counts_no_crash,
           on_steps(test_departed.test_what_a_dead_worker_held_is_due_long_before_its_lease_ends)),
    Mutant("Q1", maintenance.nobody_looks_whether_a_queue_still_stands,
           by(
               test_vanish.test_no_job_is_in_a_queue_that_is_not_known,
               race=test_vanish.producer_against_monitor)),
    Mutant("Q1", maintenance.nobody_looks_whether_a_queue_still_stands,
           by(
               test_leftovers.test_no_job_is_in_a_shard_that_is_not_read,
               race=test_leftovers.producer_against_monitor)),
    Mutant("Q1", maintenance.a_queue_that_stands_has_all_its_shards,
           by(
               test_leftovers.test_no_job_is_in_a_shard_that_is_not_read,
               race=test_leftovers.hurried_producer_against_monitor)),
    Mutant("Q1", maintenance.a_mark_does_not_concern_who_puts_a_job,
           by(
               test_leftovers.test_no_job_is_in_a_shard_that_is_not_read,
               race=test_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_mark_counts_from_before_it_is_seen,
           by(
               test_leftovers.test_no_job_is_in_a_shard_that_is_not_read,
               race=test_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_marked_queue_vanishes_whatever_is_in_it,
           by(
               test_leftovers.test_no_job_is_in_a_shard_that_is_not_read,
               race=test_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_queue_vanishes_without_a_mark,
           by(
               test_vanish.test_no_job_is_in_a_queue_that_is_not_known,
               race=test_vanish.producer_against_monitor)),
    Mutant("Q2", maintenance.a_mark_counts_from_before_it_is_seen,
           by(
               test_vanish.test_no_job_is_in_a_queue_that_is_not_known,
               race=test_vanish.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_marked_queue_vanishes_whatever_is_in_it,
           by(
               test_vanish.test_no_job_is_in_a_queue_that_is_not_known,
               race=test_vanish.hurried_producer_against_monitor)),
    Mutant("L2", holds.progress_is_written_over_a_later_claims, OLD_CLAIM),
    Mutant("L2", holds.a_later_claim_does_not_open_the_progress,
           by(test_progress.test_nor_where_nothing_was_reported_before)),
    Mutant("N5", holds.a_late_start_counts_as_of_its_claim,
           by(test_rates.test_a_rate_counts_starts_and_not_claims)),
    Mutant("H1", holds.what_waits_behind_a_slow_job_is_kept, SLOW_JOB),
    Mutant("H1", holds.what_was_released_is_claimed_again_at_once, SLOW_JOB),
    Mutant("H2", holds.claims_last_for_ever,
           by(
               test_lapses.test_no_handler_is_called_once_the_claim_has_lapsed,
               task="plain", keep=0)),
    Mutant("O1", operators.idle_workers_are_only_woken,
           on_steps(test_requests.test_an_idle_worker_is_quieted_resumed_and_stopped)),
    Mutant("O2", operators.members_read_pauses_with_their_heartbeats,
           by(test_pauses.test_what_is_paused_waits_and_continues_where_it_stopped)),
    Mutant("O2", operators.resharding_ends_all_pauses,
           by(test_pauses.test_what_is_paused_waits_and_continues_where_it_stopped)),
    Mutant("P9", pauses.jobs_are_set_aside_for_ever,
           by(test_steered.test_wherever_a_pause_is_stopped_the_job_runs_once)),
    Mutant("P9", pauses.a_mark_holds_wherever_the_row_is,
           on_steps(test_steered.test_a_job_that_was_put_off_meanwhile_stays_where_it_was_put)),
    Mutant("P9", pauses.who_knows_late_of_an_end_leaves_it_at_that,
           on_steps(
               test_steered.test_a_worker_that_knows_late_of_the_end_brings_back_what_it_set_aside)),
    Mutant("P10", unknown_tasks.it_stays_where_it_is,
           on_steps(test_unknown_tasks.test_it_is_not_claimed_again)),
    Mutant("P10", unknown_tasks.everybody_claims_from_the_lane_of_a_task,
           on_steps(test_unknown_tasks.test_it_is_not_claimed_again)),
    Mutant("P10", unknown_tasks.nobody_claims_from_the_lane_of_a_task,
           on_steps(test_unknown_tasks.test_a_worker_without_its_task_claims_it_once)),
    Mutant("P11", cancels.the_claim_is_not_read_again,
           by(test_changes.test_a_request_reaches_the_claim_that_holds)),
    Mutant("P11", cancels.a_failure_is_stored_without_reading_the_requests,
           by(
               test_controls.test_a_request_just_before_the_end_decides_what_it_is_called,
               ending=test_controls.FAILED)),
    Mutant("P11", cancels.a_job_that_was_asked_to_stop_may_fail,
           by(
               test_controls.test_a_request_just_before_the_end_decides_what_it_is_called,
               ending=test_controls.FAILED._replace(retry=False))),
    Mutant("P12", cancels.a_retry_withdraws_a_later_request,
           by(test_changes.test_a_retry_leaves_the_request_for_a_later_claim)),
    Mutant("P12", cancels.a_cancel_that_is_too_late_leaves_its_request,
           by(test_changes.test_a_request_that_came_too_late_ends_no_later_retry)),
    Mutant("N1", permits.permits_of_others_do_not_count,
           by(test_limits.test_permits_of_other_limits_are_released_when_one_refuses)),
    Mutant("N2", permits.what_cannot_be_used_is_kept,
           by(test_limits.test_permits_that_a_claim_did_not_need_are_given_back)),
    Mutant("N3", permits.nobody_has_a_turn,
           by(test_limits.test_a_refused_worker_is_next_after_more_urgent_jobs)),
    Mutant("N4", permits.a_claim_outlasts_its_permits,
           by(test_limits.test_a_claim_lasts_no_longer_than_its_permits)),
    Mutant("N4", permits.an_extension_outlasts_its_permits,
           by(test_limits.test_an_extension_ends_with_the_permits)),
    Mutant("N4", permits.who_lost_a_permit_goes_on,
           by(test_limits.test_a_job_whose_permit_went_to_another_is_lost)),
    Mutant("N4", permits.a_lapsed_permit_is_held_again_though_another_has_it,
           by(test_limits.test_a_job_whose_permit_went_to_another_is_lost)),
    Mutant("N9", permits.who_has_no_job_left_keeps_its_place,
           Named(test_costs.test_a_worker_gives_up_the_place_of_a_job_that_another_one_took,
                 given=on_a_rate)),
    Mutant("N5", permits.a_meter_is_written_whatever_was_read,
           by(test_rates.test_two_who_looked_at_once_take_no_more_than_there_is)),
    Mutant("N5", permits.what_a_claim_did_not_bring_is_not_given_back,
           by(test_rates.test_what_a_claim_did_not_need_is_given_back)),
    Mutant("N6", intake.what_is_taken_is_written_whatever_was_read,
           on_steps(test_quotas.test_two_who_looked_at_once_take_no_more_than_there_is)),
    Mutant("N7", intake.who_counts_reads_afterwards_how_many_were_taken,
           on_steps(test_quotas.test_who_counts_leaves_nothing_out_that_came_meanwhile)),
    Mutant("N7", intake.what_others_have_taken_ahead_is_forgotten,
           on_steps(test_quotas.test_what_another_process_has_taken_ahead_is_not_given_twice)),
    Mutant("N8", intake.what_is_taken_ahead_is_used_whenever,
           on_steps(test_quotas.test_what_was_taken_ahead_lapses)),
    Mutant("Z1", times.a_time_has_another_job_each_try, EACH_TIME_ONCE),
    Mutant("Z2", times.jobs_before_how_far_they_come, EACH_TIME_ONCE),
    Mutant("Z2", times.jobs_behind_how_far_they_come, BROKEN_OFF),
    Mutant("Z2", times.births_are_sent_again_for_ever,
           by(test_storing.test_no_birth_is_sent_again_when_its_key_may_be_forgotten)),
    Mutant("Z3", times.what_is_to_be_withdrawn_is_not_written_down, WITHDRAWN),
    Mutant("Z4", times.a_decision_is_not_bound_to_its_record,
           by(test_overlap.test_in_whatever_order_two_see_to_it_one_job_lives)),
    Mutant("Z4", times.a_time_is_decided_before_it_has_come,
           by(
               test_overlap.test_whichever_call_fails_one_lives_and_what_is_left_out_is_told_once,
               fault=Fault.BEFORE)),
    Mutant("Z4", times.the_job_before_is_looked_for_once,
           on_steps(test_overlap.test_a_row_that_is_overlooked_once_is_there)),
    Mutant("Z5", times.who_asks_for_an_end_forgets_it_first, REPLACED),
    Mutant("Z5", times.the_next_one_comes_beside_the_one_it_replaces, REPLACED),
    Mutant("Z6", times.no_worker_advances_what_the_monitor_left,
           by(test_timetable.test_without_any_monitor_no_occurrence_is_late, overlap="skip")),
    Mutant("Z7", times.what_a_worker_has_counts_as_not_there,
           by(
               test_schedule_changes.test_an_occurrence_is_one_job_whatever_changes_just_before_it,
               change="arguments", had="ahead")),
    Mutant("Z7", times.cancelled_rows_go_before_the_schedule_says_so,
           on_steps(
               test_schedule_changes.test_a_change_that_breaks_off_leaves_one_job,
               fault=Fault.BEFORE, had="waiting")),
    Mutant("W1", flows.the_layout_is_stored_after_the_steps,
           on_steps(
               test_births.test_a_workflow_is_born_once_however_often_it_is_sent,
               fault=Fault.BEFORE)),
    Mutant("W1", flows.a_start_that_is_repeated_has_other_steps,
           on_steps(
               test_births.test_a_workflow_is_born_once_however_often_it_is_sent,
               fault=Fault.AFTER)),
    Mutant("W2", flows.an_end_is_not_recorded,
           by(test_advancing.test_a_step_that_is_moved_too_early_does_no_harm)),
    Mutant("W2", flows.an_end_is_recorded_after_the_row_went,
           on_steps(test_advancing.test_a_workflow_comes_to_its_end_wherever_a_worker_is_stopped)),
    Mutant("W3", flows.who_ends_a_step_looks_before_that_is_recorded,
           by(test_advancing.test_the_last_two_steps_let_the_next_go_on_in_every_order)),
    Mutant("W3", flows.who_fills_a_place_reads_before_it_notes_that,
           by(test_advancing.test_those_of_a_group_that_lies_in_many_places_do_so_too)),
    Mutant("W3", flows.whatever_was_tried_is_taken_for_ended,
           by(test_advancing.test_what_is_to_be_tried_again_has_not_ended)),
    Mutant("W4", flows.a_claimed_step_does_not_ask,
           by(test_advancing.test_a_step_that_is_moved_too_early_does_no_harm)),
    Mutant("W5", flows.who_parks_a_step_looks_no_more,
           by(test_advancing.test_a_step_that_is_parked_while_its_last_need_ends_goes_on)),
    Mutant("W6", flows.a_death_is_recorded_where_ends_are,
           on_steps(test_advancing.test_a_death_that_is_recorded_late_changes_no_end)),
    Mutant("W7", flows.a_step_that_needs_others_is_born_without_a_time,
           by(test_advancing.test_a_step_that_nobody_moves_looks_for_itself_after_a_minute)),
    Mutant("W7", flows.a_step_is_parked_for_ever,
           by(test_advancing.test_a_step_looks_less_often_the_longer_it_waits)),
    Mutant("W8", flows.a_group_of_which_a_part_failed_goes_on,
           by(
               test_advancing.test_a_group_whose_part_fails_is_cancelled_wherever_a_worker_is_stopped)),
    Mutant("W8", flows.the_end_of_a_part_cancels_nothing,
           by(test_advancing.test_the_others_of_a_group_are_cancelled_while_no_worker_is_free)),
    Mutant("W9", flows.what_undoes_is_never_needless,
           by(test_undoing.test_what_undoes_runs_where_something_failed_and_nowhere_else)),
    Mutant("I1", batches.a_slice_replaces_any_head, by(test_batch_slices.test_one_slice_is_stored)),
    Mutant("I2", batches.a_slice_that_was_left_stays_so, LEFT_SLICE),
    Mutant("I2", batches.what_has_ended_is_inserted_again, LEFT_SLICE),
    Mutant("I2", batches.keys_count_early, by(test_batch_slices.test_only_whole_slices_count)),
    Mutant("I3", batches.ends_are_named_by_their_kind, by(test_ends.test_no_end_is_overwritten)),
    Mutant("I3", batches.a_whole_record_is_deleted, by(test_ends.test_a_whole_record_stays)),
    Mutant("I3", batches.ends_are_no_effects, by(test_batch_slices.test_ends_are_effects)),
    Mutant("I4", batches.a_retry_is_not_noted, by(test_batch_slices.test_a_retry_has_not_ended)),
    Mutant("I4", batches.the_first_end_counts, by(test_ends.test_the_last_end_of_a_job_counts)),
    Mutant("D5", functions.compensations_that_a_replay_misses_are_left_out,
           on_bench(test_replays.test_an_end_whose_compensations_are_not_all_reached_stops)),
    Mutant("D7", functions.what_a_wait_noted_is_not_compared,
           on_bench(test_replays.test_notes_of_a_position_are_compared, was="wait")),
    Mutant("D7", functions.a_function_may_return_before_its_log_ends,
           on_bench(test_bad_input.test_code_that_ends_before_its_log_is_stopped)),
    Mutant("D9", functions.a_sleep_is_over_by_the_clock_alone,
           on_bench(test_replays.test_a_sleep_before_a_later_record_is_over)),
    Mutant("D10", functions.a_suspension_that_is_caught_is_forgotten,
           on_bench(test_bad_input.test_a_suspension_is_not_swallowed, catch="bare")),
    Mutant("D11", functions.records_do_not_name_the_opened_log,
           Named(
               test_durable_log.test_records_of_a_claim_are_refused_once_a_later_one_has_read_the_log,
               given=on_an_engine)),
    Mutant("D13", functions.a_retry_keeps_what_failed,
           on_bench(test_generations.test_a_retry_repeats_only_what_failed, how="step")),
    Mutant("D14", functions.a_row_does_not_say_that_its_function_has_begun,
           on_bench(test_bad_input.test_a_begun_function_without_its_log_is_stopped)),
    Mutant("D15", functions.a_function_is_not_listed,
           Named(test_durable_removal.test_a_function_is_listed_before_its_first_record,
                 given=on_a_stage)),
    Mutant("D16", functions.a_parked_function_stays_in_its_lane,
           by(test_durable_sleepers.test_a_function_goes_on_beside_a_backlog,
              kind="memory", tmp_path=Path())),
    Mutant("D16", functions.functions_that_have_begun_have_no_turn,
           by(test_claimer.test_functions_that_have_begun_and_new_jobs_take_turns,
              limit=3, weights=())),
    Mutant("L", leases.lease_that_revives, by(test_steps.test_a_lease_that_has_lapsed_is_lost)),
    Mutant("L", leases.beat_without_its_version,
           by(test_steps.test_a_late_beat_and_a_takeover_in_any_order)),
    Mutant("L", leases.epoch_that_stays, by(test_steps.test_each_grant_has_an_epoch_of_its_own)),
    Mutant("L", leases.checkpoint_without_its_epoch,
           by(test_steps.test_a_stale_holder_and_the_next_one_in_any_order)),
    Mutant("L", leases.checkpoint_that_expects_nothing,
           by(test_steps.test_a_stale_holder_and_the_next_one_in_any_order)),
    Mutant("L", leases.block_that_expects_nothing, by(test_steps.test_two_count_in_any_order)),
    Mutant("L", leases.lease_that_counts_from_its_answer,
           by(test_steps.test_a_lease_is_held_from_before_its_request_was_sent)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
