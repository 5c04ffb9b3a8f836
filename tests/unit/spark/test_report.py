"""The page of pictures: whole, on its own, and without empty pictures (P7)."""

import json
import re
import shlex
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dueline import Dueline
from dueline.core.errors import NotFound
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import BORN, SECOND, Line, app_with_a_past, attempt, made, quiet


def written(folder: Path) -> str:
    """Make a store with a past, its tables, and their page."""
    pipe = made(folder / "lake", app_with_a_past(folder))
    pipe.run([], quiet)
    return str(pipe.report("Mail & <more>"))


def test_the_page_stands_on_its_own_and_shows_all_that_there_is(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert not re.search(r"https?:|<script|url\(|src=|href=", text)
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    for wanted in ("Start latency", "Ended attempts",
                   "Fairness between tenants", "Top failures", "Distribution of start latency",
                   "Distribution of run time", "Starts on time"):  # fmt: skip
        assert any(head.startswith(wanted) for head in heads), wanted
    assert "<h1>Mail &amp; &lt;more&gt;</h1>" in text
    assert "ValueError: number # is one of fifty" in text


def test_the_first_screen_says_what_was_lost_late_and_unfair(tmp_path: Path) -> None:
    tiles = re.findall(r'<div class="tile.*?</div>', written(tmp_path))
    text = [re.sub("<[^>]*>", " ", tile) for tile in tiles]
    assert [one.split()[0] for one in text] == [
        "Lost", "Start", "Fairness", "Dead-letter", "Done", "Backlog", "Failing", "Waiting",
        "Handler",
    ]  # fmt: skip
    assert "not audited" in text[0]
    assert "dueline pipeline audit --store" in text[0]
    assert re.search(r"p99 &lt; .* on time", text[1])
    assert 'class="tile bad"' in tiles[3]
    assert re.search(r" 6 .*; most: ValueError: number # is one of fifty", text[3])


def test_the_tile_of_fairness_measures_service_and_not_demand(tmp_path: Path) -> None:
    def tile(lines: Sequence[Line]) -> str:
        lake = Lake(tmp_path / str(len(lines)))
        lake.add(lines)
        lake.run()
        store: Any = SimpleNamespace(url="memory://")
        page = str(made(tmp_path / str(len(lines)), store).report("Mail"))
        (found,) = (
            part for part in re.findall(r'<div class="tile.*?</div>', page) if "Fair" in part
        )
        return re.sub("<[^>]*>", " ", found)

    burst = [
        attempt(f"{tenant} {n}", 1, tenant=tenant, started=BORN + (11 + n) * SECOND)
        for tenant, jobs in (("large", 9), ("small", 2))
        for n in range(jobs)
    ]
    assert "even" in tile(burst)
    starved = attempt("starved", 1, tenant="starved", started=BORN + 18 * SECOND)
    assert "starved in mail waited so much longer" in tile([*burst, starved])


def test_the_command_of_a_failure_retries_its_dead_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    commands = re.findall(r"<code>dueline (pipeline redrive.*?)</code>", written(tmp_path))
    words = shlex.split(unescape(commands[0]))
    assert run([*words, "-o", "json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["redriven"] == 6


def test_pictures_have_the_colors_of_the_page_and_fit_a_telephone(tmp_path: Path) -> None:
    text = written(tmp_path)
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) >= 5
    for picture in pictures:
        drawn = ET.fromstring(picture)  # noqa: S314  (made here)
        assert "width" not in drawn.attrib
        shown = picture.replace("transparent", "none")
        assert set(re.findall(r'(?:fill|stroke)="(.*?)"', shown)) <= {
            "none", "var(--ink)", "var(--grid)", *(f"var(--s{place})" for place in range(5)),
        }, picture  # fmt: skip
    narrow = text.count('viewBox="0 0 400')
    assert narrow + text.count('viewBox="0 0 1200') == len(pictures)
    assert re.search(r"<title>[^<]*: \d+ done</title>", text)


@pytest.mark.parametrize("minutes", [1, 2, 59, 75, 1440, 30 * 1440, 400 * 1440])
def test_bins_follow_the_period(minutes: int) -> None:
    from dueline.spark.pipeline.report import BINS_MAX, Bins

    end = BORN + minutes * 60 * SECOND
    bins = Bins(BORN, end)
    assert 1 <= bins.count <= BINS_MAX + 1
    assert minutes < 45 or bins.count > BINS_MAX // 3  # the widths are round numbers
    numbers = bins.numbers()
    assert bins.place(numbers[0])["start"] * 1000 <= BORN < bins.place(numbers[0])["end"] * 1000
    assert bins.place(numbers[-1])["end"] * 1000 >= end


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
    from dueline.spark.pipeline.report import Span

    minute = 60 * SECOND
    lake = Lake(tmp_path / "lake")
    lake.add(
        [
            *(attempt(f"old {n}", 1, "dead", error="KeyError: a") for n in range(5)),
            attempt("left", 0, "enqueued", worker="", claimed=None, started=None, ended=BORN),
            *(
                attempt(f"new {n}", 1, "dead", error="ValueError: b", ended=BORN + 9 * minute)
                for n in range(2)
            ),
        ]
    )
    lake.run()

    store: Any = SimpleNamespace(url="memory://")

    def told(since_us: int | None, until_us: int | None) -> str:
        pipe = made(tmp_path / "lake", store)
        return str(pipe.report("Mail", since_us=since_us, until_us=until_us))

    whole, old, new = told(None, None), told(None, BORN + minute), told(BORN + 5 * minute, None)
    for text, words, attempts in (
        (whole, ("KeyError", "ValueError", "Starts on time", "Backlog by"), 7),
        (old, ("KeyError", "Backlog by"), 5),
        (new, ("ValueError", "Backlog by"), 2),  # what came before is at hand still
    ):
        assert f", {attempts} attempts. Made at" in text
        for word in ("KeyError", "ValueError", "Starts on time", "Backlog by"):
            assert (word in text) == (word in words), word
    assert "No data yet" in told(BORN + 50 * minute, None)
    assert Span.of(BORN + 1, BORN + minute + 1) == Span.of(BORN, BORN + 2 * minute)


def test_percentiles_of_a_histogram() -> None:
    from dueline.spark.pipeline.report import percentile, step_text

    assert [percentile({3: 50, 9: 49, 20: 1}, share) for share in (0.5, 0.9, 0.995)] == [3, 9, 20]
    assert [step_text(step) for step in (0, 5, 14, 21, 27, 33)] == [
        "0", "< 32 us", "< 16 ms", "< 2 s", "< 2 min", "< 2 h",
    ]  # fmt: skip


def test_hours_of_the_week_are_means_of_their_hours() -> None:
    from dueline.spark.pipeline.report_week import latency, load

    monday = 4 * 24  # 5 January 1970
    lines = [
        {"hour": monday + 9, "step": 10, "attempts": 10},
        {"hour": monday + 9, "step": 20, "attempts": 10},
        {"hour": monday + 7 * 24 + 9, "step": 10, "attempts": 40},
        {"hour": monday + 24 + 10, "step": 12, "attempts": 5},
    ]
    assert "<title>Mon 09:00: 30 attempts</title>" in load(lines)
    assert "<title>Tue 10:00: 5 attempts</title>" in load(lines)
    assert "<title>Mon 09:00: 1,049 ms at p99</title>" in latency(lines)
    assert "The darkest cell is 1,049 ms" in latency(lines)
    assert load(lines[:2]) == ""


def test_only_failures_with_dead_jobs_have_a_command(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add(
        [
            *(attempt("a", fence, "crashed", error="It exited") for fence in (1, 2)),
            attempt("b", 1, "dead", error="KeyError: c"),
        ]
    )
    lake.run()
    store: Any = SimpleNamespace(url="memory://")
    text = str(made(tmp_path / "lake", store).report("Mail"))
    failures = text[text.index("Top failures") :]
    assert "It exited" in failures
    (command,) = re.findall(r"<code>(.*?)</code>", failures)
    assert "KeyError: c" in unescape(command)
    (tile,) = (part for part in re.findall(r'<div class="tile.*?</div>', text) if "Dead-" in part)
    assert "most: KeyError: c" in tile


def test_charts_below_each_other_show_the_same_period(tmp_path: Path) -> None:
    minute = 60 * SECOND
    lake = Lake(tmp_path / "lake")
    lake.add(
        [
            *(attempt(f"a {name}", 1, tenant=name) for name in ("acme", "zed")),
            attempt("late", 1, ended=BORN + 30 * minute),
        ]
    )
    lake.run()
    store: Any = SimpleNamespace(url="memory://")
    text = str(made(tmp_path / "lake", store).report("Mail"))
    assert "Fairness between tenants" in text
    periods = re.findall(r"X-axis for a utc scale with values from (\S+) to (\S+)\"", text)
    assert len(periods) >= 3
    assert len(set(periods)) == 1


def test_long_errors_do_not_push_the_commands_off_the_page(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert re.search(r"td\.text[^{]*\{[^}]*overflow-wrap:anywhere", text)  # "x" * 100 is broken
    assert re.search(r"td,th\{[^}]*white-space:nowrap", text)  # but no date is


def test_rates_have_a_unit_that_fits_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add([attempt("a", 1), attempt("b", 1, ended=BORN + 30 * 60 * SECOND)])
    lake.run()
    store: Any = SimpleNamespace(url="memory://")
    text = str(made(tmp_path / "lake", store).report("Mail"))
    assert "3.9 per hour; peak 1.0 attempts per minute" in text


def test_labels_of_an_axis_do_not_run_into_each_other() -> None:
    from dueline.spark.pipeline.report_week import load

    lines = [{"hour": hour, "step": 10, "attempts": 1} for hour in range(24)]
    anchors = re.findall(r'text-anchor="(\w+)"[^>]*>\d\d:00</text>', load(lines))
    assert len(anchors) >= 4
    assert set(anchors) == {"middle"}


@pytest.mark.parametrize("low", [1e-4, 0.02, 0.4, 1.54, 2, 9, 40, 700, 20_000])
def test_an_axis_of_seconds_has_more_than_one_label(low: float) -> None:
    from dueline.spark.pipeline.charts import second_marks

    assert 2 <= len(second_marks(low / 1.3, low * 20)) <= 5
