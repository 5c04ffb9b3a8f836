"""The figures of README and docs are those that were recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.markdown import ROOT
from tools import figures, pictures
from tools.figures import PAGES, PARTS, Recorded, parts_of, rendered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_was_recorded(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rendered(text, Recorded()), "run `make figures`"


def test_each_part_is_shown_once() -> None:
    shown = [name for page in PAGES for name in parts_of(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(PARTS)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_shows_what_was_recorded(name: str) -> None:
    drawn = (pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.PICTURES[name](), "run `make figures`"


def test_a_record_that_changes_is_seen(tmp_path: Path) -> None:
    path = ROOT / "benchmarks" / "recorded.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found["rows"]["default"]["sides"]["ours"]["per_s"]["median"] = 123_456
    (tmp_path / "recorded.json").write_text(json.dumps(found), encoding="utf-8")
    text = PAGES[0].read_text(encoding="utf-8")
    assert "| 123,000 |" in rendered(text, Recorded(tmp_path / "recorded.json"))


def test_a_row_that_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    path = ROOT / "benchmarks" / "recorded.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    del found["rows"]["history"]
    (tmp_path / "recorded.json").write_text(json.dumps(found), encoding="utf-8")
    assert "keep=0" in figures.drains(Recorded())
    assert "keep=0" not in figures.drains(Recorded(tmp_path / "recorded.json"))


@pytest.mark.parametrize(
    ("value", "text"), [(104_900, "105,000"), (4_213, "4,210"), (22.04, "22"), (0.53, "0.53")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert figures.rounded(value) == text


@pytest.mark.slow
@pytest.mark.parametrize("module", ["benchmarks", "benchmarks.compare"])
def test_the_rows_are_listed(module: str) -> None:
    words = [sys.executable, "-m", module, "--list"]
    words += ["--base", str(ROOT)] if module.endswith("compare") else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 2}, done.stderr
    if done.returncode == 0:
        assert "default " in done.stdout
