"""The rules of partial results and webhooks are needed: without each a test fails."""

from typing import Final

from tests.harness.failing_store import Fault
from tests.mutants import chunks, webhooks
from tests.mutants.gate import Mutant, Named, each_needed
from tests.unit.jobs import test_webhooks
from tests.unit.worker import test_partial_results as tests

CUT = Named(
    test_webhooks.test_a_delivery_is_stored_wherever_the_end_is_cut,
    given=lambda: {"state": "done", "fault": Fault.AFTER},
)

MUTANTS: Final = (
    Mutant("T1", chunks.a_reader_stops_when_it_sees_the_end,
           Named(tests.test_a_reader_that_sees_the_end_reads_once_more)),
    Mutant("T1", chunks.outcomes_are_stored_before_chunks,
           Named(tests.test_chunks_are_stored_before_the_outcome)),
    Mutant("T2", chunks.a_repeat_has_later_chunks,
           Named(tests.test_a_write_without_an_answer_is_repeated_as_it_was,
                 given=lambda: {"fault": Fault.BEFORE})),
    Mutant("T2", chunks.keys_name_the_first_chunk,
           Named(tests.test_a_reader_goes_on_after_any_chunk)),
    Mutant("T2", chunks.earlier_claims_are_given_too,
           Named(tests.test_a_later_claim_removes_what_earlier_ones_emitted)),
    Mutant("T3", webhooks.ends_of_single_jobs_insert_nothing, CUT),
    Mutant("T3", webhooks.arguments_name_the_address, CUT),
    Mutant("T3", webhooks.ends_of_many_jobs_insert_nothing,
           Named(test_webhooks.test_jobs_that_end_together_insert_the_same_deliveries)),
    Mutant("T3", webhooks.a_delivery_has_an_id_of_its_job_alone,
           Named(test_webhooks.test_each_end_has_a_delivery_of_its_own)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
