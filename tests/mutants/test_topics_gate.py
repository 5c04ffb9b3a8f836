"""The rules of topics are needed: without each a test fails."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.harness.clocks import HandClock
from tests.harness.topic_shop import TopicShop
from tests.harness.world import store_on
from tests.mutants import topics
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_topics
from tests.unit.streams import test_topics as test_names


def a_shop() -> Mapping[str, object]:
    """Give a test a shop in memory."""
    clock = HandClock()
    return {"shop": TopicShop(store_on("memory", Path(tempfile.gettempdir()), clock), clock)}


STOPPED: Final = Named(test_topics.test_a_worker_that_is_stopped_anywhere_loses_and_doubles_nothing)

MUTANTS: Final = (
    Mutant("F10", topics.publishers_register_nobody,
           Named(test_names.test_events_wait_for_subscribers_that_the_publisher_knows,
                 given=a_shop)),
    Mutant("F10", topics.subscribers_read_all_topics,
           Named(test_names.test_each_subscriber_gets_each_event_once, given=a_shop)),
    Mutant("F11", topics.a_repeat_plans_anew, STOPPED),
    Mutant("F11", topics.a_copy_is_another_row,
           Named(test_topics.test_an_event_that_comes_twice_is_one_job,
                 given=lambda: {"kind": "steps", "tmp_path": Path(tempfile.gettempdir())})),
    Mutant("F11", topics.ids_are_random, STOPPED),
    Mutant("F11", topics.the_position_moves_first, STOPPED),
    Mutant("F11", topics.jobs_are_inserted_before_they_are_planned, STOPPED),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
