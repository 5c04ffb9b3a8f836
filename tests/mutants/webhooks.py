"""Rules of webhooks, broken."""

import pytest

from dueline.jobs import completion, webhooks
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def ends_of_single_jobs_insert_nothing(patch: Patch) -> None:
    old = "*webhooks.deliveries(job, end.outcome)"
    change_source(patch, completion, "_effects", f"(*added, {old})", "added")


def ends_of_many_jobs_insert_nothing(patch: Patch) -> None:
    change_source(patch, completion, "successes", "webhooks.deliveries(job, outcome)", "()")


def a_delivery_has_an_id_of_its_job_alone(patch: Patch) -> None:
    change_source(patch, webhooks, "deliveries", " + at_us.to_bytes(8)", "")


def arguments_name_the_address(patch: Patch) -> None:
    change_source(patch, webhooks, "deliveries", "encode([host, ", "encode([address, ")
