"""A job has one end on a real Cassandra, wherever its worker is stopped (R13).

The lives of `test_outcome_first`, fewer of them: each is led once for every call that
changes something, and one once for every write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.cassandra_node import expect_node, session_on_a_node
from tests.harness.job_runs import LIVES, Life, set_stage, stop_everywhere
from tests.harness.lives import Stage

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession
    from tests.harness.cassandra_stage import Level

expect_node()
pytestmark = pytest.mark.cassandra

CALLS = ("done", "dead", "cancelled by an operator", "killed with its worker")
WRITES = ("done",)


@pytest.fixture(scope="module")
def session() -> Iterator[CassandraSession]:
    with session_on_a_node("lives") as session:
        yield session


def lead_stopped(session: CassandraSession, name: str, level: Level) -> int:
    """Lead a life once for every step of it."""
    from tests.harness.cassandra_stage import CassandraStage  # noqa: PLC0415  (needs the driver)

    def stage_of(life: Life, *stops: int) -> Stage:
        stage = CassandraStage(
            life.act, retry=life.retry, settings=life.settings, session=session, level=level
        )
        return set_stage(stage, *stops)

    return stop_everywhere(LIVES[name], stage_of)


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_a_job_has_one_end_at_whichever_call_its_worker_is_stopped(
    session: CassandraSession, name: str
) -> None:
    assert lead_stopped(session, name, "calls") > 5


@pytest.mark.long
@pytest.mark.parametrize("name", WRITES)
def test_a_job_has_one_end_at_whichever_write_its_worker_is_stopped(
    session: CassandraSession, name: str
) -> None:
    assert lead_stopped(session, name, "writes") > 5
