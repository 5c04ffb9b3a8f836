"""Another number of shards while jobs come and go."""

from pathlib import Path

import pytest

from dueline.core.job import Job, JobId
from dueline.worker.claimer import Claimer
from tests.harness.calls import calls, put
from tests.harness.cases import jobs_resharding as cases
from tests.harness.cases.jobs_resharding import COUNTS, Site, opener
from tests.harness.world import EVERY_KIND


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_no_job_is_lost_or_doubled_while_shards_become_more_and_fewer(
    kind: str, tmp_path: Path
) -> None:
    cases.no_job_is_lost_or_doubled_while_shards_become_more_and_fewer(kind, tmp_path)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_new_jobs_spread_over_the_new_number_and_old_ones_are_found_where_they_are(
    kind: str, tmp_path: Path
) -> None:
    # H7
    open_one = opener(kind, tmp_path)
    site = Site(open_one)
    engine = site.engine()
    worker = site.engine()
    claimer = Claimer(worker.engine, ["default"], "w")
    claimer.refresh()
    found: set[JobId] = set()
    rows: list[Job] = []
    for shards in (1, *COUNTS):
        engine.engine.catalog.configure("default", shards=shards)
        born = put(engine, calls(0, 200))  # so many that some come to each
        assert {job.lane.shard for job in born} == set(range(shards))
        rows += born
    assert worker.engine.catalog.settings("default").shards_read == 1  # it has not heard of it
    claimer.refresh()
    claimer.refresh()
    while taken := claimer.claim(100, {}):
        found |= {one.job.id for one in taken}
    assert found == {job.id for job in rows}
