"""A store names the features that it uses, and who does not know one refuses it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, pipeline
from dueline.core.errors import SchemaMismatch
from dueline.core.features import BASE, KNOWN, OF_NEW, PARTITION, names_of
from dueline.core.ids import Ids
from dueline.core.queue_catalog import SETTINGS_AGE_US_MAX, Catalog
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import NO_VERSION, Delete, Put, Store
from tests.harness.clocks import HandClock

LATER = "telepathy"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on a new file."""
    app = Dueline(f"sqlite:///{tmp_path}/q.db")
    yield app
    app.close()


def used(app: Dueline) -> set[str]:
    """Return the features that the application's store names."""
    return set(names_of(app.store))


def plant(store: Store) -> None:
    """Use a feature as a later version does."""
    put = Put(LATER, b"1", b'{"version":"9.0.0"}', expect=NO_VERSION)
    assert store.commit(PARTITION, (put,))


def test_a_store_names_what_a_new_one_does_whatever_runs(app: Dueline) -> None:
    app.semaphore("one", capacity=1)

    @app.task(name="limited", limits=["one"])
    def limited() -> None: ...

    @app.task(name="free")
    def free() -> None: ...

    assert used(app) == set()
    limited.using(headers={"by": "ann"}).enqueue()
    app.start(pipeline(free.step(), free.step().alone()))
    app.schedule("nightly", free, cron="0 3 * * *")
    free.enqueue_many([()] * 20)
    app.run_worker(burst=True)
    assert used(app) == {BASE}


def test_each_feature_is_named_by_its_first_use(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.core.features.KNOWN", KNOWN | {LATER})
    catalog = app.queues.engine.catalog
    catalog.settings("default")
    before = catalog.entry("default")
    assert used(app) == {BASE}
    catalog.adopt(LATER)
    assert used(app) == {BASE, LATER}
    after = catalog.entry("default")
    assert before is not None
    assert after is not None
    assert before.version != after.version  # every process reads the names again
    catalog.adopt(LATER)
    again = catalog.entry("default")
    assert again is not None
    assert again.version == after.version


def test_a_process_that_does_not_know_a_feature_refuses_the_store(app: Dueline) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    plain.enqueue()
    plant(app.store)
    other = Dueline(app.url)
    with pytest.raises(SchemaMismatch, match=LATER) as refused:
        other.queues.engine.catalog.settings("default")
    assert "Upgrade" in refused.value.hint
    with pytest.raises(SchemaMismatch, match=LATER):
        other.queues.engine.catalog.adopt(BASE)
    other.close()
    assert used(app) == {BASE, LATER}


def test_a_migration_uses_what_a_new_store_does(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = app.queues.engine.catalog
    assert catalog.upgrade() == []  # no queue yet
    catalog.settings("default")
    assert catalog.upgrade() == []
    monkeypatch.setattr("dueline.core.features.KNOWN", KNOWN | {LATER})
    monkeypatch.setattr("dueline.core.features.OF_NEW", (*OF_NEW, LATER))
    assert catalog.upgrade() == [LATER]
    assert used(app) == {BASE, LATER}
    assert catalog.upgrade() == []


def test_a_store_of_a_development_version_is_refused(app: Dueline) -> None:
    app.queues.engine.catalog.settings("default")
    assert app.store.commit(PARTITION, (Delete(BASE),))
    words = r"queues without history columns: a development version before 1\.0 made it"
    other = Dueline(app.url)
    with pytest.raises(SchemaMismatch, match=words) as refused:
        other.queues.engine.catalog.settings("default")
    assert "Make a new store" in refused.value.hint
    with pytest.raises(SchemaMismatch, match=words):
        other.queues.engine.catalog.upgrade()
    other.close()
    assert used(app) == set()


def test_a_worker_ends_politely_and_its_jobs_wait(app: Dueline, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        f"from dueline import Dueline\napp = Dueline({app.url!r})\n"
        "@app.task\ndef plain() -> None: ...\n",
        encoding="utf-8",
    )
    app.queues.engine.catalog.settings("default")
    plant(app.store)
    command = [sys.executable, "-m", "dueline", "worker", "tasks:app"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 3
    assert LATER in ended.stderr
    assert "Upgrade this process" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_who_worked_before_stops_within_seconds(
    store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = QueueSettings()
    older = Catalog(store, clock=clock, ids=Ids(), defaults=defaults)
    newer = Catalog(store, clock=clock, ids=Ids(), defaults=defaults)
    older.settings("mail")
    known = older.entry("mail")
    assert known is not None
    assert older.is_current("mail", known.version)
    with monkeypatch.context() as patch:
        patch.setattr("dueline.core.features.KNOWN", KNOWN | {LATER})
        newer.adopt(LATER)
    # Where lane lists are read, they answer that the settings are others now.
    after = newer.entry("mail")
    assert after is not None
    assert not older.is_current("mail", after.version)
    # And who reads none asks again before long.
    clock.advance(us=SETTINGS_AGE_US_MAX)
    with pytest.raises(SchemaMismatch, match=LATER):
        older.settings("mail")


def test_a_feature_of_a_transaction_that_is_rolled_back_is_not_named(app: Dueline) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    class Stop(Exception): ...

    def enqueue_and_stop() -> None:
        with app.transaction() as tx:
            plain.using(tx=tx).enqueue()
            raise Stop

    with pytest.raises(Stop):
        enqueue_and_stop()
    assert used(app) == set()
    plain.enqueue()
    assert used(app) == {BASE}


@pytest.mark.slow
def test_the_doctor_lists_them(app: Dueline) -> None:
    app.queues.engine.catalog.settings("default")
    command = [sys.executable, "-m", "dueline", "--store", app.url, "doctor"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "features" in shown.stdout
    assert BASE in shown.stdout
