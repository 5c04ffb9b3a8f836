"""Simulations of the copied history: the same on both engines, and what they refuse (P7, P9)."""

import json
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline, NotFound
from dueline.foresight.replay import Task
from dueline.foresight.scenario import Changes
from dueline.foresight.summary import Outcome, errors_of
from dueline.foresight.target import target_of
from tests.harness.spark.tables import app_with_a_past, made, quiet

AIM = target_of("p99<1s")
ENDLESS_US = 1 << 62


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dueline]:
    """Make a store with a past."""
    folder = tmp_path_factory.mktemp("past")
    return folder / "lake", app_with_a_past(folder)


def simulator(lake: tuple[Path, Dueline], engine: str = "duckdb", *settings: Changes,
              since_us: int = 0, **more: Any) -> Any:  # fmt: skip
    from dueline.spark.pipeline.what_if import Period

    folder, app = lake
    pipeline = made(folder, app, engine, **more)
    return pipeline.simulator(Period(since_us, ENDLESS_US), settings, quiet).simulator


def shown(outcome: Outcome) -> Any:
    """Return an outcome without the order of its cells."""
    return sorted(map(repr, outcome.cells)), outcome.busy_us, outcome.slot_us, outcome.unstarted


SETTINGS = (
    Changes("more", workers=3, slots=2, shards=4),
    Changes("urgent", priorities={"count to 300": 5}, weights={"acme": 3}),
)


def test_a_replay_has_all_starts_of_the_history(lake: tuple[Path, Dueline]) -> None:
    tasks = [Task(None), Task(Changes()), *map(Task, SETTINGS)]
    real, *replays = simulator(lake, "duckdb", *SETTINGS).run(tasks)
    found = real.latencies(AIM)
    assert found.starts > 300
    assert real.by(lambda cell: cell[:2], AIM).keys() == {("mail", ""), ("mail", "acme")}
    for one in replays:
        assert one.latencies(AIM).starts == found.starts
        assert one.busy_us == real.busy_us
        assert not one.unstarted
    assert set(errors_of(found, replays[0].latencies(AIM))) == {"p50", "p95", "p99"}


def test_a_period_has_the_jobs_that_were_ready_in_it(lake: tuple[Path, Dueline]) -> None:
    made = simulator(lake)
    (whole,) = made.run([Task(None)])

    middle_us = made._records[0].ready_us[len(made._records[0].nth) // 2]
    parts = made.run([Task(None, 0, middle_us), Task(None, middle_us, ENDLESS_US)])
    assert sum(one.latencies(AIM).starts for one in parts) == whole.latencies(AIM).starts


def test_what_does_not_exist_is_named(lake: tuple[Path, Dueline]) -> None:
    for changes, words in (
        (Changes(capacities={"nope": 2}), "the limit 'nope'"),
        (Changes(priorities={"nope": 2}), "the task 'nope'"),
        (Changes(weights={"nope": 2}), "the tenant 'nope'"),
    ):
        with pytest.raises(BadInput, match=words):
            simulator(lake, "duckdb", changes)
    with pytest.raises(NotFound, match="no job that ran in this period"):
        simulator(lake, since_us=ENDLESS_US - 1)
    with pytest.raises(NotFound, match="no queue nope"):
        simulator(lake, queues=("nope",))
    _, app = lake
    app.queue("mute", history="off")
    app.queues.engine.catalog.settings("mute")
    with pytest.raises(BadInput, match="mute keeps no history"):
        simulator(lake, queues=("mute",))


@pytest.mark.long
def test_both_engines_simulate_the_same(lake: tuple[Path, Dueline], spark: Any) -> None:
    tasks = [Task(None), Task(Changes()), *map(Task, SETTINGS)]
    local = simulator(lake, "duckdb", *SETTINGS).run(tasks)
    remote = simulator(lake, "spark", *SETTINGS).run(tasks)
    assert [shown(one) for one in remote] == [shown(one) for one in local]


def test_a_page_shows_the_simulated_next_to_the_real(lake: tuple[Path, Dueline]) -> None:
    from dueline.spark.pipeline.what_if_page import page

    outcomes = simulator(lake, "duckdb", SETTINGS[0]).run(
        [Task(None), Task(Changes()), Task(SETTINGS[0])]
    )
    text = page(list(zip(("really", "in force", "more & more"), outcomes, strict=True)), AIM)
    assert text.count("<svg") == 3
    assert "Error of the simulation" in text
    assert "more &amp; more" in text


def answered(lake: tuple[Path, Dueline], capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    from dueline.cli import run

    folder, app = lake
    code = run(["--store", app.url, "-o", "json", "pipeline", *words, "--out", str(folder)])
    text = capsys.readouterr()
    return code, json.loads(text.out)["data"] if text.out else text.err


def test_the_commands_answer_in_json(
    lake: tuple[Path, Dueline], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = str(tmp_path / "page.html")
    words = ("what-if", "--workers", "2,3", "--priority", "count to 300=-4", "--file", file)
    code, data = answered(lake, capsys, *words)
    assert code == 0
    names = ["really", "in force", "2 workers, count to 300=-4", "3 workers, count to 300=-4"]
    assert [one["setting"] for one in data["use"]] == names
    assert {one["setting"] for one in data["settings"]} == set(names)
    assert data["error"].keys() == {"p50", "p95", "p99"}
    assert {"minute", "tenant", "p99_ms"} <= data["minutes"][0].keys()
    assert "<svg" in Path(file).read_text()
    code, data = answered(lake, capsys, "plan", "--target", "p90<1h", "--queue", "mail")
    assert (code, data["workers"], data["shards"]) == (0, 1, 3)
    assert data["evidence"][-1]["part"] == "held out"
    assert data["hours"]
    code, said = answered(lake, capsys, "plan", "--target", "p99<1us")
    assert code == 2
    code, said = answered(lake, capsys, "what-if", "--since", "2120-01-01T00:00:00Z")
    assert (code, "no job that ran in this period" in str(said)) == (4, True)
