"""Short runs, and disks that must be found out."""

from pathlib import Path

import pytest

from tests.kills.power.disk import Flush
from tests.kills.power.losses import NAME, Loss, Synchronous, fail, judge, record

IMAGES = 30
IMAGES_OF_A_LIE = 12
"""More than half of them find out a disk that flushes nothing."""


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def test_all_that_was_acknowledged_survives_the_power(tmp_path: Path) -> None:  # R1
    recorded = record(folder(tmp_path, "life"), seed=1)
    left = fail(recorded, folder(tmp_path, "images"), images=IMAGES, seed=1)
    report = judge(recorded, left)
    assert report.faults == []
    assert 0 < report.ahead < IMAGES  # some calls were cut in the middle, behind their commit
    assert judge(recorded, left, may_lose="nothing").faults != []  # rule P8: claims wait


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_nothing_is_lost_where_a_thread_copies_the_log(
    tmp_path: Path, synchronous: Synchronous
) -> None:  # R1
    life = folder(tmp_path, "life")
    recorded = record(life, seed=4, synchronous=synchronous, copier="a thread")
    left = fail(recorded, folder(tmp_path, "images"), images=IMAGES, seed=4)
    may_lose: Loss = "all" if synchronous == "NORMAL" else "claims"
    assert judge(recorded, left, may_lose=may_lose).faults == []
    copied = [step for step in recorded.steps if isinstance(step, Flush) and step.file == NAME]
    assert len(copied) > 5


def test_with_normal_flushes_what_is_left_is_whole_and_has_no_gap(tmp_path: Path) -> None:
    recorded = record(folder(tmp_path, "life"), seed=2, synchronous="NORMAL")
    left = fail(recorded, folder(tmp_path, "images"), images=IMAGES, seed=2)
    assert judge(recorded, left, may_lose="all").faults == []
    assert judge(recorded, left).faults != []  # that is its price


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_disk_that_ignores_flushes_is_detected(tmp_path: Path, synchronous: Synchronous) -> None:
    recorded = record(folder(tmp_path, "life"), seed=3, synchronous=synchronous, flushes=False)
    left = fail(recorded, folder(tmp_path, "images"), images=IMAGES_OF_A_LIE, seed=3)
    assert judge(recorded, left, may_lose="all").faults != []
