"""Forgetting: no byte of a person's payload is left in the tables, and audits stay clean (P13)."""

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import Dueline, Retry
from dueline.core.errors import Conflict
from tests.harness.object_store import object_store
from tests.harness.shell import Shell
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import attempt, made, quiet, rows_in, table_in

pytest.importorskip("deltalake")

SECRETS = (b"ann.secret@example.com", b"ann.result", b"ann-card")
"""Parts of a person's arguments, errors and limits."""

TENANT = "ann"


class Shop:
    """A store with two tenants, whose jobs fail in several ways; its tables and an archive."""

    def __init__(self, folder: Path, jobs: int = 60) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
        self.app.queue("mail", shards=2, history="arguments")

        @self.app.task(name="charge", queue="mail", retry=Retry(attempts=3, base=0.001, cap=0.001))
        def charge(who: str, number: int) -> str:
            if number % 7 == 0:
                raise ValueError(f"no money at {who}")
            if number % 5 == 0:
                raise KeyError(f"no card of {who}")
            return f"{who.partition('.')[0]}.result"

        self.charge = charge
        self.ids: dict[str, list[str]] = {}
        self.live_on(jobs)

    def live_on(self, jobs: int) -> None:
        """Run jobs of both tenants."""
        for tenant in (TENANT, "bob"):
            who = f"{tenant}.secret@example.com"
            calls = self.charge.using(tenant=tenant)
            self.ids[tenant] = [calls.enqueue(who, number).id for number in range(jobs)]
        self.app.run_worker(burst=True)

    def pipe(self, engine: str = "duckdb") -> Any:
        """Return the pipeline."""
        return made(self.lake, self.app, engine)

    def archive(self) -> Any:
        """Return the place of an archive, and make it."""
        from dueline.spark.pipeline.delta import place_of

        place = place_of(str(self.folder / "october"))
        self.pipe().archive(place, quiet)
        return place


def tenant() -> Any:
    """Return whose data is forgotten."""
    from dueline.spark.pipeline.erasure import Subject

    return Subject(tenant=TENANT)


def cells(folder: Path) -> set[bytes]:
    """Read every cell of every Parquet file below a folder, live or not, and every log as bytes."""
    from pyarrow import parquet

    found: set[bytes] = set()
    for file in folder.rglob("*"):
        if file.suffix == ".parquet":
            for row in parquet.read_table(file, partitioning=None).to_pylist():
                found.update(repr(cell).encode() for cell in row.values())
        elif file.is_file():
            found.add(file.read_bytes())
    return found


def left_in(folder: Path, secrets: tuple[bytes, ...] = SECRETS) -> set[bytes]:
    """Return the secrets that are still there."""
    there = cells(folder)
    return {secret for secret in secrets if any(secret in cell for cell in there)}


def expect_right(shop: Shop, engine: str = "duckdb") -> None:
    """Tables agree with bronze as if they had been made anew from it, and all checks are good."""
    pipe = shop.pipe(engine)
    names = "silver", "gold_failure", "poison"
    before = {name: rows_in(shop.lake, name) for name in names}
    assert all(check.is_good for check in pipe.verify())
    assert not pipe.audit(quiet, is_full=True).has_failed
    for name in names:
        rmtree(shop.lake / name)
    pipe.run([], quiet)
    assert {name: rows_in(shop.lake, name) for name in names} == before


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Make a shop with tables."""
    made = Shop(tmp_path)
    made.pipe().run([], quiet)
    return made


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.long)])
def test_no_byte_is_left_of_a_tenant_and_the_audit_is_clean(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    shop = Shop(tmp_path)
    shop.pipe(engine).run([], quiet)
    shop.live_on(20)
    shop.pipe(engine).run([], quiet)
    shop.pipe().audit(quiet)
    place = shop.archive()
    for folder in (shop.lake, shop.folder / "october"):
        assert left_in(folder) == {SECRETS[0]}
    others = left_in(shop.lake, (b"bob.secret@example.com",))
    done = {table.table: table for table in shop.pipe(engine).forget(tenant(), quiet, [place])}
    assert done["bronze"].rows == done["bronze"].removed > 80
    assert done["bronze"].files >= 2
    assert left_in(tmp_path / "lake") == left_in(tmp_path / "october") == set()
    assert left_in(shop.lake, (b"bob.secret@example.com",)) == others
    from dueline.spark.pipeline.archive import verify

    assert all(check.is_good for check in verify(place, quiet))
    shop.live_on(0)
    shop.charge.using(tenant="bob").enqueue("bob", 7)
    shop.app.run_worker(burst=True)
    shop.pipe(engine).run([], quiet)
    expect_right(shop, engine)


def test_only_the_rows_of_a_job_lose_their_content(shop: Shop) -> None:
    from dueline.spark.pipeline.erasure import FORGOTTEN, Subject

    job = shop.ids[TENANT][35]
    before = [dict(row) for row in rows_in(shop.lake, "bronze").elements()]
    shop.pipe().forget(Subject(jobs=(job,)), quiet)
    rows = [dict(row) for row in rows_in(shop.lake, "bronze").elements()]
    digits = job.replace("-", "")
    assert [row for row in rows if row["job_id"] != digits] == [
        row for row in before if row["job_id"] != digits
    ]
    theirs = [row for row in rows if row["job_id"] == digits]
    assert len(theirs) == 4
    assert {row["error"] for row in theirs} == {"", FORGOTTEN}
    assert {(row["payload"], row["codec"], row["payload_bytes"]) for row in theirs} == {
        (None, None, None)
    }
    expect_right(shop)


def test_failures_of_a_key_are_counted_as_if_they_always_had_been_alike(tmp_path: Path) -> None:
    from dueline.spark.pipeline.erasure import FORGOTTEN, Subject
    from dueline.spark.writing.keys import job_id_of

    lake = Lake(tmp_path / "lake")
    job, other = job_id_of("order 1", "mail"), job_id_of("b")
    errors = ("KeyError: ann", "ValueError: ann", "KeyError: ann")
    dead = [attempt(job, fence, "dead", error=text) for fence, text in enumerate(errors, 1)]
    later = attempt(job, 4, "dead", error="ValueError: ann")
    lake.add([*dead, attempt(other, 1, "dead", error="KeyError: bob", limits="of ann")])
    store: Any = SimpleNamespace(url="memory://")
    pipe = made(tmp_path / "lake", store)
    done = pipe.forget(Subject(key="order 1"), quiet)
    assert [(table.table, table.rows, table.removed) for table in done] == [
        ("bronze", 3, 3), ("silver", 3, 3), ("gold_failure", 0, 0), ("poison", 0, 0),
    ]  # fmt: skip
    (found,) = (row for row in lines(lake, "poison") if row["fingerprint"] == FORGOTTEN)
    assert (found["jobs"], found["attempts"], found["dead"]) == (1, 3, 3)
    lake.add([later])
    lake.run()
    assert {row["fingerprint"]: row["jobs"] for row in lines(lake, "poison")} == {
        FORGOTTEN: 1, "KeyError: bob": 1, "ValueError: ann": 1,
    }  # fmt: skip
    pipe.forget(Subject(key="order 1"), quiet)
    pipe.forget(Subject(jobs=(other,)), quiet)
    assert left_in(tmp_path, (b"ann", b"bob")) == set()


def lines(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Read a table."""
    from dueline.spark.pipeline.queries import lines_in

    return lines_in(lake.table(table).view().dataset().to_table())


def test_a_kill_at_each_commit_and_a_repetition(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline.delta import Table

    class Killed(BaseException):
        """The process ends here."""

    place = shop.archive()
    moments = 0
    for step in ("commit", "delete_unnamed"):
        for nth in range(1, 10):
            calls = iter(range(1, 100))
            whole: Callable[..., Any] = getattr(Table, step)

            def die(
                self: Any, *words: Any, calls: Any = calls, nth: int = nth, whole: Any = whole,
                **named: Any,
            ) -> Any:  # fmt: skip
                if next(calls) == nth:
                    raise Killed
                return whole(self, *words, **named)

            with monkeypatch.context() as patched:
                patched.setattr(Table, step, die)
                try:
                    shop.pipe().forget(tenant(), quiet, [place])
                except Killed:
                    moments += 1
    assert moments == 10  # three tables of rows, and two of counts
    done = shop.pipe().forget(tenant(), quiet, [place])
    assert {table.removed for table in done} == {0}
    assert left_in(shop.lake) == left_in(shop.folder / "october") == set()
    expect_right(shop)


def test_a_run_that_has_read_the_rows_before_adds_nothing_of_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline.delta import Table

    whole = Table.commit
    names: list[str] = []

    def slow(self: Any, *words: Any, **named: Any) -> None:
        name = self.design.name
        if name in ("bronze", "silver", "gold_failure", "poison") and name not in names:
            names.append(name)
            monkeypatch.setattr(Table, "commit", whole)
            shop.pipe().forget(tenant(), quiet)
            monkeypatch.setattr(Table, "commit", slow)
        whole(self, *words, **named)

    for _ in range(4):
        shop.live_on(8)
        monkeypatch.setattr(Table, "commit", slow)
        with pytest.raises(Conflict):
            shop.pipe().run([], quiet)
        monkeypatch.setattr(Table, "commit", whole)
    assert names == ["bronze", "silver", "gold_failure", "poison"]
    shop.pipe().run([], quiet)
    shop.pipe().forget(tenant(), quiet)
    assert left_in(shop.lake) == set()
    expect_right(shop)


def test_what_the_command_refuses_and_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop.folder)
    shell = Shell(shop.folder, capsys)
    command = ("pipeline", "forget", "--out", "lake")
    for words in ((), ("--job", "a", "--tenant", "ann"), ("--tenant", "")):
        assert shell(*command, *words, "--yes").code == 2
    for words in (("--job", "0" * 32), ("--tenant", "nobody"), ("--key", "none")):
        answer = shell(*command, *words, "--yes")
        assert (answer.code, "No row of the tables is of" in answer.err) == (4, True)
    assert shell(*command, "--tenant", "ann", "--queue", "other", "--yes").code == 4
    assert shell(*command, "--tenant", "ann", "--archive", "none", "--yes").code == 4
    assert shell("pipeline", "forget", "--out", "void", "--tenant", "ann", "--yes").code == 4
    assert shell(*command, "--tenant", "ann").code == 5  # nobody confirms
    planned = shell(*command, "--tenant", "ann", "--dry-run", "-o", "json")
    assert {table["files"] for table in planned.data} == {0}
    assert left_in(shop.lake)
    answer = shell(*command, "--tenant", "ann", "--yes", "-o", "json")
    assert (answer.code, left_in(shop.lake)) == (0, set())
    assert answer.data[0]["removed"] == planned.data[0]["removed"] > 0
    assert "The store" in answer.err


@pytest.mark.long
def test_an_object_store_holds_nothing_of_it_either(shop: Shop) -> None:
    from pyarrow import fs

    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.pipeline import pipeline

    with object_store(shop.folder) as options:
        place = place_of("s3://lake/tables", options)
        pipe = pipeline(place, Settings(shop.app.url), engine="duckdb")
        pipe.run([], quiet)
        shop.live_on(10)
        pipe.run([], quiet)
        done = {table.table: table for table in pipe.forget(tenant(), quiet)}
        assert done["bronze"].files >= 2
        copy = fs.SubTreeFileSystem(str(shop.folder), fs.LocalFileSystem())
        fs.copy_files("", "copy", source_filesystem=place.open(), destination_filesystem=copy)
    names = (b"bob.secret@example.com", *SECRETS)
    assert left_in(shop.folder / "copy", names) == set(names[:1])


def test_writers_that_opened_a_table_before_cannot_name_deleted_files(shop: Shop) -> None:
    shop.live_on(10)
    shop.pipe().run([], quiet)
    merging, writing = table_in(shop.lake, "bronze"), table_in(shop.lake, "bronze")
    files = writing.writer.write(writing.view().dataset().to_table())
    assert merging.files()
    assert table_in(shop.lake, "bronze").delete_unnamed() == len(files)
    with pytest.raises(Conflict):
        merging.optimize()
    with pytest.raises(Conflict):
        writing.commit(files)
    shop.pipe().optimize(quiet)
    shop.pipe().forget(tenant(), quiet)
    assert left_in(shop.lake) == set()
