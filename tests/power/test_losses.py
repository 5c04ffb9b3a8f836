"""Short runs, and disks that must be found out."""

from pathlib import Path

import pytest

from tests.power.losses import Synchronous, fail, record

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

IMAGES = 100


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def test_all_that_was_acknowledged_survives_the_power(tmp_path: Path) -> None:  # R1
    recorded = record(folder(tmp_path, "life"), seed=1)
    report = fail(recorded, folder(tmp_path, "images"), images=IMAGES, seed=1)
    assert report.faults == []
    assert 0 < report.ahead < IMAGES  # some calls were cut in the middle, behind their commit


def test_nothing_but_claims_is_not_flushed_at_once(tmp_path: Path) -> None:  # rule P8
    recorded = record(folder(tmp_path, "life"), seed=1)
    images = folder(tmp_path, "images")
    assert fail(recorded, images, images=IMAGES, seed=1, may_lose="nothing").faults != []
    assert fail(recorded, images, images=IMAGES, seed=1, may_lose="claims").faults == []


def test_with_normal_flushes_what_is_left_is_whole_and_has_no_gap(tmp_path: Path) -> None:
    recorded = record(folder(tmp_path, "life"), seed=2, synchronous="NORMAL")
    images = folder(tmp_path, "images")
    assert fail(recorded, images, images=IMAGES, seed=2, may_lose="all").faults == []
    assert fail(recorded, images, images=IMAGES, seed=2).faults != []  # that is its price


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_disk_that_lies_about_flushes_is_found_out(
    tmp_path: Path, synchronous: Synchronous
) -> None:
    recorded = record(folder(tmp_path, "life"), seed=3, synchronous=synchronous, flushes=False)
    report = fail(recorded, folder(tmp_path, "images"), images=IMAGES, seed=3, may_lose="all")
    assert report.faults != []
