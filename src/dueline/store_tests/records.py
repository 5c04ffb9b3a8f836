"""Small versioned values."""

from dueline.core.clock import SECOND_US
from dueline.core.store import (
    NO_VERSION,
    SETTINGS_PARTITION,
    Commit,
    Delete,
    Group,
    Put,
    Record,
    Store,
    Write,
)
from dueline.core.store_capabilities import ListsRecords
from dueline.store_tests.calls import lane_of, pointers_in, records_in, rows_in, token_of
from dueline.store_tests.factory import StoreFactory

HOUR_US = 3_600_000_000
SOON_US = 20_000
ONE, TWO, THREE = (bytes(token_of(number)) for number in (1, 2, 3))


class RecordLaws:
    """A commit is applied all or nothing."""

    def test_a_record_is_read_back_as_it_was_put(self, store: Store) -> None:
        values = {"": b"", "a": bytes(range(256)), "ä€😀": b"x" * 100_000, "A/b c": b"\x00"}
        for key, value in values.items():
            assert store.commit("p", [Put(key, ONE, value)])
        assert records_in(store, "p") == [
            Record(key, ONE, value) for key, value in sorted(values.items())
        ]

    def test_records_come_in_the_order_of_their_keys(self, store: Store) -> None:
        keys = ["b", "a", "B", "ab", "a-", "10", "9", "é", "z", "😀", "\uffef"]
        assert store.commit("p", [Put(key, ONE, b"") for key in keys])
        for page_size in (1, 2, 3, 11, 12):
            read = records_in(store, "p", page_size=page_size)
            assert [record.key for record in read] == sorted(keys)
        assert [record.key for record in store.read("p", after="ab", limit=2)] == ["b", "z"]
        assert [record.key for record in store.read("p", after="aa", limit=1)] == ["ab"]

    def test_partitions_know_nothing_of_each_other(self, store: Store) -> None:
        for number, partition in enumerate(("p", "P", "p/", "pp", "")):
            assert store.commit(partition, [Put("key", token_of(number + 1), b"", NO_VERSION)])
        for number, partition in enumerate(("p", "P", "p/", "pp", "")):
            assert records_in(store, partition) == [Record("key", token_of(number + 1), b"")]
        assert records_in(store, "nothing") == []

    def test_a_put_that_expects_nothing_of_the_record_always_holds(self, store: Store) -> None:
        assert store.commit("p", [Put("key", ONE, b"1", expect=None)])
        assert store.commit("p", [Put("key", TWO, b"2", expect=None)])
        assert records_in(store, "p") == [Record("key", TWO, b"2")]

    def test_a_put_that_expects_no_record_holds_once(self, store: Store) -> None:
        assert store.commit("p", [Put("key", ONE, b"1", expect=NO_VERSION)])
        assert not store.commit("p", [Put("key", TWO, b"2", expect=NO_VERSION)])
        assert records_in(store, "p") == [Record("key", ONE, b"1")]

    def test_a_put_that_expects_a_version_holds_on_that_one(self, store: Store) -> None:
        assert not store.commit("p", [Put("key", TWO, b"2", expect=ONE)])
        assert records_in(store, "p") == []
        assert store.commit("p", [Put("key", ONE, b"1")])
        assert store.commit("p", [Put("key", TWO, b"2", expect=ONE)])
        assert not store.commit("p", [Put("key", THREE, b"3", expect=ONE)])
        assert records_in(store, "p") == [Record("key", TWO, b"2")]

    def test_a_delete_holds_as_it_expects(self, store: Store) -> None:
        assert store.commit("p", [Put("key", ONE, b"1")])
        assert not store.commit("p", [Delete("key", expect=TWO)])
        assert not store.commit("p", [Delete("key", expect=NO_VERSION)])
        assert records_in(store, "p") == [Record("key", ONE, b"1")]
        assert store.commit("p", [Delete("key", expect=ONE)])
        assert records_in(store, "p") == []
        assert not store.commit("p", [Delete("key", expect=ONE)])
        assert store.commit("p", [Delete("key", expect=NO_VERSION)])
        assert store.commit("p", [Delete("key")])
        assert store.commit("p", [Put("key", TWO, b"2", expect=NO_VERSION)])

    def test_one_expectation_that_fails_fails_the_whole_commit(self, store: Store) -> None:
        assert store.commit("p", [Put("a", ONE, b"1"), Put("b", ONE, b"1")])
        before = records_in(store, "p")
        refused: tuple[list[Write], ...] = (
            [Put("a", TWO, b"2", ONE), Put("c", TWO, b"2"), Put("b", TWO, b"2", TWO)],
            [Delete("a"), Put("c", TWO, b"2", ONE)],
            [Put("b", TWO, b"2", NO_VERSION), Delete("a", ONE)],
            [Put("c", TWO, b"2"), Delete("b", THREE)],
        )
        for writes in refused:
            assert not store.commit("p", writes)
            assert records_in(store, "p") == before

    def test_a_commit_that_holds_writes_the_whole(self, store: Store) -> None:
        assert store.commit("p", [Put("a", ONE, b"1"), Put("b", ONE, b"1")])
        writes: list[Write] = [
            Put("a", TWO, b"2", ONE),
            Delete("b", ONE),
            Put("c", TWO, b"2", NO_VERSION),
        ]
        assert store.commit("p", writes)
        assert records_in(store, "p") == [Record("a", TWO, b"2"), Record("c", TWO, b"2")]
        assert store.commit("p", [])

    def test_an_expired_record_is_absent(self, store: Store) -> None:
        now_us = store.clock_us()
        expired = Put("b", ONE, b"1", expires_us=now_us - HOUR_US)
        living = Put("c", ONE, b"1", expires_us=now_us + HOUR_US)
        assert store.commit("p", [Put("a", ONE, b"1"), expired, living, Put("d", ONE, b"1")])
        assert [record.key for record in records_in(store, "p", page_size=1)] == ["a", "c", "d"]
        assert [record.key for record in store.read("p", after="a", limit=1)] == ["c"]
        assert not store.commit("p", [Put("b", TWO, b"2", expect=ONE)])
        assert not store.commit("p", [Put("c", TWO, b"2", expect=NO_VERSION)])
        assert store.commit("p", [Put("b", TWO, b"2", expect=NO_VERSION)])
        assert [record.key for record in records_in(store, "p")] == ["a", "b", "c", "d"]

    def test_a_put_decides_anew_when_a_record_expires(self, store: Store) -> None:
        past_us = store.clock_us() - HOUR_US
        assert store.commit("p", [Put("a", ONE, b"1", expires_us=past_us + 2 * HOUR_US)])
        assert store.commit("p", [Put("a", TWO, b"2", ONE, expires_us=past_us)])
        assert records_in(store, "p") == []
        assert store.commit("p", [Put("a", ONE, b"1", NO_VERSION)])
        assert records_in(store, "p") == [Record("a", ONE, b"1")]

    def test_a_record_that_is_still_stored_is_absent_once_it_expires(self, store: Store) -> None:
        soon_us = SOON_US
        until_us = 0
        while not records_in(store, "p"):  # a slow store may delete it at once
            until_us, soon_us = store.clock_us() + soon_us, 2 * soon_us
            assert store.commit("p", [Put("a", ONE, b"1", expires_us=until_us)])
        while store.clock_us() <= until_us:
            continue
        # A store that estimates the time of a server knows later that the record has expired.
        latest_us = until_us + SECOND_US * (store.scope == "network")
        while records_in(store, "p") and store.clock_us() <= latest_us:
            continue
        assert not store.commit("p", [Put("a", TWO, b"2", expect=ONE)])
        assert store.commit("p", [Put("a", TWO, b"2", expect=NO_VERSION)])

    def test_many_records_are_created_or_absent_together(self, store: Store) -> None:
        past_us = store.clock_us() - HOUR_US
        assert store.commit("p", [Put("b", ONE, b"1", expires_us=past_us), Put("d", ONE, b"1")])
        made = [Put(key, TWO, b"2", expect=NO_VERSION) for key in "cba"]
        absent: list[Write] = [Delete(key, expect=NO_VERSION) for key in "fgb"]
        assert not store.commit("p", [*made, Put("d", TWO, b"2", expect=NO_VERSION)])
        assert not store.commit("p", [*absent, Delete("d", expect=NO_VERSION)])
        assert [record.key for record in records_in(store, "p")] == ["d"]
        assert store.commit("p", absent)
        assert store.commit("p", [*made, *absent[:2], Put("d", TWO, b"2", expect=ONE)])
        assert records_in(store, "p") == [Record(key, TWO, b"2") for key in "abcd"]

    def test_groups_may_write_one_record_after_another(self, store: Store) -> None:
        steps: list[list[Write]] = [
            [Delete("a", NO_VERSION)],
            [Put("a", ONE, b"1", NO_VERSION), Put("b", ONE, b"1", NO_VERSION)],
            [Put("a", TWO, b"2")],
            [Delete("a", expect=TWO)],
            [Put("a", THREE, b"3", NO_VERSION), Put("c", ONE, b"1", NO_VERSION)],
        ]
        groups = [Group(commits=[Commit("p", step)]) for step in steps]
        assert list(store.together(groups)) == [True] * len(steps)
        assert records_in(store, "p") == [
            Record("a", THREE, b"3"), Record("b", ONE, b"1"), Record("c", ONE, b"1")
        ]  # fmt: skip

    def test_records_are_there_when_the_store_is_opened_again(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        assert store.commit("p", [Put("a", ONE, b"1")])
        store.close()
        store = factory.open(url)
        assert records_in(store, "p") == [Record("a", ONE, b"1")]
        store.close()

    def test_an_idle_poll_tells_the_version_of_the_queues_settings(self, store: Store) -> None:
        def version(queue: str) -> bytes:
            return store.lanes(queue, 0, until_bucket=0, after=None, limit=1).settings_version

        assert version("mail") == NO_VERSION
        assert store.commit(SETTINGS_PARTITION, [Put("mail", ONE, b"{}")])
        assert (version("mail"), version("other")) == (ONE, NO_VERSION)
        assert store.commit(SETTINGS_PARTITION, [Put("mail", TWO, b"{}")])
        assert version("mail") == TWO
        assert store.commit(SETTINGS_PARTITION, [Delete("mail")])
        assert version("mail") == NO_VERSION

    def test_all_records_are_listed_once_with_their_expiry(self, store: Store) -> None:
        until_us = store.clock_us() + HOUR_US
        puts = [Put(f"key{number}", token_of(1 + number), b"%d" % number) for number in range(5)]
        puts.append(Put("until", ONE, b"", expires_us=until_us))
        partitions = [f"laws/{number}" for number in range(30)]
        for partition in partitions:
            assert store.commit(partition, puts)
        assert store.commit("laws/0", [Put("past", ONE, b"", expires_us=until_us - 2 * HOUR_US)])
        expected = {(name, put.key): put for name in partitions for put in puts}
        for limit in (1, 4, 1000):
            listed: dict[tuple[str, str], Put] = {}
            after: str | None = None
            while isinstance(store, ListsRecords):
                page = store.all_records(after=after, limit=limit)
                read = {(name, put.key): put for name, put in page.records if "laws/" in name}
                assert not read.keys() & listed.keys()
                listed |= read
                if page.after is None:
                    break
                assert page.after != after, "the pages do not advance"
                after = page.after
            if isinstance(store, ListsRecords):
                assert listed == expected

    def test_records_are_no_jobs(self, store: Store) -> None:
        assert store.commit("laws", [Put("laws", ONE, b"1")])
        assert pointers_in(store) == []
        assert rows_in(store, lane_of()) == []
