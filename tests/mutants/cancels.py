"""Rules of cancelling jobs that run, broken."""

from collections.abc import Sequence

import pytest

from dueline.core.job import Job
from dueline.core.store import Store
from dueline.jobs import cancel_requests
from dueline.jobs.queue import Queues
from dueline.worker import settlement_plan
from dueline.worker.cancellations import Cancellations

Patch = pytest.MonkeyPatch


def the_next_claim_finds_no_request(patch: Patch) -> None:
    patch.setattr(cancel_requests, "remember", lambda *_, **__: None)


def a_claim_asks_for_no_request(patch: Patch) -> None:
    patch.setattr(Cancellations, "refused", lambda *_: [])


def a_failure_is_stored_without_reading_the_requests(patch: Patch) -> None:
    patch.setattr(Cancellations, "known_before", lambda self, _: self.known)


def a_job_that_was_asked_to_stop_may_fail(patch: Patch) -> None:
    patch.setattr(settlement_plan, "with_cancel_request", lambda decision, _: decision)


def the_claim_is_not_read_again(patch: Patch) -> None:
    ask = Queues._ask_to_end

    def trusting(*told: object, **terms: object) -> bool:
        ask(*told, **terms)  # type: ignore[arg-type]
        return True

    patch.setattr(Queues, "_ask_to_end", trusting)


def a_retry_withdraws_a_later_request(patch: Patch) -> None:
    def careless(store: Store, rows: Sequence[Job]) -> Sequence[Job]:
        for job_id, version in cancel_requests.asked(store, [row.id for row in rows]).items():
            cancel_requests.forget(store, job_id, version)
        return rows

    patch.setattr(cancel_requests, "withdraw", careless)


def a_cancel_that_is_too_late_leaves_its_request(patch: Patch) -> None:
    patch.setattr(cancel_requests, "forget", lambda *_: True)
