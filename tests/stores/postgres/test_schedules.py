"""Schedules whose definition changes around an occurrence, on a real server."""

from collections.abc import Iterator

import pytest

from tests.harness.clocks import HandClock
from tests.harness.postgres import schemas
from tests.harness.world import World
from tests.unit.schedules.test_changes import CHANGES, an_occurrence_is_one_job


@pytest.fixture
def pg_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with schemas() as made:
        clock = HandClock()
        store = made.open(made.fresh(), clock=clock)
        monkeypatch.setattr(store, "clock_us", clock.wall_us)
        yield World(store, clock)
        store.close()


@pytest.mark.parametrize("had", ["waiting", "ahead", "done"])
@pytest.mark.parametrize("change", [*CHANGES][::3])
def test_an_occurrence_is_one_job_whatever_changes_just_before_it(
    pg_world: World, change: str, had: str
) -> None:
    # T8, rule Z7
    an_occurrence_is_one_job(pg_world, change, had, "allow")
