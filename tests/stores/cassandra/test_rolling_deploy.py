"""Two versions of an application on Cassandra."""

import pytest

from tests.harness.cases.rolling_deploy import two_versions_share_a_store
from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node

expect_node()
pytestmark = pytest.mark.cassandra


@pytest.mark.long
def test_a_new_task_waits_for_a_worker_that_knows_it() -> None:
    with keyspaces_on_a_node(1) as keyspaces:
        two_versions_share_a_store(keyspaces.fresh())
