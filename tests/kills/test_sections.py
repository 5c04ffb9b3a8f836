"""The short run of kills in sections that must not repeat (C9)."""

from pathlib import Path
from typing import Any

from tests.kills.sections import Sections, faults_of

KILLS = 2
ONCE = {"a": 1, "b": 1}


def test_no_section_begins_twice_despite_kills(tmp_path: Path) -> None:
    report: Any = Sections(tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    # A kill between a section's mark and its diary leaves an uncertain job without a diary.
    uncertain = report.states.get("uncertain", 0)
    assert report.sections + uncertain + report.settled >= report.jobs > 0
    assert report.states["done"] > 0


def test_sections_that_began_twice_are_noticed() -> None:
    states = {"a": "done", "b": "uncertain"}
    assert [*faults_of(states, ONCE, {}, {})] == []
    assert [*faults_of(states, {"a": 1, "b": 2}, {"b": 1}, {})] == []
    assert [*faults_of(states, {"a": 2, "b": 1}, {}, {})] == [
        "the section of a began 2 times, and it was retried 0 times"
    ]


def test_jobs_that_ended_otherwise_are_noticed() -> None:
    assert [*faults_of({"a": "dead"}, ONCE, {}, {})] == ["a is dead"]
    assert [*faults_of({"a": "done"}, {}, {}, {})] == ["a is done without its section"]
    assert [*faults_of({"a": "done"}, {}, {}, {"a": 1})] == []
