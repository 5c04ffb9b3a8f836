"""Small runs of rows, with a second checkout (this one again) beside them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.commands import HERE, Failed, Place
from benchmarks.measure import run
from benchmarks.rows import Bench, Measure, Row, Sizes, in_turn, readme_program
from benchmarks.samples import Samples

pytestmark = pytest.mark.timeout(300)  # each starts some twenty processes, one after the other

SIZES = Sizes(
    jobs=2_000, peer_jobs=200, singles=40, pickups=3, burst=50, produce_s=0.1, idle_s=0.2,
    backlogs=(1_000, 2_000),
)  # fmt: skip


def measured(name: str) -> Samples:
    """Measure a row in one round."""
    rows = {row.name: row for row in Bench(SIZES, base=HERE).rows()}
    found = run([rows[name]], 1)[name]
    assert found.failures == []
    return found


@pytest.mark.long
def test_the_drain_is_compared_with_the_same_changes_to_rows() -> None:
    found = measured("default")
    assert set(found.samples) == {"ours", "base", "raw", "huey 1w FULL", "huey 4w FULL"}
    for side in found.samples:
        for measure in ("per_s", "cpu_us"):
            spread = found.spread(side, measure)
            assert spread is not None
            assert spread.median > 0


@pytest.mark.long
def test_the_application_of_the_readme_is_drained() -> None:
    assert "def greet(" in readme_program()
    assert set(measured("readme").samples) == {"ours", "base", "raw"}


@pytest.mark.long
def test_single_calls_are_compared_with_raw_inserts() -> None:
    assert set(measured("single-full").samples) == {"ours", "base", "raw", "huey"}


@pytest.mark.long
def test_latency_is_that_of_each_job() -> None:
    found = measured("pickup-full")
    p50, p99 = found.spread("ours", "p50_ms"), found.spread("ours", "p99_ms")
    assert p50 is not None
    assert p99 is not None
    assert 0 < p50.median <= p99.median


def test_the_base_is_first_in_every_second_round() -> None:
    order: list[str] = []

    def side(name: str) -> Measure:
        def measure(folder: Path, places: Mapping[str, Path]) -> dict[str, float]:
            assert places[name] == folder
            order.append(name)
            return {"x": 1.0}

        return measure

    row = Row("one", "one", in_turn({name: side(name) for name in ("ours", "base", "raw")}))
    found = run([row], 2)["one"]
    assert order == ["ours", "base", "raw", "base", "ours", "raw"]
    assert list(found.samples) == ["ours", "base", "raw"]


def test_a_row_that_fails_says_why_and_the_others_go_on() -> None:
    def fails(folder: Path) -> dict[str, dict[str, float]]:
        Place(HERE, folder, {}).read([str(HERE.python), "-c", "raise SystemExit('no disk')"])
        return {}

    found = run([Row("bad", "bad", fails), Row("good", "good", lambda _: {"ours": {"x": 1}})], 2)
    assert len(found["bad"].failures) == 2
    assert "no disk" in found["bad"].failures[0]
    assert found["good"].spread("ours", "x") is not None


def test_a_command_that_fails_is_reported(tmp_path: Path) -> None:
    place = Place(HERE, tmp_path, {})
    with pytest.raises(Failed, match="exited with 3"):
        place.run([str(HERE.python), "-c", "raise SystemExit(3)"])
