"""The page of pictures: whole, on its own, and without empty pictures."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dueline import Dueline
from dueline.core.errors import NotFound
from tests.harness.spark.tables import BORN, SECOND, app_with_a_past, attempt, made, quiet


def written(folder: Path) -> str:
    """Make a store with a past, its tables, and their page."""
    pipe = made(folder / "lake", app_with_a_past(folder))
    pipe.run([], quiet)
    return str(pipe.report("Mail & <more>"))


def test_the_page_stands_on_its_own_and_shows_all_that_there_is(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert not re.search(r"https?:|<script|url\(|src=|href=", text)
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    for wanted in ("Start latency", "Backlog by shard", "Failures by cause",
                   "Fairness between tenants (Jain index)", "Starts on time"):  # fmt: skip
        assert wanted in heads
    assert any(head.startswith("Start latency over time") for head in heads)
    assert any(head.startswith("Ended attempts") for head in heads)
    assert "dead: ValueError: number # is one of fifty" in text
    assert "<h1>Mail &amp; &lt;more&gt;</h1>" in text


def test_no_picture_is_empty_and_none_is_wider_than_a_telephone(tmp_path: Path) -> None:
    pictures = re.findall(r"<svg.*?</svg>", written(tmp_path), re.DOTALL)
    assert len(pictures) >= 6
    for picture in pictures:
        drawn = ET.fromstring(picture)  # noqa: S314  (made here)
        assert drawn.attrib["viewBox"].split()[2] == "360"
        shapes = [one for one in drawn.iter() if one.tag in ("rect", "circle")]
        assert shapes, picture
        for shape in shapes:
            if shape.tag == "rect":
                right = float(shape.attrib["x"]) + float(shape.attrib["width"])
                assert 0 <= float(shape.attrib["x"]) <= right <= 360
                assert float(shape.attrib["y"]) >= 0


def test_a_page_about_nothing_says_so(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.queue("mail", history="all")
    pipe = made(tmp_path / "lake", app)

    @app.task(name="wait", queue="mail")
    def wait() -> None:
        """Never run here."""

    wait.using(after=60).enqueue()
    with pytest.raises(NotFound, match="no tables"):
        pipe.report("Mail")
    pipe.run([], quiet)
    assert "No data yet" in pipe.report("Mail")


def test_a_page_of_a_period_is_about_its_minutes(tmp_path: Path) -> None:
    from dueline.spark.pipeline.arrow_engine import ArrowEngine
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.report import Span, page
    from dueline.spark.pipeline.table_store import Folder

    minute = 60 * SECOND
    engine = ArrowEngine(Folder(tmp_path / "lake"), Settings("memory://"))
    engine._put(
        [
            *(attempt(f"old {n}", 1, "dead", error="KeyError: a") for n in range(5)),
            attempt("left", 0, "enqueued", worker="", claimed=None, started=None, ended=BORN),
            *(
                attempt(f"new {n}", 1, "dead", error="ValueError: b", ended=BORN + 9 * minute)
                for n in range(2)
            ),
        ],
        {},
    )
    engine.silver(quiet)
    engine.gold(quiet)

    def told(since_us: int | None, until_us: int | None) -> str:
        return page(Folder(tmp_path / "lake"), "Mail", Span.of(since_us, until_us))

    whole, old, new = told(None, None), told(None, BORN + minute), told(BORN + 5 * minute, None)
    for text, words, attempts in (
        (whole, ("KeyError", "ValueError", "Starts on time", "Backlog"), 7),
        (old, ("KeyError", "Backlog"), 5),
        (new, ("ValueError", "Backlog"), 2),  # what came before is at hand still
    ):
        assert f"{attempts} attempts, until" in text
        for word in ("KeyError", "ValueError", "Starts on time", "Backlog"):
            assert (word in text) == (word in words), word
    assert "No data yet" in told(BORN + 50 * minute, None)
    assert Span.of(BORN + 1, BORN + minute + 1) == Span.of(BORN, BORN + 2 * minute)


def test_a_long_time_is_cut_into_slots_that_lose_nothing() -> None:
    from dueline.spark.pipeline.report import SLOTS_MAX, Slots, percentile

    minute = 60_000_000
    pairs = [(number * 7 * minute, 3) for number in range(500)]
    slots = Slots([at for at, _ in pairs])
    assert slots.count <= SLOTS_MAX
    assert sum(slots.sums(pairs)) == 1500
    assert len(slots.labels) == slots.count
    assert [percentile({3: 50, 9: 49, 20: 1}, share) for share in (0.5, 0.9, 0.995)] == [3, 9, 20]
