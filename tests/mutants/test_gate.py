"""Each rule is needed: without it a test fails, and the table says which."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from dueline.stores.sqlite.wakeup import SocketWakeups
from tests.harness import late_landing
from tests.harness.cases import (
    cassandra_pieces,
    coordination_steps,
    core_ids,
    core_watermark,
    jobs_cancels,
    jobs_claim_races,
    jobs_outcome_first,
    jobs_quotas,
    jobs_races,
    jobs_unique,
    monitor_departed,
    monitor_departed_permits,
    monitor_expire,
    monitor_leftovers,
    monitor_monitor,
    monitor_vanish,
    schedules_changes,
    schedules_overlap,
    schedules_storing,
    schedules_succession,
    schedules_timetable,
    simulation_found,
    stores_cursor_cache,
    stores_lane_index,
    stores_late_landing,
    streams_parking,
    streams_pauses,
    wakeups_sockets,
    worker_buffer,
    worker_controls,
    worker_lapses,
    worker_limits,
    worker_progress,
    worker_rates,
    worker_requests,
    worker_roll,
    worker_settler,
    worker_steered,
    worker_unknown_tasks,
    workflows_advancing,
    workflows_births,
    workflows_undoing,
)
from tests.harness.clocks import HandClock
from tests.harness.failing_store import Fault
from tests.harness.stream_stage import Stage
from tests.harness.world import World, store_on, world_on
from tests.mutants import (
    births,
    cancels,
    claims,
    endings,
    flows,
    holds,
    intake,
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
)
from tests.mutants.table import tell
from tests.simulation import broken
from tests.unit.jobs import test_quotas
from tests.unit.worker import test_limits

BUDGET_S = 60
"""How much time of a processor the tests of one mutant may take until one of them notices."""


class Named(NamedTuple):
    """A test that has to notice, and what it is called with."""

    test: Callable[..., object]
    make: Callable[[], Sequence[object]] = tuple

    def __str__(self) -> str:
        """Name it as pytest does."""
        place = self.test.__module__.replace(".", "/")
        return f"{place}.py::{self.test.__name__}"


class Mutant(NamedTuple):
    """A broken rule: its id in docs/protocols.md, the patch, the test that notices."""

    rule: str
    breaks: Callable[[pytest.MonkeyPatch], None]
    noticed: Named


def stopped(name: str) -> Named:
    """Stop the worker of a life at each step."""
    test = jobs_outcome_first.a_job_has_one_end_wherever_its_worker_is_stopped
    return Named(test, lambda: (name,))


def on_memory() -> Sequence[object]:
    """Name the store, for tests that want no folder of it."""
    return ("memory", Path())


def on_sockets() -> Sequence[object]:
    """Wake the workers of a queue file."""
    return (SocketWakeups(Path(tempfile.mkdtemp(), "jobs.db"), clock=HandClock()),)


def on_steps() -> Sequence[object]:
    """Name the store without transactions, for tests that want no folder of it."""
    return ("steps", Path())


def on_a_board(test: Callable[[stores_lane_index.FakeBoard], None]) -> Named:
    """Give a test of the lane list its board."""
    return Named(test, lambda: (stores_lane_index.FakeBoard(),))


def on_a_lane(test: Callable[[stores_cursor_cache.FakeLane], None]) -> Named:
    """Give a test of the claimer's memory its lane."""
    return Named(test, lambda: (stores_cursor_cache.FakeLane(),))


def on_pieces() -> Sequence[object]:
    """Give a test a lane that is read in pieces, and its board."""
    return (lane := cassandra_pieces.Lane(), cassandra_pieces.board_on(lane))


def in_a_world(test: Callable[[World], None]) -> Named:
    """Give a test a world on the model without transactions."""
    return Named(test, lambda: (world_on("steps", Path()),))


def late(test: Callable[..., object], *, skips: int = 1) -> Named:
    """Give a test a store that gives a request up, which lands when so many steps were skipped."""

    def make() -> Sequence[object]:
        store = stores_late_landing.LateStore()
        return (store, lambda: store.armed.append(skips))

    return Named(test, make)


def on_a_stage(test: Callable[..., None], *more: object) -> Named:
    """Give a test of a stream its stage, and what else it takes."""

    def make() -> Sequence[object]:
        clock = HandClock()
        return (Stage(store_on("memory", Path(), clock), clock), *more)

    return Named(test, make)


def repeated_outcome() -> Sequence[object]:
    """Give a test a store that gives a request up, and then says nothing."""
    store = stores_late_landing.LateStore()
    return (store, lambda: store.armed.append(0), store.silence)


DEADLY = on_a_stage(streams_parking.an_event_that_kills_its_process_is_set_aside, 1, 4)
BRIEF = on_a_stage(streams_parking.a_member_that_only_holds_a_suspect_changes_nothing)
LATE_WORKER = Named(jobs_races.a_late_worker_and_the_next_claimer_make_one_end, lambda: ("done",))
LATE_ADD = Named(jobs_races.a_late_job_is_listed_whatever_a_sweep_does_meanwhile)
LATE_EXTENSION = Named(
    jobs_claim_races.a_late_extension_or_the_next_claimer_has_the_job_but_never_both
)
LATE_APPEND = Named(
    core_watermark.append_against_reader, lambda: (core_watermark.read_before_closing,)
)
SENT_AGAIN = Named(
    simulation_found.what_has_ended_is_not_run_again_when_it_is_sent_again,
    lambda: ((world := world_on("memory", Path())).queues, world.clock),
)
EACH_TIME_ONCE = Named(schedules_storing.each_time_is_one_job, lambda: ("steps", Fault.AFTER))
BROKEN_OFF = Named(schedules_storing.each_time_is_one_job, lambda: ("steps", Fault.BEFORE))
WITHDRAWN = Named(schedules_storing.a_change_is_seen_through, lambda: ("steps", Fault.AFTER))
REPLACED = Named(
    schedules_succession.the_one_before_is_asked_to_end, lambda: ("memory", Fault.BEFORE)
)
OLD_CLAIM = Named(
    worker_progress.an_old_claim_changes_nothing_once_a_later_one_began,
    lambda: ((world := world_on("memory", Path())).queues, world.clock),
)
SLOW_JOB = Named(
    worker_buffer.what_waits_behind_a_slow_job_is_released_in_time,
    lambda: ((world := world_on("memory", Path())).queues, world.clock),
)
REDRIVE = Named(jobs_races.a_dead_job_is_one_job_wherever_its_redrive_is_stopped)

MUTANTS = (
    Mutant("E1", births.a_repeated_add_has_a_position_of_its_own,
           Named(jobs_races.jobs_are_there_once_wherever_adding_them_is_stopped)),
    Mutant("E1", births.ids_of_time_and_machine,
           Named(core_ids.a_fork_never_makes_the_ids_of_its_parent)),
    Mutant("E3", lists.no_look, LATE_ADD),
    Mutant("E4", lists.a_second_row_where_the_bucket_was_closed, LATE_ADD),
    Mutant("S1", lists.a_late_read_of_closed,
           on_a_board(stores_lane_index.closed_is_read_before_any_lane_is_looked_at)),
    Mutant("S2", lists.a_sweep_reads_one_row,
           on_a_board(stores_lane_index.a_lane_is_read_to_its_end_before_it_is_listed_later)),
    Mutant("S2", lists.a_lane_in_pieces_is_read_once,
           Named(cassandra_pieces.a_row_that_moves_to_a_piece_that_was_read_is_found, on_pieces)),
    Mutant("S3", lists.a_lane_listed_later_is_not_read_again,
           on_a_board(stores_lane_index.a_lane_that_is_listed_later_is_read_once_more)),
    Mutant("S4", lists.one_mark, LATE_ADD),
    Mutant("B1", births.a_dropped_key_lives_again,
           Named(jobs_races.a_job_that_was_done_is_not_run_again_when_it_is_added_again)),
    Mutant("B1", broken.what_has_ended_is_added_again, SENT_AGAIN),
    Mutant("B1", births.a_unique_key_is_given_to_a_job_that_ended,
           Named(jobs_unique.ended_meanwhile, on_memory)),
    Mutant("B2", endings.the_key_of_a_retried_job_is_released, Named(
        worker_settler.retried_in_a_batch,
        lambda: ((world := world_on("memory", Path())).queues, world.clock))),
    Mutant("T3", wakeups.a_dropped_datagram_is_not_suspected,
           Named(wakeups_sockets.lost, on_sockets)),
    Mutant("O1", wakeups.one_thread_is_woken_of_several,
           Named(wakeups_sockets.all_threads, on_sockets)),
    Mutant("P1", claims.an_unfenced_claim,
           Named(jobs_claim_races.two_who_claim_hold_each_job_once)),
    Mutant("P1", claims.a_claim_by_the_token_alone, LATE_EXTENSION),
    Mutant("P1", claims.the_fence_is_not_raised, stopped("retried")),
    Mutant("P4", claims.a_claim_by_the_fence,
           Named(jobs_claim_races.a_job_is_claimed_or_carried_first_and_is_one_job_either_way)),
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
           on_a_lane(stores_cursor_cache.a_birth_that_lands_late_is_found_at_once_within_a_second)),
    Mutant("R3", lists.a_memory_never_grows_old,
           on_a_lane(stores_cursor_cache.a_birth_that_lands_later_is_found_when_the_memory_is_old)),
    Mutant("R5", lists.emptiness_from_the_claimers_memory,
           Named(jobs_races.a_sweep_sees_what_its_claimer_does_not_remember)),
    Mutant("R6", lists.the_mark_is_read_behind_the_list, Named(worker_roll.a_job_is_born)),
    Mutant("R7", lists.whatever_a_visit_said_holds, Named(worker_roll.a_job_comes_back)),
    Mutant("R7", lists.a_lane_that_is_listed_anew_is_known_still,
           Named(worker_roll.a_job_of_a_known_lane_comes_back)),
    Mutant("R8", lists.rows_of_producers_that_are_behind_are_not_read_again, on_a_lane(
        stores_cursor_cache.a_row_of_a_producer_that_is_behind_is_found_within_a_second)),
    Mutant("R9", lists.remembered_claims_are_not_read_again, on_a_lane(
        stores_cursor_cache.a_claim_that_another_process_released_is_found_within_a_second)),
    Mutant("U5", requests.a_claim_believes_a_refusal, late(late_landing.a_claim_has_its_rows)),
    Mutant("U5", requests.a_verdict_believes_a_refusal, late(late_landing.verdicts_beside_it_hold)),
    Mutant("U5", requests.a_commit_believes_a_refusal, late(late_landing.a_commit_holds)),
    Mutant("U5", requests.an_outcome_has_another_token_each_time,
           Named(late_landing.an_outcome_is_known_by_whoever_repeats_it, repeated_outcome)),
    Mutant("F1", core_watermark.no_look_after_append, Named(core_watermark.append_against_reader)),
    Mutant("F1", core_watermark.look_before_the_append,
           Named(core_watermark.append_against_reader)),
    Mutant("F2", core_watermark.mark_that_goes_back, Named(core_watermark.two_readers)),
    Mutant("F2", lists.a_mark_that_is_raised_after_the_reading, LATE_APPEND),
    Mutant("F6", maintenance.rows_go_whoever_came_when_that_was_said,
           Named(monitor_expire.monitor_against_a_new_group)),
    Mutant("F6", maintenance.a_group_begins_with_rows_that_were_said_to_go,
           Named(monitor_expire.monitor_against_a_seek)),
    Mutant("F7", trials.attempts_are_not_written_down, DEADLY),
    Mutant("F7", trials.what_ended_well_counts_as_a_death,
           on_a_stage(streams_parking.a_member_that_ends_in_good_order_is_no_death)),
    Mutant("F7", trials.whoever_leaves_takes_a_death_back, BRIEF),
    Mutant("F7", trials.whoever_leaves_says_that_all_is_well, BRIEF),
    Mutant("F7", trials.suspects_run_beside_others,
           on_a_stage(streams_parking.a_suspect_runs_with_nothing_beside_it_in_its_process)),
    Mutant("M1", maintenance.a_diary_that_anybody_writes,
           Named(monitor_monitor.a_stale_monitor_is_fenced_off_in_any_order)),
    Mutant("M1", maintenance.claims_are_freed_without_a_look_whether_their_worker_is_back,
           in_a_world(monitor_departed.a_worker_that_comes_back_meanwhile_keeps_its_claims)),
    Mutant("M3", maintenance.whoever_is_silent_is_dead, in_a_world(
        monitor_departed.a_worker_of_this_very_process_is_not_dead_when_it_was_silent)),
    Mutant("M3", maintenance.whoever_is_in_no_registry_is_dead, in_a_world(
        monitor_departed.no_claim_is_touched_of_somebody_who_was_never_on_the_roster)),
    Mutant("M3", maintenance.permits_are_given_back_without_a_look_whether_their_worker_is_back,
           in_a_world(monitor_departed_permits.a_worker_that_comes_back_meanwhile_keeps_its_permits)),
    Mutant("M4", maintenance.a_freed_claim_counts_no_crash, in_a_world(
        monitor_departed.what_a_dead_worker_held_is_due_long_before_its_lease_ends)),
    Mutant("Q1", maintenance.nobody_looks_whether_a_queue_still_stands,
           Named(monitor_vanish.producer_against_monitor)),
    Mutant("Q1", maintenance.nobody_looks_whether_a_queue_still_stands,
           Named(monitor_leftovers.producer_against_monitor)),
    Mutant("Q1", maintenance.a_queue_that_stands_has_all_its_shards,
           Named(monitor_leftovers.hurried_producer_against_monitor)),
    Mutant("Q1", maintenance.a_mark_does_not_concern_who_puts_a_job,
           Named(monitor_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_mark_counts_from_before_it_is_seen,
           Named(monitor_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_marked_queue_vanishes_whatever_is_in_it,
           Named(monitor_leftovers.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_queue_vanishes_without_a_mark,
           Named(monitor_vanish.producer_against_monitor)),
    Mutant("Q2", maintenance.a_mark_counts_from_before_it_is_seen,
           Named(monitor_vanish.hurried_producer_against_monitor)),
    Mutant("Q2", maintenance.a_marked_queue_vanishes_whatever_is_in_it,
           Named(monitor_vanish.hurried_producer_against_monitor)),
    Mutant("L2", holds.progress_is_written_over_a_later_claims, OLD_CLAIM),
    Mutant("L2", holds.a_later_claim_does_not_open_the_progress,
           Named(worker_progress.nor_where_nothing_was_reported_before,
                 lambda: ((world := world_on("memory", Path())).queues, world.clock))),
    Mutant("N5", holds.a_late_start_counts_as_of_its_claim,
           Named(worker_rates.a_rate_counts_starts_and_not_claims, on_memory)),
    Mutant("H1", holds.what_waits_behind_a_slow_job_is_kept, SLOW_JOB),
    Mutant("H1", holds.what_was_released_is_claimed_again_at_once, SLOW_JOB),
    Mutant("H2", holds.claims_last_for_ever,
           Named(worker_lapses.no_handler_is_called_once_the_claim_has_lapsed,
                 lambda: (HandClock(), "plain", 0))),
    Mutant("O1", operators.idle_workers_are_only_woken,
           Named(worker_requests.an_idle_worker_is_quieted_resumed_and_stopped,
                 worker_steered.in_memory)),
    Mutant("O2", operators.members_read_pauses_with_their_heartbeats,
           on_a_stage(streams_pauses.what_is_paused_waits_and_continues_where_it_stopped)),
    Mutant("O2", operators.resharding_ends_all_pauses,
           on_a_stage(streams_pauses.what_is_paused_waits_and_continues_where_it_stopped)),
    Mutant("P9", pauses.jobs_are_set_aside_for_ever,
           Named(worker_steered.wherever_one_is_stopped_the_job_runs_once)),
    Mutant("P9", pauses.a_mark_holds_wherever_the_row_is,
           Named(worker_steered.it_stays_where_it_was_put, worker_steered.in_memory)),
    Mutant("P9", pauses.who_knows_late_of_an_end_leaves_it_at_that,
           Named(worker_steered.it_brings_back, worker_steered.in_memory)),
    Mutant("P10", unknown_tasks.it_stays_where_it_is,
           Named(worker_unknown_tasks.it_is_not_claimed_again, worker_unknown_tasks.in_memory)),
    Mutant("P10", unknown_tasks.everybody_claims_from_the_lane_of_a_task,
           Named(worker_unknown_tasks.it_is_not_claimed_again, worker_unknown_tasks.in_memory)),
    Mutant("P10", unknown_tasks.nobody_claims_from_the_lane_of_a_task,
           Named(worker_unknown_tasks.a_worker_without_its_task_claims_it_once,
                 worker_unknown_tasks.in_memory)),
    Mutant("P11", cancels.the_claim_is_not_read_again,
           Named(jobs_cancels.a_request_reaches_the_claim_that_holds, jobs_cancels.in_memory)),
    Mutant("P11", cancels.a_failure_is_stored_without_reading_the_requests,
           Named(worker_controls.a_request_just_before_the_end_decides_what_it_is_called,
                 lambda: (*jobs_cancels.in_memory(), worker_controls.FAILED))),
    Mutant("P11", cancels.a_job_that_was_asked_to_stop_may_fail,
           Named(worker_controls.a_request_just_before_the_end_decides_what_it_is_called,
                 lambda: (*jobs_cancels.in_memory(),
                          worker_controls.FAILED._replace(retry=False)))),
    Mutant("P12", cancels.a_retry_withdraws_a_later_request,
           Named(jobs_cancels.a_retry_leaves_the_request_for_a_later_claim,
                 jobs_cancels.in_memory)),
    Mutant("P12", cancels.a_cancel_that_is_too_late_leaves_its_request,
           Named(jobs_cancels.a_request_that_came_too_late_ends_no_later_retry,
                 jobs_cancels.in_memory)),
    Mutant("N1", permits.permits_of_others_do_not_count,
           Named(worker_limits.what_one_limit_refuses_is_given_back_in_the_others)),
    Mutant("N2", permits.what_cannot_be_used_is_kept,
           Named(worker_limits.permits_that_a_claim_did_not_need_are_given_back)),
    Mutant("N3", permits.nobody_has_a_turn,
           Named(worker_limits.who_is_refused_is_next_and_more_urgent_jobs_before_it)),
    Mutant("N4", permits.a_claim_outlasts_its_permits,
           Named(worker_limits.a_claim_lasts_no_longer_than_its_permits, on_memory)),
    Mutant("N4", permits.an_extension_outlasts_its_permits,
           Named(test_limits.test_an_extension_ends_with_the_permits, on_memory)),
    Mutant("N4", permits.who_lost_a_permit_goes_on,
           Named(worker_limits.a_job_whose_permit_went_to_another_is_lost)),
    Mutant("N4", permits.a_lapsed_permit_is_held_again_though_another_has_it,
           Named(worker_limits.a_job_whose_permit_went_to_another_is_lost)),
    Mutant("N5", permits.a_meter_is_written_whatever_was_read,
           Named(worker_rates.two_who_looked_at_once_take_no_more_than_there_is)),
    Mutant("N5", permits.what_a_claim_did_not_bring_is_not_given_back,
           Named(worker_rates.what_a_claim_did_not_need_is_given_back)),
    Mutant("D1", intake.what_is_taken_is_written_whatever_was_read,
           in_a_world(jobs_quotas.two_who_look_at_once)),
    Mutant("D2", intake.who_counts_reads_afterwards_how_many_were_taken,
           in_a_world(jobs_quotas.what_came_meanwhile_is_counted)),
    Mutant("D2", intake.what_others_have_taken_ahead_is_forgotten, in_a_world(
        test_quotas.test_what_another_process_has_taken_ahead_is_not_given_twice)),
    Mutant("D3", intake.what_is_taken_ahead_is_used_whenever,
           in_a_world(jobs_quotas.what_was_taken_ahead_lapses)),
    Mutant("Z1", times.a_time_has_another_job_each_try, EACH_TIME_ONCE),
    Mutant("Z2", times.jobs_before_how_far_they_come, EACH_TIME_ONCE),
    Mutant("Z2", times.jobs_behind_how_far_they_come, BROKEN_OFF),
    Mutant("Z2", times.births_are_sent_again_for_ever,
           Named(schedules_storing.no_birth_is_sent_again_when_its_key_may_be_forgotten)),
    Mutant("Z3", times.what_is_to_be_withdrawn_is_not_written_down, WITHDRAWN),
    Mutant("Z4", times.a_decision_is_not_bound_to_its_record,
           Named(schedules_overlap.a_scheduler_against_another)),
    Mutant("Z4", times.a_time_is_decided_before_it_has_come,
           Named(
               schedules_overlap.one_lives_and_the_rest_is_told, lambda: ("memory", Fault.BEFORE))),
    Mutant("Z4", times.the_job_before_is_looked_for_once,
           Named(schedules_overlap.a_row_may_be_overlooked_once,
                 lambda: (world_on("steps", Path()),))),
    Mutant("Z5", times.who_asks_for_an_end_forgets_it_first, REPLACED),
    Mutant("Z5", times.the_next_one_comes_beside_the_one_it_replaces, REPLACED),
    Mutant("Z6", times.no_worker_advances_what_the_monitor_left,
           Named(schedules_timetable.without_any_monitor_no_time_is_decided_late,
                 lambda: (world_on("memory", Path()), "skip"))),
    Mutant("Z7", times.what_a_worker_has_counts_as_not_there,
           Named(schedules_changes.an_occurrence_is_one_job,
                 lambda: (world_on("memory", Path()), "arguments", "ahead", "allow"))),
    Mutant("Z7", times.cancelled_rows_go_before_the_schedule_says_so,
           Named(schedules_changes.a_change_that_breaks_off_leaves_one_job,
                 lambda: ("steps", Fault.BEFORE, "waiting"))),
    Mutant("W1", flows.the_layout_is_stored_after_the_steps,
           Named(workflows_births.born_once, lambda: ("steps", Path(), Fault.BEFORE))),
    Mutant("W1", flows.a_start_that_is_repeated_has_other_steps,
           Named(workflows_births.born_once, lambda: ("steps", Path(), Fault.AFTER))),
    Mutant("W2", flows.an_end_is_not_recorded,
           Named(workflows_advancing.moved_too_early, on_memory)),
    Mutant("W2", flows.an_end_is_recorded_after_the_row_went, Named(
        workflows_advancing.stopped_anywhere, on_steps)),
    Mutant("W3", flows.who_ends_a_step_looks_before_that_is_recorded,
           Named(workflows_advancing.two_end, on_memory)),
    Mutant("W3", flows.who_fills_a_place_reads_before_it_notes_that,
           Named(workflows_advancing.two_end_in_many_places, on_memory)),
    Mutant("W3", flows.whatever_was_tried_is_taken_for_ended,
           Named(workflows_advancing.tried_again, on_memory)),
    Mutant("W4", flows.a_claimed_step_does_not_ask,
           Named(workflows_advancing.moved_too_early, on_memory)),
    Mutant("W5", flows.who_parks_a_step_looks_no_more,
           Named(workflows_advancing.end_against_ask, on_memory)),
    Mutant("W6", flows.a_death_is_recorded_where_ends_are,
           Named(workflows_advancing.a_death_comes_late, on_steps)),
    Mutant("W7", flows.a_step_that_needs_others_is_born_without_a_time,
           Named(workflows_advancing.nobody_looks, on_memory)),
    Mutant("W7", flows.a_step_is_parked_for_ever,
           Named(workflows_advancing.parked_again_and_again, on_memory)),
    Mutant("W8", flows.a_group_of_which_a_part_failed_goes_on,
           Named(workflows_advancing.a_part_fails, on_memory)),
    Mutant("W8", flows.the_end_of_a_part_cancels_nothing,
           Named(workflows_advancing.cancelled_at_once, on_memory)),
    Mutant("W9", flows.what_undoes_is_never_needless,
           Named(workflows_undoing.undone_if_it_fails, on_memory)),
    *(Mutant("L", breaks, Named(test)) for breaks, test in coordination_steps.MUTANTS.items()),
)  # fmt: skip


def failure(named: Named) -> Exception | None:
    """Run a test; give what it failed with."""
    try:
        named.test(*named.make())
    except Exception as error:  # noqa: BLE001  a test may fail in any way
        return error
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_a_mutant_breaks_what_is_there(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed function makes a mutant useless, which `make mutants` finds late."""
    mutant.breaks(monkeypatch)


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_without_its_rule_a_test_fails(
    mutant: Mutant,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    mutant.breaks(monkeypatch)
    began_s = time.process_time()
    error = failure(mutant.noticed)
    took_s = time.process_time() - began_s
    assert error, f"nobody notices: {mutant.breaks.__name__}"
    assert not isinstance(error, TypeError | AttributeError | NameError), "the patch is wrong"
    assert took_s < BUDGET_S
    name = mutant.breaks.__name__.replace("_", " ")
    tell(record_property, f"{mutant.rule:<3} {name}", str(mutant.noticed), took_s)
