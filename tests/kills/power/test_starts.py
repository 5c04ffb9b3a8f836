"""What was begun when the power failed, and what a restart finds (C7, C8)."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw
import pytest

from dueline import Context, Dueline
from dueline.core.job import State
from dueline.stores.sqlite.connection import Database, SqliteConnection, fetch
from dueline.stores.sqlite.store import SqliteStore
from tests.kills.power.disk import Mark, Platter, Step, recording
from tests.kills.power.losses import NAME

T = TypeVar("T")
JOBS = 8
IMAGES = 150
LIVES_MAX = 8
"""In some the power never fails between a claim and what flushes it."""


class Fact(NamedTuple):
    """Something that happened, and that a restart must not contradict. fence: as it was told."""

    kind: str
    job_id: bytes
    fence: int = 0


class Story(NamedTuple):
    """A life on a disk: its steps, with a mark after each fact, which has the mark's number."""

    steps: Sequence[Step]
    facts: Sequence[Fact]


class Row(NamedTuple):
    """What a restart finds of a job."""

    state: int
    fence: int


def live(folder: Path) -> Story:
    """Let a worker run jobs of all kinds on a disk that is watched."""
    facts: list[Fact] = []
    app = Dueline(f"sqlite:///{folder / NAME}")
    app.queue("once", deliver="at_most_once")
    ids: dict[tuple[str, int], bytes] = {}

    with recording(folder) as disk:

        def note(fact: Fact) -> None:
            facts.append(fact)
            disk.steps.append(Mark(len(facts) - 1))

        @app.task(name="plain")
        def plain(number: int) -> None:
            note(Fact("plain", ids["plain", number]))

        @app.task(name="told")
        def told(context: Context, number: int) -> None:
            note(Fact("told", ids["told", number], context.fence))

        @app.task(name="once", queue="once")
        def once(number: int) -> None:
            note(Fact("once", ids["once", number]))

        for number in range(JOBS):
            for task in (plain, told, once):
                ids[task.name, number] = job_id = bytes.fromhex(task.enqueue(number).id)
                note(Fact("stored", job_id))
            if number % 2:
                app.run_worker(burst=True, concurrency=1)
        app.run_worker(burst=True)
        steps = list(disk.steps)
    app.close()
    return Story(steps, facts)


def restarts(
    story: Story, folder: Path, seed: int
) -> Iterator[tuple[list[Fact], dict[bytes, Row]]]:
    """Let the power fail at random steps; answer what had happened, and what rows are found."""
    chance = random.Random(seed)
    begin = story.steps.index(Mark(0))
    platter, known, played = Platter(), list[Fact](), 0
    for cut in sorted(chance.randrange(begin, len(story.steps)) for _ in range(IMAGES)):
        for step in story.steps[played : cut + 1]:
            if isinstance(step, Mark):
                known.append(story.facts[step.number])
            else:
                platter.play(step)
        played = cut + 1
        for name, content in platter.image(chance).items():
            (folder / name).write_bytes(content)
        database = apsw.Connection(str(folder / NAME))
        rows = fetch(database, "SELECT id, state, fence FROM jobs", ())
        database.close()
        yield list(known), {job_id: Row(*rest) for job_id, *rest in rows}
        for path in folder.iterdir():
            path.unlink()


def contradictions(known: Sequence[Fact], rows: dict[bytes, Row]) -> set[str]:
    """Tell in what a restart contradicts what had happened before it."""
    faults = set()
    begun = {fact.job_id for fact in known if fact.kind != "stored"}
    for fact in known:
        row = rows.get(fact.job_id)
        if row is None:
            if fact.job_id not in begun:
                faults.add("a job is lost")
        elif fact.kind == "once" and row.state != State.STARTED:
            faults.add("a job runs twice that may not")
        elif row.fence < fact.fence:
            faults.add("a fence is told twice")
        elif fact.kind == "plain" and row.fence == 0:
            faults.add("a claim is taken back")
    return faults


def faults_of(tmp_path: Path, seed: int) -> set[str]:
    life, images = tmp_path / "life", tmp_path / "images"
    life.mkdir()
    images.mkdir()
    starts = restarts(live(life), images, seed)
    return set().union(*(contradictions(known, rows) for known, rows in starts))


def is_found_out(tmp_path: Path, fault: str) -> bool:
    """Let lives fail until one has this fault: when threads are called is not ours to say."""
    for seed in range(LIVES_MAX):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        if fault in faults_of(folder, seed):
            return True
    return False


def test_a_restart_contradicts_no_response(tmp_path: Path) -> None:  # rule P8
    faults = set[str]()
    for seed in range(LIVES_MAX):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        faults |= faults_of(folder, seed)
        if faults:
            break
    assert faults == {"a claim is taken back"}  # which nobody was told


def test_what_is_not_flushed_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteConnection, "write", SqliteConnection.write_unflushed)
    assert is_found_out(tmp_path, "a job runs twice that may not")


def test_births_that_are_not_flushed_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lightly(
        self: SqliteConnection, database: Database, work: Callable[[Database], T], _: str = ""
    ) -> T:
        return commit(self, database, work, "NORMAL")

    commit = SqliteConnection.commit
    monkeypatch.setattr(SqliteConnection, "commit", lightly)
    assert is_found_out(tmp_path, "a job is lost")


def test_fences_that_are_not_flushed_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteStore, "flush", lambda _: None)
    assert is_found_out(tmp_path, "a fence is told twice")
