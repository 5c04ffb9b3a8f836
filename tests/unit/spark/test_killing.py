"""Drivers and executors that are killed: nothing is lost, nothing ends twice."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.crew import Crew, expect_on_a_cluster
from tests.unit.spark.standalone import Cluster

EACH = 80


@pytest.mark.long
def test_drivers_that_die_or_stand_still_lose_nothing_and_end_nothing_twice(
    spark: Any, tmp_path: Path
) -> None:
    from tests.unit.spark import driver

    gateway = spark.sparkContext._gateway.gateway_parameters
    crew = Crew(
        tmp_path,
        **{driver.PORT_VARIABLE: str(gateway.port), driver.SECRET_VARIABLE: gateway.auth_token},
    )
    last = 0
    for moment in (driver.BEFORE, driver.AFTER, driver.SETTLED):
        process = crew.start("tests.unit.spark.driver", moment, last + 1, last + EACH)
        last += EACH
        crew.crashed(process)
        assert crew.left()
    still = crew.start("tests.unit.spark.driver", driver.STILL, last + 1, last + EACH)
    os.waitid(os.P_PID, still.pid, os.WSTOPPED)
    crew.drain()
    still.send_signal(signal.SIGCONT)
    assert still.wait() == 0, crew.said()
    refused = [one for one in crew.events() if one.proc == str(still.pid) and one.type == "no"]
    assert any(event.f == "settle" for event in refused)
    over = crew.start("tests.unit.spark.driver", driver.OVER, last + EACH + 1, last + 2 * EACH)
    crew.crashed(over)
    crew.drain()  # a few that failed wait to be tried again
    assert crew.faults() == {}
    ended = [job for job, _, outcome in crew.recorded() if outcome in ("done", "dead")]
    assert len(ended) == len(set(ended)) == last + 2 * EACH


@pytest.mark.long
def test_executors_that_are_killed_lose_nothing_and_double_nothing(
    machines: Cluster, tmp_path: Path
) -> None:
    from tests.unit.spark import cluster

    crew = Crew(tmp_path)
    expect_on_a_cluster(crew, machines, tmp_path, Dueline(f"sqlite:///{tmp_path / 'jobs.db'}"))
    assert {cluster.ENQUEUED, cluster.RAN} <= {one.name for one in tmp_path.iterdir()}
