"""Short loops (C1, R1, R13)."""

from pathlib import Path

import pytest

from tests.harness.redis import server_url
from tests.kills.cluster import struck_redis, struck_slots
from tests.kills.disk import MountError, small_disk
from tests.kills.loop import Loop

KILLS, PAUSES, JOBS = 4, 2, 800
FILLS, FULL_JOBS = 2, 600
JUMPING_JOBS = 400
REDIS_STRIKES = 11
"""Each kind once."""


def test_no_job_is_lost_doubled_or_early_when_processes_are_killed(tmp_path: Path) -> None:
    report = Loop(tmp_path, jobs=JOBS, kills=KILLS, pauses=PAUSES, seed=1).run()
    assert {verdict: stories for verdict, stories in report.faults.items() if stories} == {}
    assert report.counts["kills"] == KILLS
    assert report.counts["pauses"] == PAUSES
    assert JOBS * 0.8 < report.counts["attempted"] <= JOBS
    assert report.counts["cancelled"] > 0, "no job with a unique key was replaced"


def test_no_job_is_lost_doubled_or_early_when_clocks_jump(tmp_path: Path) -> None:
    report = Loop(tmp_path, jobs=JUMPING_JOBS, kills=2, seed=1, jumping=True).run()
    assert {verdict: stories for verdict, stories in report.faults.items() if stories} == {}
    assert report.counts["clock jumps"] > 0, "nobody looked at a wall clock"


def test_no_job_is_lost_doubled_or_early_when_the_disk_is_full(tmp_path: Path) -> None:
    mounted, diaries = tmp_path / "disk", tmp_path / "diaries"
    mounted.mkdir()
    diaries.mkdir()
    try:
        with small_disk(mounted) as disk:
            loop = Loop(diaries, jobs=FULL_JOBS, kills=1, seed=1, disk=disk, fills=FILLS)
            report = loop.run()
    except MountError as error:
        pytest.skip(f"no small disk can be mounted: {error}")
    assert {verdict: stories for verdict, stories in report.faults.items() if stories} == {}
    assert report.counts["full disks"] == FILLS
    assert report.counts["outcomes rejected"] > 0, "no verdict met a full disk"


@pytest.mark.redis
def test_no_job_is_lost_doubled_or_early_when_a_redis_server_is_struck(tmp_path: Path) -> None:
    server_url()  # skips the test without a server
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    with struck_redis(tmp_path / "server", seed=1) as server:
        loop = Loop(
            diaries, jobs=JOBS, kills=2, seed=1, server=server, server_strikes=REDIS_STRIKES
        )
        report = loop.run()
    assert {verdict: stories for verdict, stories in report.faults.items() if stories} == {}
    assert sum(server.counts.values()) == REDIS_STRIKES


@pytest.mark.redis
def test_no_job_is_lost_doubled_or_early_when_a_cluster_is_struck(tmp_path: Path) -> None:
    server_url("redis-cluster")  # skips the test without a cluster
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    with struck_slots(tmp_path / "server", seed=1) as cluster:
        strikes = len(cluster.own_kinds)
        loop = Loop(diaries, jobs=JOBS, kills=2, seed=1, server=cluster, server_strikes=strikes)
        report = loop.run()
    assert {verdict: stories for verdict, stories in report.faults.items() if stories} == {}
    assert sum(cluster.counts.values()) == strikes
