"""Features on a real Cassandra, each by a test of the other stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dueline import Dueline
from dueline.api.raw_queue import RawQueue
from dueline.core.clock import Clock, SystemClock
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.queue import Queues
from tests.harness import world
from tests.harness.cases import (
    admin_bulk_runs,
    admin_redrives,
    jobs_deadlines,
    jobs_lowlevel,
    jobs_mass,
    jobs_pauses,
    jobs_quotas,
    jobs_resharding,
    jobs_telling,
    jobs_tenant_weights,
    jobs_unique,
    monitor_departed,
    monitor_monitor,
    monitor_purge,
    monitor_retire,
    monitor_vanish,
    schedules_changes,
    schedules_overlap,
    schedules_storing,
    schedules_succession,
    streams_app,
    streams_consumer,
    streams_cuts,
    streams_parking,
    streams_pauses,
    streams_replay,
    web_http_api,
    web_pages,
    worker_affinity,
    worker_chunks,
    worker_controls,
    worker_limits,
    worker_lines,
    worker_rates,
    worker_requests,
    worker_rules,
    worker_steered,
    worker_turns,
    workflows_running,
)
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.stepped_store import nothing
from tests.harness.stream_stage import Stage
from tests.harness.workflow_tasks import with_tasks
from tests.harness.world import World

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession

expect_node()
pytestmark = pytest.mark.cassandra


class Ground:
    """An empty keyspace, and what tests stand on; url: its address, in real time."""

    def __init__(self, session: CassandraSession, url: str, folder: Path) -> None:
        """Take the keyspace's connections, and a folder that nobody else uses."""
        self.url = url
        self.folder = folder
        self.clock = HandClock()
        self._session = session

    def open_store(self, clock: Clock) -> Store:
        """Open the keyspace as another process does, in a time of the test's."""
        from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)

        return HandTimedStore(self._session, clock, nothing, "calls", nothing)

    def engine(self, settings: QueueSettings | None = None) -> Queues:
        """Make an engine."""
        defaults = settings or QueueSettings()
        return queues_on(self.store, self.clock, defaults)

    @cached_property
    def store(self) -> Store:
        """The keyspace, in time that stands still."""
        return self.open_store(self.clock)

    @cached_property
    def queues(self) -> Queues:
        """The engine."""
        return self.engine()

    @cached_property
    def telling(self) -> Queues:
        """The engine, where the history is of everything."""
        return self.engine(QueueSettings(history="all"))

    @cached_property
    def once(self) -> Queues:
        """The engine, where jobs are delivered at most once."""
        self.queues.engine.catalog.configure("default", deliver="at_most_once")
        return self.queues

    @cached_property
    def world(self) -> World:
        """An engine, and workers that only say that they live."""
        return World(self.store, self.clock)

    @cached_property
    def stage(self) -> Stage:
        """Members of a group that reads a stream."""
        return Stage(self.store, self.clock)

    @cached_property
    def app(self) -> Dueline:
        """An application in time that stands still; its queue "raw" is in order."""
        app = Dueline(self.url, clock=self.clock)
        app.queue("raw", shards=1)
        return app


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node(1) as keyspaces:
        yield keyspaces


@pytest.fixture
def ground(keyspaces: Keyspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """Prepare the ground; what opens a store of its own there gets this one."""
    url, session = keyspaces.fresh_session()
    ground = Ground(session, url, tmp_path)
    monkeypatch.setattr(world, "store_on", lambda _kind, _folder, clock: ground.open_store(clock))
    monkeypatch.setattr(
        jobs_resharding, "opener", lambda *_: lambda: ground.open_store(SystemClock())
    )
    monkeypatch.setattr(
        "dueline.api.connection.open_store", lambda _url, *, clock: ground.open_store(clock)
    )
    return ground


KIND = "cassandra"

FEATURES: dict[str, Callable[[Ground], object]] = {
    # streams, checkpoints, leases, sequences
    "a member goes on where it stopped": lambda on: (
        streams_consumer.a_member_reads_everything_once_and_goes_on_where_it_stopped(on.stage)
    ),
    "H5, H6: a dead member's shards": lambda on: (
        streams_consumer.a_dead_members_shards_are_taken_over_within_two_leases(on.stage)
    ),
    "H5: a stale member": lambda on: streams_consumer.a_stale_members_commit_is_refused(on.stage),
    "T14: an event that keeps failing": lambda on: (
        streams_parking.an_event_without_a_key_is_set_aside_alone(on.stage)
    ),
    "a group reads again": lambda on: streams_replay.a_group_handles_again_what_lies_behind_a_time(
        on.stage
    ),
    "H7: a stream is cut anew": lambda on: streams_cuts.new_shards_wait_until_the_old_ones_are_read(
        on.stage
    ),
    "O13: a group and a shard are paused": lambda on: (
        streams_pauses.what_is_paused_waits_and_continues_where_it_stopped(on.stage)
    ),
    "R6: a lease": lambda on: streams_app.a_lease_has_one_holder_at_a_time(Dueline(on.url)),
    "a sequence": lambda on: streams_app.sequences_of_one_name_give_each_number_once(
        Dueline(on.url)
    ),
    # the monitor and its chores
    "R6: one is elected": lambda on: monitor_monitor.one_is_elected_and_does_each_chore_in_its_time(
        on.world
    ),
    "R6: another takes over": lambda on: (
        monitor_monitor.when_it_is_killed_another_takes_over_within_its_lease_and_a_stand(on.world)
    ),
    "R6: a stale monitor": lambda on: (
        monitor_monitor.one_that_stood_still_past_its_lease_writes_nothing_more(on.world)
    ),
    "R7: what the dead held": lambda on: (
        monitor_departed.what_a_dead_worker_held_is_due_long_before_its_lease_ends(on.world)
    ),
    "O7: the dead go": lambda on: (
        monitor_purge.the_dead_go_when_they_are_older_than_they_are_kept_and_no_others(on.world)
    ),
    "C16: a queue vanishes": lambda on: monitor_vanish.a_queue_that_nobody_uses_vanishes(on.world),
    "lanes are retired": lambda on: (
        monitor_retire.the_lanes_of_dead_jobs_are_retired_too_and_only_when_they_are_empty(on.world)
    ),
    "O13: a worker is steered": lambda on: worker_requests.a_worker_is_steered(on.url),
    "V11: the log of an attempt": lambda on: worker_lines.the_log_of_a_failed_attempt_is_kept(
        on.url
    ),
    # what happens to jobs
    "V2: all is told": lambda on: jobs_telling.changes_are_told(on.telling, on.clock),
    "H7: shards become more and fewer": lambda on: (
        jobs_resharding.no_job_is_lost_or_doubled_while_shards_become_more_and_fewer(
            KIND, on.folder
        )
    ),
    "C19: a running job is cancelled": lambda on: (
        worker_controls.a_running_job_whose_end_is_wished_for_runs_no_second_time(
            on.queues, on.clock, worker_controls.FAILED, "cancelled"
        )
    ),
    "C18: progress": lambda on: (
        worker_controls.the_last_report_is_written_and_there_for_the_next_attempt(
            on.queues, on.clock
        )
    ),
    "C8: at most once": lambda on: worker_rules.a_job_whose_worker_died_after_its_start_is_lost(
        on.once, on.clock
    ),
    "O6: all are cancelled": lambda on: jobs_mass.what_runs_is_asked_to_stop(on.world),
    "O6: who is killed between": lambda on: (
        admin_bulk_runs.all_that_match_are_come_to_and_nothing_is_left_of_it(on.world)
    ),
    "R17: a paced redrive": lambda on: (
        admin_redrives.a_redrive_keeps_its_rate_and_is_stopped_and_resumed(on.world)
    ),
    "A3: by hand": lambda on: jobs_lowlevel.what_was_put_in_is_claimed_and_acked(
        on.app, RawQueue(on.app, "raw", lease=30)
    ),
    "H10: own shards": lambda on: worker_affinity.workers_claim_from_shards_of_their_own(on.world),
    "H10: shards of the dead": lambda on: (
        worker_affinity.the_shards_of_a_dead_worker_wait_two_seconds_and_then_for_nobody(on.world)
    ),
    # workflows
    "W1: a group": lambda on: workflows_running.a_group_gives_a_list_in_the_order_of_its_parts(
        with_tasks(Dueline(on.url))
    ),
    "W2: a pipeline": lambda on: workflows_running.a_pipeline_passes_on_what_its_parts_give(
        with_tasks(Dueline(on.url))
    ),
    "W2: what fails is skipped": lambda on: (
        workflows_running.a_pipeline_can_skip_what_fails_or_see_to_it(with_tasks(Dueline(on.url)))
    ),
    "W3: nesting": lambda on: workflows_running.parts_nest_at_any_depth(
        with_tasks(Dueline(on.url))
    ),
    "W4, W7: a graph": lambda on: (
        workflows_running.each_step_of_a_graph_runs_once_after_those_that_it_names(
            with_tasks(Dueline(on.url))
        )
    ),
    "W5: failures in a group": lambda on: workflows_running.a_group_says_what_becomes_of_failures(
        with_tasks(Dueline(on.url))
    ),
    "W5, W11: a dead step": lambda on: (
        workflows_running.what_needs_a_dead_step_waits_until_that_is_retried(
            with_tasks(Dueline(on.url))
        )
    ),
    "W8: a signal": lambda on: (
        workflows_running.a_wait_for_a_signal_takes_no_slot_and_gives_its_value(
            with_tasks(Dueline(on.url))
        )
    ),
    "W8: no signal": lambda on: workflows_running.nobody_signals_in_time(
        with_tasks(Dueline(on.url))
    ),
    "W7, W11: a branch is cancelled": lambda on: workflows_running.a_branch_is_cancelled(
        with_tasks(Dueline(on.url))
    ),
    "W11: a cancelled step": lambda on: workflows_running.a_cancelled_step_ends_what_needs_it(
        with_tasks(Dueline(on.url))
    ),
    "W6: a batch": lambda on: worker_chunks.a_full_chunk_runs_at_once_and_the_rest_after_its_time(
        on.queues, on.clock
    ),
    "W6: each of a batch ends in its own way": lambda on: (
        worker_chunks.each_job_of_a_chunk_ends_in_its_own_way(on.queues, on.clock)
    ),
    # unique
    "C12: reject": lambda on: jobs_unique.a_second_call_is_refused_and_names_the_first(on.queues),
    "C12: existing": lambda on: jobs_unique.a_second_call_is_answered_the_first_job(on.queues),
    "C12: replace": lambda on: jobs_unique.a_second_call_takes_the_place_of_a_waiting_job(
        on.queues
    ),
    "C12: earliest": lambda on: jobs_unique.the_earlier_due_of_both_is_kept(on.queues, 60, 30),
    "T13: last": lambda on: jobs_unique.of_many_calls_the_last_runs_once_at_the_first_time(
        on.queues, 60, 30
    ),
    "C12: who is stopped": lambda on: jobs_unique.a_producer_is_stopped_at_any_call(
        on.queues, "replace", "last", after=True, held=True
    ),
    # flow
    "F10: a tenant pauses": lambda on: jobs_pauses.a_paused_tenant_waits_and_the_others_go_on(
        on.url, on.folder
    ),
    "F10: a task pauses": lambda on: worker_steered.it_comes_back_by_itself_and_is_set_aside_again(
        on.queues, on.clock
    ),
    "F1: permits of the dead": lambda on: (
        worker_limits.who_dies_gives_back_what_it_held_by_its_lease(KIND, on.folder)
    ),
    "F1, F7: one at once for a key": lambda on: (
        worker_limits.a_job_whose_caller_knew_of_no_limit_gets_its_tasks(on.url, on.folder)
    ),
    "F2: all or none": lambda _: worker_limits.what_one_limit_refuses_is_given_back_in_the_others(),
    "F3: in turn": lambda _: worker_limits.who_is_refused_is_next_and_more_urgent_jobs_before_it(),
    "F4: priority under limits": lambda on: (
        worker_limits.no_less_urgent_job_passes_one_with_the_same_limit(on.url, on.folder)
    ),
    "F5: a rate": lambda on: worker_rates.workers_share_a_rate(KIND, on.folder),
    "F6: throttled": lambda on: worker_rates.a_handler_closes_its_limits_for_a_while(
        on.url, "rate"
    ),
    "F8: weights": lambda on: jobs_tenant_weights.a_worker_claims_by_weight_while_all_have_jobs(
        KIND, 8, on.folder
    ),
    "T8: a job each time": lambda on: schedules_storing.each_time_is_one_job_with_what_it_asks_for(
        on.world
    ),
    "T9: what was missed": lambda on: schedules_storing.what_was_missed_runs_late_and_once(
        on.world
    ),
    "T8: a change just before its time": lambda on: schedules_changes.an_occurrence_is_one_job(
        on.world, "two versions", "claimed", "allow"
    ),
    "T8: a change just after its job": lambda on: schedules_changes.an_occurrence_is_one_job(
        on.world, "arguments", "done", "allow"
    ),
    "T8: removed and set just before its time": lambda on: (
        schedules_changes.an_occurrence_is_one_job(on.world, "remove and set", "claimed", "skip")
    ),
    "T9: what is left out": lambda on: (
        schedules_overlap.what_is_left_out_is_told_where_the_history_is_of_everything(on.world)
    ),
    "T5: aging": lambda on: (
        worker_turns.under_endless_urgent_load_the_lowest_job_starts_within_its_bound(
            on.queues, on.clock, 1
        )
    ),
    "T10: overlap": lambda on: (
        schedules_overlap.while_a_job_waits_or_runs_or_is_tried_again_no_other_comes(on.world)
    ),
    "T10: one waits": lambda on: (
        schedules_succession.one_time_waits_until_the_job_before_it_has_ended(on.world)
    ),
    "T10: the one before is ended": lambda on: (
        schedules_succession.a_job_that_runs_is_asked_to_end_and_only_then_the_next_one_comes(
            on.world
        )
    ),
    "F9: depth": lambda on: (
        jobs_quotas.no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run(
            on.world
        )
    ),
    "F9: rate": lambda on: jobs_quotas.a_rate_tells_when_there_is_room(on.world),
    "T6: deadlines": lambda on: jobs_deadlines.a_worker_starts_them_in_that_order(Dueline(on.url)),
    "F9: tenants": lambda on: (
        jobs_quotas.a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues(on.world)
    ),
}


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_a_feature_is_there_as_on_other_stores(
    ground: Ground, feature: Callable[[Ground], object]
) -> None:
    feature(ground)


@pytest.mark.long
def test_every_page_of_the_dashboard_shows_and_steers_a_store(ground: Ground) -> None:
    web_pages.every_page_shows_and_steers_a_store(ground.url)


def test_programs_enqueue_and_run_jobs_over_http(ground: Ground) -> None:
    web_http_api.programs_enqueue_and_run_jobs(ground.url)
