"""Features on a real Cassandra, each by a test of the other stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dueline import Dueline
from dueline.api.raw_queue import RawQueue
from dueline.core.clock import Clock, SystemClock
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.queue import Queues
from tests.harness import world
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node
from tests.harness.ground import Ground
from tests.harness.queues import queues_on
from tests.harness.stepped_store import nothing
from tests.harness.workflow_tasks import with_tasks
from tests.unit.admin import test_bulk_runs, test_redrives
from tests.unit.jobs import (
    test_deadlines,
    test_lowlevel,
    test_mass,
    test_quotas,
    test_resharding,
    test_telling,
    test_tenant_weights,
    test_unique,
)
from tests.unit.jobs import test_pauses as test_job_pauses
from tests.unit.monitor import (
    test_departed,
    test_departed_permits,
    test_monitor,
    test_purge,
    test_retire,
    test_vanish,
)
from tests.unit.schedules import test_changes as test_schedule_changes
from tests.unit.schedules import test_overlap, test_storing, test_succession
from tests.unit.streams import (
    test_app,
    test_consumer,
    test_cuts,
    test_parking,
    test_pauses,
    test_replay,
)
from tests.unit.worker import (
    test_affinity,
    test_chunks,
    test_controls,
    test_limits,
    test_rates,
    test_rules,
    test_steered,
    test_turns,
)
from tests.unit.workflows import test_running

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession

expect_node()
pytestmark = pytest.mark.cassandra


class CassandraGround(Ground):
    """An empty keyspace; url: its address, in real time."""

    def __init__(self, session: CassandraSession, url: str, tmp_path: Path) -> None:
        """Take the keyspace's connections, and a folder that nobody else uses."""
        super().__init__("cassandra", tmp_path)
        self.url = url
        self._session = session

    def open_store(self, clock: Clock) -> Store:
        """Open the keyspace as another process does, in a time of the test's."""
        from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)

        return HandTimedStore(self._session, clock, nothing, "calls", nothing)

    @cached_property
    def store(self) -> Store:
        """The keyspace, in time that stands still."""
        return self.open_store(self.clock)

    @property
    def telling(self) -> Queues:
        """The engine, where the history is of everything."""
        return queues_on(self.store, self.clock, QueueSettings(history="all"))

    @property
    def once(self) -> Queues:
        """The engine, where jobs are delivered at most once."""
        self.queues.engine.catalog.configure("default", deliver="at_most_once")
        return self.queues

    @property
    def app(self) -> Dueline:
        """An application in real time, with tasks for workflows."""
        return with_tasks(Dueline(self.url))

    @cached_property
    def raw_app(self) -> Dueline:
        """An application in time that stands still; its queue "raw" is in order."""
        app = Dueline(self.url, clock=self.clock)
        app.queue("raw", shards=1)
        return app

    @property
    def raw(self) -> RawQueue:
        """Its queue."""
        return RawQueue(self.raw_app, "raw", lease=30)


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node(1) as keyspaces:
        yield keyspaces


@pytest.fixture
def ground(
    keyspaces: Keyspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CassandraGround:
    """Prepare the ground; what opens a store of its own there gets this one."""
    url, session = keyspaces.fresh_session()
    ground = CassandraGround(session, url, tmp_path)
    monkeypatch.setattr(world, "store_on", lambda _kind, _folder, clock: ground.open_store(clock))
    monkeypatch.setattr(
        test_resharding, "opener", lambda *_: lambda: ground.open_store(SystemClock())
    )
    monkeypatch.setattr(
        "dueline.api.connection.open_store", lambda _url, *, clock: ground.open_store(clock)
    )
    return ground


class Feature(NamedTuple):
    """A feature, the test of other stores that shows it, and arguments of the test."""

    name: str
    test: Callable[..., object]
    given: Mapping[str, object]


def feature(name: str, test: Callable[..., object], **given: object) -> Feature:
    """Name a feature and its test; what is not given are fixtures."""
    return Feature(name, test, given)


FEATURES = [
    feature("a member goes on where it stopped",
            test_consumer.test_a_member_reads_everything_once_and_goes_on_where_it_stopped),
    feature("H5, H6: a dead member's shards",
            test_consumer.test_a_dead_members_shards_are_taken_over_within_two_leases),
    feature("H5: a stale member", test_consumer.test_a_stale_members_commit_is_refused),
    feature("T14: an event that keeps failing",
            test_parking.test_an_event_without_a_key_is_set_aside_alone),
    feature("a group reads again", test_replay.test_a_group_handles_again_what_lies_behind_a_time),
    feature("H7: a stream is cut anew", test_cuts.test_new_shards_wait_until_the_old_ones_are_read),
    feature("O13: a group and a shard are paused",
            test_pauses.test_what_is_paused_waits_and_continues_where_it_stopped),
    feature("R6: a lease", test_app.test_a_lease_has_one_holder_at_a_time),
    feature("a sequence", test_app.test_sequences_of_one_name_give_each_number_once),
    feature("R6: one is elected", test_monitor.test_one_is_elected_and_does_each_chore_in_its_time),
    feature("R6: another takes over",
            test_monitor.test_when_it_is_killed_another_takes_over_within_its_lease_and_a_stand),
    feature("R6: a stale monitor",
            test_monitor.test_one_that_stood_still_past_its_lease_writes_nothing_more),
    feature("R7: what the dead held",
            test_departed.test_what_a_dead_worker_held_is_due_long_before_its_lease_ends),
    feature("O7: the dead go",
            test_purge.test_the_dead_go_when_they_are_older_than_they_are_kept_and_no_others),
    feature("C16: a queue vanishes", test_vanish.test_a_queue_that_nobody_uses_vanishes),
    feature("lanes are retired",
            test_retire.test_the_lanes_of_dead_jobs_are_retired_too_and_only_when_they_are_empty),
    feature("V2: all is told", test_telling.test_changes_are_told, queues=attrgetter("telling")),
    feature("H7: shards become more and fewer",
            test_resharding.test_no_job_is_lost_or_doubled_while_shards_become_more_and_fewer),
    feature("C19: a running job is cancelled",
            test_controls.test_a_running_job_whose_end_is_wished_for_runs_no_second_time,
            ending=test_controls.FAILED, state="cancelled"),
    feature("C18: progress",
            test_controls.test_the_last_report_is_written_and_there_for_the_next_attempt),
    feature("C8: at most once", test_rules.test_a_job_whose_worker_died_after_its_start_is_lost),
    feature("O6: all are cancelled", test_mass.test_what_runs_is_asked_to_stop),
    feature("O6: who is killed between",
            test_bulk_runs.test_all_that_match_are_come_to_and_nothing_is_left_of_it),
    feature("R17: a paced redrive",
            test_redrives.test_a_redrive_keeps_its_rate_and_is_stopped_and_resumed),
    feature("A3: by hand",
            test_lowlevel.test_what_was_put_in_is_claimed_and_acked, app=attrgetter("raw_app")),
    feature("H10: own shards", test_affinity.test_workers_claim_from_shards_of_their_own),
    feature("H10: shards of the dead",
            test_affinity.test_the_shards_of_a_dead_worker_wait_two_seconds_and_then_for_nobody),
    feature("W1: a group", test_running.test_a_group_gives_a_list_in_the_order_of_its_parts),
    feature("W2: a pipeline", test_running.test_a_pipeline_passes_on_what_its_parts_give),
    feature("W2: what fails is skipped",
            test_running.test_a_pipeline_can_skip_what_fails_or_see_to_it),
    feature("W3: nesting", test_running.test_parts_nest_at_any_depth),
    feature("W4, W7: a graph",
            test_running.test_each_step_of_a_graph_runs_once_after_those_that_it_names),
    feature("W5: failures in a group", test_running.test_a_group_says_what_becomes_of_failures),
    feature("W5, W11: a dead step",
            test_running.test_what_needs_a_dead_step_waits_until_that_is_retried),
    feature("W8: a signal",
            test_running.test_a_wait_for_a_signal_takes_no_slot_and_gives_its_value),
    feature("W8: no signal", test_running.test_a_wait_expires_without_a_signal),
    feature("W7, W11: a branch is cancelled", test_running.test_a_branch_is_cancelled),
    feature("W11: a cancelled step", test_running.test_a_cancelled_step_ends_what_needs_it),
    feature("W6: a batch", test_chunks.test_a_full_chunk_runs_at_once_and_the_rest_after_its_time),
    feature("W6: each of a batch ends in its own way",
            test_chunks.test_each_job_of_a_chunk_ends_in_its_own_way),
    feature("C12: reject", test_unique.test_a_second_call_is_refused_and_names_the_first),
    feature("C12: existing", test_unique.test_a_second_call_is_answered_the_first_job),
    feature("C12: replace", test_unique.test_a_second_call_takes_the_place_of_a_waiting_job),
    feature("C12: earliest",
            test_unique.test_the_earlier_due_of_both_is_kept, first_s=60, second_s=30),
    feature("T13: last",
            test_unique.test_of_many_calls_the_last_runs_once_at_the_first_time,
            first_s=60, second_s=30),
    feature("C12: who is stopped",
            test_unique.a_producer_is_stopped_at_any_call,
            first="replace", second="last", after=True, held=True),
    feature("F10: a tenant pauses",
            test_job_pauses.test_a_paused_tenant_waits_and_the_others_go_on),
    feature("F10: a task pauses", test_steered.test_it_comes_back_by_itself_and_is_set_aside_again),
    feature("F1: permits of the dead",
            test_limits.test_who_dies_gives_back_what_it_held_by_its_lease),
    feature("F1: permits of the dead are released",
            test_departed_permits.test_what_another_changes_meanwhile_stays_changed),
    feature("F1, F7: one at once for a key",
            test_limits.test_a_job_whose_caller_knew_of_no_limit_gets_its_tasks),
    feature("F4: priority under limits",
            test_limits.test_no_less_urgent_job_passes_one_with_the_same_limit),
    feature("F5: a rate", test_rates.test_workers_share_a_rate),
    feature("F6: throttled", test_rates.test_a_handler_closes_its_limits_for_a_while, kind="rate"),
    feature("F8: weights",
            test_tenant_weights.test_a_worker_claims_by_weight_while_all_have_jobs, limit=8),
    feature("T8: a job each time", test_storing.test_each_time_is_one_job_with_what_it_asks_for),
    feature("T9: what was missed", test_storing.test_what_was_missed_runs_late_and_once),
    feature("T8: a change just before its time",
            test_schedule_changes.test_an_occurrence_is_one_job_whatever_changes_just_before_it,
            change="two versions", had="claimed"),
    feature("T8: a change just after its job",
            test_schedule_changes.test_an_occurrence_is_one_job_whatever_changes_just_before_it,
            change="arguments", had="done"),
    feature("T8: removed and set just before its time",
            test_schedule_changes.an_occurrence_is_one_job,
            change="remove and set", had="claimed", overlap="skip"),
    feature("T9: what is left out",
            test_overlap.test_skipped_occurrences_are_reported_in_a_full_history),
    feature("T5: aging",
            test_turns.test_under_endless_urgent_load_the_lowest_job_starts_within_its_bound,
            per_second=1),
    feature("T10: overlap",
            test_overlap.test_while_a_job_waits_or_runs_or_is_tried_again_no_other_comes),
    feature("T10: one waits",
            test_succession.test_one_time_waits_until_the_job_before_it_has_ended),
    feature("T10: the one before is ended",
            test_succession.test_a_job_that_runs_is_asked_to_end_and_only_then_the_next_one_comes),
    feature("F9: depth",
        test_quotas.test_no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run),
    feature("F9: rate", test_quotas.test_a_rate_tells_when_there_is_room),
    feature("T6: deadlines", test_deadlines.test_a_worker_starts_them_in_that_order),
    feature("F9: tenants",
            test_quotas.test_a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_a_feature_is_there_as_on_other_stores(ground: CassandraGround, feature: Feature) -> None:
    given = {
        name: value(ground) if isinstance(value, attrgetter) else value
        for name, value in feature.given.items()
    }
    ground.call(feature.test, **given)
