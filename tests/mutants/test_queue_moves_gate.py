"""The rules of moves to another queue are kept by the code: without each a test fails."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from dueline import Dueline
from tests.harness.durable_stage import Stages
from tests.mutants import queue_moves
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_queue_moves as laws


def an_application(url: str) -> Mapping[str, object]:
    """Give a test its application."""
    return {"app": laws.with_queues(Dueline(url))}


def stages() -> Mapping[str, object]:
    """Give a test its stages, and a process that stops at each call."""
    made = Stages("steps", Path(tempfile.mkdtemp()), laws.declare)
    made.stride = 1
    return {"stages": made, "how": "stop"}


in_memory = partial(Named, given=partial(an_application, "memory://"))
in_steps = partial(Named, given=partial(an_application, "memory://?transactional=off"))
KEY: Final = in_memory(laws.test_a_unique_key_goes_along)
TAKEN: Final = in_steps(laws.test_a_key_that_is_taken_for_a_move_brings_no_job_back)
STOPPED: Final = Named(laws.test_a_job_is_in_one_queue_whatever_stops_a_move, given=stages)
MUTANTS: Final = (
    Mutant("O4", queue_moves.a_job_moves_out_of_its_order,
           in_memory(laws.test_a_filter_moves_what_can_be_moved_and_names_the_rest)),
    Mutant("O4", queue_moves.a_key_stays_in_its_queue, KEY),
    Mutant("O4", queue_moves.a_key_is_taken_from_another_job, KEY),
    Mutant("O4", queue_moves.a_key_that_was_left_is_held, STOPPED),
    Mutant("O4", queue_moves.a_taken_key_inserts_the_job, TAKEN),
    Mutant("O4", queue_moves.a_taken_key_holds_nothing, TAKEN),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
