"""Two versions of an application on PostgreSQL."""

import pytest

from tests.harness.cases.rolling_deploy import two_versions_share_a_store

pytestmark = pytest.mark.postgres


def test_a_new_task_waits_for_a_worker_that_knows_it(url: str) -> None:
    two_versions_share_a_store(url)
