"""The dashboard over PostgreSQL, and what operators do."""

import pytest

from tests.harness.cases import (
    admin_redrives,
    streams_pauses,
    web_http_api,
    web_pages,
    worker_lines,
    worker_requests,
)

pytestmark = pytest.mark.postgres


@pytest.mark.long
def test_every_page_shows_and_steers_a_store(url: str) -> None:
    web_pages.every_page_shows_and_steers_a_store(url)


def test_programs_enqueue_and_run_jobs(url: str) -> None:
    web_http_api.programs_enqueue_and_run_jobs(url)


def test_a_worker_is_steered(url: str) -> None:
    worker_requests.a_worker_is_steered(url)


def test_a_group_is_paused(url: str) -> None:
    streams_pauses.a_group_is_paused(url)


def test_dead_jobs_are_redriven(url: str) -> None:
    admin_redrives.dead_jobs_are_redriven(url)


def test_the_log_of_a_failed_attempt_is_kept(url: str) -> None:
    worker_lines.the_log_of_a_failed_attempt_is_kept(url)
