"""Which queues there are, what they are set to."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.codec import encode
from dueline.core.errors import BadInput, Conflict, NotFound, StoreCorrupt
from dueline.core.ids import Ids
from dueline.core.queue_catalog import SETTINGS_AGE_US_MAX, Catalog
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import SETTINGS_PARTITION, Put, Store
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Interrupted

DEFAULTS = QueueSettings(lease_us=7 * SECOND_US)


def catalog_of(store: Store, clock: HandClock) -> Catalog:
    """Make the catalog of another client."""
    return Catalog(store, clock=clock, ids=Ids(), defaults=DEFAULTS)


@pytest.fixture
def catalog(store: Store, clock: HandClock) -> Catalog:
    """Make a catalog of an empty store."""
    return catalog_of(store, clock)


def test_a_queue_is_made_at_its_first_use(catalog: Catalog) -> None:
    # C16
    assert catalog.names() == []
    assert catalog.settings("mail") == DEFAULTS
    assert catalog.names() == ["mail"]


def test_what_is_set_is_read_by_every_client(
    catalog: Catalog, store: Store, clock: HandClock
) -> None:
    set_to = catalog.configure("mail", shards=8, keep_us=0, history="off")
    assert set_to == QueueSettings(8, 8, DEFAULTS.width_us, DEFAULTS.lease_us, "off", 0)
    other = Catalog(store, clock=clock, ids=Ids(), defaults=QueueSettings())
    assert other.settings("mail") == set_to


def test_a_change_is_seen_everywhere_within_five_seconds(
    catalog: Catalog, store: Store, clock: HandClock
) -> None:
    # O5
    other = catalog_of(store, clock)
    other.settings("mail")
    catalog.configure("mail", lease_us=SECOND_US)
    clock.advance(us=SETTINGS_AGE_US_MAX - 1)
    assert other.settings("mail").lease_us == DEFAULTS.lease_us
    clock.advance(us=1)
    assert other.settings("mail").lease_us == SECOND_US
    assert SETTINGS_AGE_US_MAX < 5 * SECOND_US


def test_settings_are_not_read_again_before_that(store: Store, clock: HandClock) -> None:
    # O3
    counting = FailingStore(store, {})
    catalog = catalog_of(counting, clock)
    catalog.settings("mail")
    asked = counting.calls
    for _ in range(100):
        catalog.settings("mail")
        clock.advance(us=SETTINGS_AGE_US_MAX // 101)
    assert counting.calls == asked


def test_a_store_that_answers_late_is_not_read_for_each_use(store: Store, clock: HandClock) -> None:
    """A worker uses the settings of a queue several times for each job."""
    late = Interrupted(store, 0, lambda: None)
    catalog = catalog_of(late, clock)
    catalog.settings("mail")
    clock.advance(us=SETTINGS_AGE_US_MAX)
    late.calls, late.number, late.act = 0, 1, lambda: clock.advance(5)
    catalog.settings("mail")
    asked = late.calls
    for _ in range(9):
        clock.advance(5 - 0.001)
        catalog.settings("mail")
    assert late.calls == asked
    catalog.expect_here("mail")  # for what is inserted or claimed
    assert late.calls > asked
    asked = late.calls
    clock.advance(5)
    catalog.settings("mail")  # that read was quick
    assert late.calls > asked


def test_a_change_is_seen_at_once_by_the_version_that_lanes_answer(
    catalog: Catalog, store: Store, clock: HandClock
) -> None:
    other = catalog_of(store, clock)
    other.settings("mail")

    def version() -> bytes:
        page = store.lanes("mail", 0, until_bucket=0, after=None, limit=1)
        return page.settings_version

    assert other.is_current("mail", version())
    catalog.configure("mail", lease_us=SECOND_US)
    assert not other.is_current("mail", version())
    other.forget("mail")
    assert other.settings("mail").lease_us == SECOND_US
    assert other.is_current("mail", version())
    assert not other.is_current("unread", version())


def test_shards_that_there_once_were_are_read_on(catalog: Catalog) -> None:
    assert catalog.configure("mail", shards=8).shards_read == 8
    fewer = catalog.configure("mail", shards=2)
    assert (fewer.shards, fewer.shards_read) == (2, 8)
    more = catalog.configure("mail", shards=16)
    assert (more.shards, more.shards_read) == (16, 16)


def test_settings_out_of_range_change_nothing(catalog: Catalog) -> None:
    before = catalog.configure("mail", shards=2)
    with pytest.raises(BadInput, match=r"`shards` must be .*got 0"):
        catalog.configure("mail", shards=0)
    catalog.forget("mail")
    assert catalog.settings("mail") == before
    with pytest.raises(BadInput):
        catalog.configure("new", lease_us=0)
    assert catalog.names() == ["mail"]


def test_a_change_to_what_is_set_already_writes_nothing(catalog: Catalog, store: Store) -> None:
    catalog.configure("mail", shards=2)
    (before,) = store.read(SETTINGS_PARTITION, after=None, limit=9)
    catalog.configure("mail", shards=2)
    assert list(store.read(SETTINGS_PARTITION, after=None, limit=9)) == [before]


@pytest.mark.parametrize("name", ["", "Mail", "mail!dead", "a/b"])
def test_a_name_that_is_refused_is_not_made(catalog: Catalog, name: str) -> None:
    for use in (catalog.settings, catalog.configure, catalog.chosen):
        with pytest.raises(BadInput, match="not a queue name"):
            use(name)
    assert catalog.names() == []


@pytest.mark.long
def test_a_queue_is_told_from_all_whose_names_begin_alike(catalog: Catalog) -> None:
    # more names of one beginning than fit a page
    for number in range(520):
        catalog.configure(f"t{number:04}", shards=1 + number)
    for name in ("t", "t0", "t00", "t8_z", "t9", "tyz", "tz", "t-", "t_", "t0519-"):
        assert catalog.configure(name, shards=3).shards == 3
        catalog.forget(name)
        assert catalog.settings(name).shards == 3
    assert len(catalog.names()) == 530
    assert catalog.names() == sorted(catalog.names())
    catalog.forget("t0007")
    assert catalog.settings("t0007").shards == 8


def test_one_queue_or_all_of_them_are_chosen_and_none_is_made(catalog: Catalog) -> None:
    assert catalog.chosen(None) == []
    with pytest.raises(NotFound, match="no queue mail"):
        catalog.chosen("mail")
    catalog.settings("mail")
    catalog.settings("etl")
    assert catalog.chosen(None) == ["etl", "mail"]
    assert catalog.chosen("mail") == ["mail"]
    with pytest.raises(NotFound) as raised:
        catalog.chosen("other")
    assert raised.value.hint == "Queues: etl, mail."


def test_settings_that_cannot_be_read_are_damage(catalog: Catalog, store: Store) -> None:
    store.commit(SETTINGS_PARTITION, (Put("mail", b"v" * 16, b'{"shards":"many"}'),))
    with pytest.raises(StoreCorrupt, match="QueueSettings"):
        catalog.settings("mail")


class Overtaken(FailingStore):
    """Someone else writes just before each write of ours; `times` times."""

    def __init__(self, store: Store, times: int) -> None:
        super().__init__(store, {})
        self.others = store
        self.times = times

    def commit(self, partition, writes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        if self.times and partition == SETTINGS_PARTITION:
            self.times -= 1
            lease_us = SECOND_US + self.times
            value = encode(QueueSettings(lease_us=lease_us))
            self.others.commit(partition, (Put("mail", Ids().token(), value),))
        return super().commit(partition, writes)


def test_of_two_changes_at_once_neither_is_lost(store: Store, clock: HandClock) -> None:
    catalog = catalog_of(Overtaken(store, 2), clock)
    assert catalog.configure("mail", shards=4) == QueueSettings(4, 4, lease_us=SECOND_US)


def test_a_change_that_is_overtaken_again_and_again_is_given_up(
    store: Store, clock: HandClock
) -> None:
    catalog = catalog_of(Overtaken(store, 100), clock)
    with pytest.raises(Conflict, match="The settings of mail keep changing"):
        catalog.configure("mail", shards=4)


def test_a_queue_that_vanishes_each_time_is_given_up(store: Store, clock: HandClock) -> None:
    class Forgetful(FailingStore):
        def commit(self, *_: object) -> bool:
            return False

    with pytest.raises(Conflict, match="The queue mail cannot be created"):
        catalog_of(Forgetful(store, {}), clock).settings("mail")


MAKER = """
import json, sys
from pathlib import Path
from dueline.core.queue_catalog import Catalog
from dueline.core.clock import SystemClock
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.stores.sqlite.store import SqliteStore

path, number = sys.argv[1], int(sys.argv[2])
clock = SystemClock()
store = SqliteStore(Path(path), clock=clock, synchronous="NORMAL")
catalog = Catalog(store, clock=clock, ids=Ids(), defaults=QueueSettings(lease_us=10**6 * number))
store.clock_us(), catalog.names()
print("ready", flush=True)
sys.stdin.readline()
made = catalog.settings("mail").lease_us
catalog.configure("mail", **{("shards", "keep_us")[number % 2]: 100 + number})
print(json.dumps(made))
"""


@pytest.mark.slow
@pytest.mark.sqlite
def test_processes_that_make_the_same_queue_make_one(tmp_path: Path) -> None:
    # C16
    path = tmp_path / "jobs.db"
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    try:
        for process in crew:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in crew:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        made = {json.loads(process.communicate(timeout=300)[0]) for process in crew}
    finally:
        for process in crew:
            process.kill()
            process.wait()
    assert len(made) == 1, "both must read what one of them made"
    store = SqliteStore(path, clock=SystemClock())
    settings = Catalog(store, clock=SystemClock(), ids=Ids(), defaults=DEFAULTS).settings("mail")
    store.close()
    assert (settings.shards, settings.keep_us) == (102, 101)
    assert settings.lease_us in made
