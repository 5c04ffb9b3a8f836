"""Exports: a store as files, equal in any other store, whatever process dies."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from dueline.admin.exports.exporter import FROZEN_US, export, lines_of
from dueline.admin.exports.files import MANIFEST, Manifest, Reader
from dueline.admin.exports.importer import Imported, Importer
from dueline.admin.exports.lines import Digest, JobLine
from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions, OrderPlace
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, Conflict, DuelineError, StoreUnavailable
from dueline.core.features import FROZEN, names_of
from dueline.core.job import JobId
from dueline.core.store import Row
from dueline.jobs import orders, results
from dueline.jobs.explain import explain
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import semaphore
from dueline.schedules import scheduler
from dueline.schedules.schedule import Timing, all_stored
from dueline.streams import resharding
from dueline.workflows import records as flow_records
from dueline.workflows import workflow
from dueline.workflows.graph import lay_out
from tests.harness.addresses import world_of
from tests.harness.dying_store import Died, Dying
from tests.harness.queues import queues_on
from tests.harness.schedules import EVERY_US, TEMPLATE
from tests.harness.unique_jobs import keyed
from tests.harness.workflow_stage import NESTED
from tests.harness.world import World, clock_for, store_on

ON_POSTGRES = [pytest.mark.postgres, pytest.mark.long]
ON_CASSANDRA = [pytest.mark.cassandra, pytest.mark.long]
ON_REDIS = [pytest.mark.redis, pytest.mark.long]
LOCAL = [
    pytest.param(("memory", "memory"), marks=pytest.mark.memory),
    pytest.param(("sqlite", "steps"), marks=pytest.mark.sqlite),
    pytest.param(("steps", "sqlite"), marks=pytest.mark.sqlite),
]
PAIRS = [
    *LOCAL,
    pytest.param(("sqlite", "redis"), marks=ON_REDIS),
    pytest.param(("redis", "sqlite"), marks=ON_REDIS),
    pytest.param(("sqlite", "postgres"), marks=ON_POSTGRES),
    pytest.param(("postgres", "steps"), marks=ON_POSTGRES),
    pytest.param(("sqlite", "cassandra"), marks=ON_CASSANDRA),
    pytest.param(("cassandra", "sqlite"), marks=ON_CASSANDRA),
]
SERVERS = ("postgres", "cassandra")


class Stage:
    """An old and a new store on one clock, and a folder."""

    def __init__(self, kinds: tuple[str, str], folder: Path) -> None:
        """Open both, empty."""
        self._servers = ExitStack()
        worlds = {
            kind: self._servers.enter_context(world_of(kind, folder))
            for kind in kinds
            if kind in SERVERS
        }
        self.clock = next((world.clock for world in worlds.values()), None) or clock_for(*kinds)
        self.folder = folder / "export"
        for name in ("old", "new"):
            (folder / name).mkdir()
        self.old, self.new = (
            worlds.get(kind) or World(store_on(kind, folder / name, self.clock), self.clock)
            for kind, name in zip(kinds, ("old", "new"), strict=True)
        )
        self.told: list[str] = []
        self._local = [world for world in (self.old, self.new) if world not in worlds.values()]

    def close(self) -> None:
        """Close both."""
        for world in self._local:
            world.store.close()
        self._servers.close()

    def export(self, folder: Path | None = None, *, report: Callable[[str], None] | None = None,
               dies_at: int = 0) -> Manifest:  # fmt: skip
        """Export the old store as another process."""
        store = Dying(self.old.store, count(1), dies_at) if dies_at else self.old.store
        return export(
            queues_on(store, self.clock).engine, folder or self.folder,
            report=report or self.told.append,
        )  # fmt: skip

    def load(self, *, merges: bool = False, dies_at: int = 0) -> Imported:
        """Import into the new store as another process."""
        store = Dying(self.new.store, count(1), dies_at) if dies_at else self.new.store
        engine = queues_on(store, self.clock).engine
        reader = Reader(self.folder)
        return Importer(engine, reader, report=self.told.append, merges=merges).run()

    def fill(self) -> dict[str, JobId]:
        """Store something of every kind in the old store."""
        old = self.old
        engine = old.queues.engine
        engine.catalog.configure("q", keep_us=7 * 86_400 * SECOND_US, history="all", shards=3)
        engine.catalog.configure("w", is_paused=True)
        semaphore.define(old.store, "api", 3, ids=engine.ids)
        jobs = {
            "ready": old.put(priority=5, tenant="acme", limits=("api",)),
            "later": old.put(after_s=3600),
            "failed": old.put(queue="w"),
            "dead": old.put(queue="x"),
            "done": old.put(queue="y"),
        }
        old.back(old.claim(jobs["failed"]), after_s=600, errors=2, error="no\u2028such")
        old.die(jobs["dead"])
        old.end(old.claim(jobs["done"]), Outcome("done", old.now_us, value="1"))
        crashed = jobs["crashed"] = old.put(queue="z")
        old.claim(crashed, start=True)
        self.clock.advance(31)
        (row,) = old.queues.enqueue(keyed(1, key="a", due_us=old.now_us + 60 * SECOND_US))
        jobs["unique"] = row.id
        scheduler.put(old.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
        start = workflow.begin(engine, lay_out(NESTED, "f"), old.queues.admission.admit)
        workflow.send(engine, start)
        resharding.stored(engine, "events", 2, None)
        old.store.append([Row("events", 1, old.now_us + n, bytes([n] * 16), b"\xff\x00{}")
                          for n in range(5)])  # fmt: skip
        old.store.close_until("events", 1, at_us=old.now_us + 3)
        return jobs


@pytest.fixture(params=PAIRS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Two empty stores."""
    made = Stage(request.param, tmp_path)
    yield made
    made.close()


def raised(call: Callable[[], object]) -> str:
    """Return the words of the error of a call; empty if there is none."""
    try:
        call()
    except DuelineError as error:
        return str(error)
    return ""


def digest_of(world: World) -> tuple[dict[str, int], str]:
    """Return the digest of all that a store holds."""
    digest = Digest()
    for line in lines_of(world.other().engine):
        digest.add(line)
    return dict(digest.counts), digest.hex()


def test_an_import_equals_the_export(stage: Stage) -> None:
    jobs = stage.fill()
    manifest = stage.export()
    assert manifest.counts["job"] == len(digest_rows(stage.old))
    done = stage.load()
    assert done.jobs == manifest.counts["job"]
    assert digest_of(stage.new) == digest_of(stage.old) == (manifest.counts, manifest.digest)
    same = ("id", "due_us", "at_us", "enqueued_us", "task", "codec", "body", "opts", "fence",
            "worker", "errors", "crashes", "alone", "state", "error")  # fmt: skip
    for name, job_id in jobs.items():
        if name != "done":
            was, row = stage.old.row(job_id), stage.new.row(job_id)
            assert [getattr(row, cell) for cell in same] == [getattr(was, cell) for cell in same]
    outcome = results.read(stage.new.store, jobs["done"])
    assert outcome is not None
    assert outcome.value == "1"
    assert stage.new.store.close_until("events", 1, at_us=0) == stage.old.store.close_until(
        "events", 1, at_us=0
    )


def digest_rows(world: World) -> list[object]:
    """Return the lines of jobs of a store."""
    return [line for line in lines_of(world.other().engine) if isinstance(line, JobLine)]


def test_jobs_run_once_in_the_new_store(stage: Stage) -> None:
    jobs = stage.fill()
    stage.export()
    stage.load()
    stage.clock.advance(6)
    new = World(stage.new.store, stage.clock)
    assert new.claim(jobs["crashed"]).crashes == 1
    with pytest.raises(Conflict):
        new.queues.enqueue(keyed(2, key="a"))
    stage.clock.advance(60)
    new.end(new.claim(jobs["unique"]), Outcome("done", new.now_us))
    new.queues.enqueue(keyed(3, key="a"))
    assert len(list(flow_records.listed(new.store))) == 1
    (schedule,) = all_stored(new.store)
    assert schedule.name == "s"
    assert semaphore.capacities(new.store) == {"api": 3}
    new.queues.retry(jobs["dead"])
    assert new.queues.engine.catalog.settings("w").is_paused


def test_a_frozen_store_starts_and_accepts_nothing(stage: Stage) -> None:
    job, waits = stage.old.claim(stage.old.put()), stage.old.put(queue="w", after_s=3600)
    other = stage.old.other()
    other.engine.catalog.settings("q")
    refused = 0

    def report(text: str) -> None:
        nonlocal refused
        if text.startswith("waiting for job"):
            stage.clock.advance(6)
            assert "frozen" in raised(lambda: other.engine.catalog.expect_here("q"))
            assert "frozen" in raised(lambda: World.put(stage.old))
            assert explain(stage.old.other(), waits).reason == "frozen"
            refused += 1
            stage.old.end(job, Outcome("done", stage.old.now_us, value="7"))

    manifest = stage.export(report=report)
    assert refused == 1
    assert manifest.counts["result"] == 1
    assert manifest.counts["job"] == 1
    stage.clock.advance(6)
    other.engine.catalog.expect_here("q")


@pytest.mark.parametrize("stage", LOCAL, indirect=True)  # servers expire records by their clocks
def test_a_killed_export_leaves_no_export_and_thaws_by_itself(stage: Stage) -> None:
    stage.fill()
    before = digest_of(stage.old)
    died = 0
    for dies_at in count(1, 4):
        folder = stage.folder / str(dies_at)
        try:
            stage.export(folder, dies_at=dies_at)
        except Died:
            died += 1
        else:
            break
        if (folder / MANIFEST).exists():  # all but the end of the freeze
            Reader(folder).check()
        else:
            with pytest.raises(BadInput, match="no complete export"):
                Reader(folder)
        stage.clock.advance(FROZEN_US / SECOND_US + 1)
        assert FROZEN not in names_of(stage.old.store)
    assert died > 9
    assert digest_of(stage.old) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("memory", "memory"), marks=pytest.mark.memory),
        pytest.param(("memory", "steps"), marks=pytest.mark.memory),
    ],
)
def test_an_import_goes_on_after_a_kill_at_each_call(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    stage = Stage(kinds, tmp_path)
    stage.fill()
    manifest = stage.export()
    for dies_at in count(1, 2):
        stage.new = World(store_on(kinds[1], tmp_path, stage.clock), stage.clock)
        try:
            stage.load(dies_at=dies_at)
        except Died:
            state = names_of(stage.new.store)
        else:
            break
        is_closed = any(name.startswith("being filled") for name in state)
        jobs = digest_of(stage.new)[0].get("job", 0)
        assert is_closed or jobs in (0, manifest.counts["job"])
        stage.load()
        assert digest_of(stage.new) == (manifest.counts, manifest.digest)
    assert dies_at > 40
    assert stage.load().was_done


def test_bad_input_is_refused(stage: Stage) -> None:
    stage.fill()
    stage.export()
    with pytest.raises(Conflict, match="holds an export"):
        stage.export()
    stage.new.put()
    with pytest.raises(Conflict, match="not empty"):
        stage.load()
    manifest = json.loads((stage.folder / MANIFEST).read_bytes())
    part = stage.folder / manifest["parts"][0]["file"]
    content = part.read_bytes()
    part.write_bytes(content[:-9])
    with pytest.raises(BadInput, match="cut or changed"):
        stage.load(merges=True)
    part.write_bytes(content)
    for changes, words in (
        ({"format": 2}, "format 2"),
        ({"features": ["telepathy"]}, "telepathy"),
        ({"digest": "0" * 64}, "not those of its manifest"),
        ({"parts": [{**manifest["parts"][0], "file": "../x"}]}, "outside"),
    ):
        (stage.folder / MANIFEST).write_text(json.dumps(manifest | changes))
        with pytest.raises(BadInput, match=words):
            stage.load(merges=True)
    (stage.folder / MANIFEST).write_text(json.dumps(manifest))
    assert stage.load(merges=True).jobs == manifest["counts"]["job"]


def test_a_store_that_differs_after_the_import_stays_closed(stage: Stage) -> None:
    stage.fill()
    stage.export()
    add = stage.new.store.add

    def forgetful(jobs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return [*add(jobs[1:]), True]

    stage.new.store.add = forgetful  # type: ignore[method-assign]
    assert "lines of the kind job" in raised(stage.load)
    stage.clock.advance(6)
    with pytest.raises(StoreUnavailable, match="still being filled"):
        stage.new.other().engine.catalog.settings("q")


def test_a_merge_keeps_what_the_store_has(stage: Stage) -> None:
    jobs = stage.fill()
    stage.export()
    stage.new.queues.engine.catalog.configure("q", keep_us=5 * SECOND_US)
    mine = stage.new.put(queue="x")
    stage.load(merges=True)
    assert stage.new.row(mine)
    assert stage.new.row(jobs["later"]).at_us == stage.old.row(jobs["later"]).at_us
    assert stage.new.other().engine.catalog.settings("q").keep_us == 5 * SECOND_US


def test_lines_are_readable(stage: Stage) -> None:
    stage.fill()
    stage.export()
    lines = [
        json.loads(line)
        for path in sorted(stage.folder.glob("part-*"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    (failed,) = (line for line in lines if line["kind"] == "job" and line["queue"] == "w")
    assert (failed["task"], failed["body"], failed["errors"]) == ("t", "[1]", 2)
    (settings,) = (
        line for line in lines
        if line["kind"] == "record" and (line["partition"], line["key"]) == ("queues", "w")
    )  # fmt: skip
    assert json.loads(settings["value"])["is_paused"]


def test_jobs_keep_their_places_in_the_orders_of_keys(stage: Stage) -> None:
    """Also those that were released (T16)."""
    opts = CallOptions(order=OrderPlace("a")).to_bytes()
    old = stage.old.queues
    first, second = old.enqueue(EnqueueRequest("q", "work", 0, [b"[1]", b"[2]"], opts=opts))
    stage.export()
    stage.load()
    engine = stage.new.queues.engine
    row = orders.first_of(engine, "q", "a")
    assert row is not None
    assert row.id == first.id
    turns = orders.judge(engine, list(engine.jobs_of("q")))
    assert {job_id: turn.first.id for job_id, turn in turns.items()} == {second.id: first.id}
