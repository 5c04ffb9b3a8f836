"""Append-only logs."""

from dueline.core.store import Row, Store
from dueline.store_tests.factory import StoreFactory
from dueline.store_tests.given import NOW_US, row_of, stream_of


class StreamLaws:
    """Rows are appended once and read in order."""

    def test_rows_come_in_the_order_of_time_and_then_of_id(self, store: Store) -> None:
        times = {1: 5, 2: 3, 3: 3, 4: 9, 5: 0}
        rows = [row_of(number, at_us=NOW_US + at_us) for number, at_us in times.items()]
        high = [Row("log", 0, NOW_US + 3, bytes([head]) * 16, b"") for head in (0x80, 0x7F)]
        assert list(store.append(rows + high)) == [row.at_us for row in rows + high]
        expected = sorted(rows + high, key=lambda row: (row.at_us, row.id))
        for page_size in (1, 2, 3, 7, 8):
            assert stream_of(store, page_size=page_size) == expected

    def test_a_row_is_read_back_as_it_was_appended(self, store: Store) -> None:
        rows = [Row("a stream: ä", 7, 0, bytes(16), b""), Row("a stream: ä", 7, 1, b"\xff", b"")]
        rows.append(Row("a stream: ä", 7, NOW_US * 2, bytes(16), bytes(range(256)) * 400))
        assert list(store.append(rows)) == [row.at_us for row in rows]
        assert stream_of(store, "a stream: ä", 7) == rows

    def test_a_row_that_is_appended_again_is_there_once(self, store: Store) -> None:
        rows = [row_of(number) for number in range(3)]
        assert list(store.append(rows[:2])) == [NOW_US, NOW_US]
        assert list(store.append(rows)) == [NOW_US] * 3
        assert stream_of(store) == rows
        if store.transactional:  # elsewhere an append is blind, and its writer repeats the same
            others = [row._replace(body=b"other") for row in rows]
            assert list(store.append(others)) == [NOW_US] * 3
            assert stream_of(store) == rows
        assert list(store.append([])) == []

    def test_streams_and_shards_know_nothing_of_each_other(self, store: Store) -> None:
        places = (("log", 0), ("log", 1), ("Log", 0), ("log ", 0))
        rows = [row_of(1, stream=stream, shard=shard) for stream, shard in places]
        assert list(store.append(rows)) == [NOW_US] * 4
        for (stream, shard), row in zip(places, rows, strict=True):
            assert stream_of(store, stream, shard) == [row]
        assert stream_of(store, "nothing") == []

    def test_a_reader_goes_on_where_it_stopped(self, store: Store) -> None:
        start = store.tail("log", 0, after=None, limit=10)
        assert list(start.rows) == []
        store.append([row_of(1), row_of(2)])
        page = store.tail("log", 0, after=start.after, limit=10)
        assert list(page.rows) == [row_of(1), row_of(2)]
        idle = store.tail("log", 0, after=page.after, limit=10)
        assert (list(idle.rows), idle.after) == ([], page.after)
        store.append([row_of(3)])
        assert list(store.tail("log", 0, after=idle.after, limit=10).rows) == [row_of(3)]

    def test_many_rows_are_appended_in_one_call(self, store: Store) -> None:
        rows = [row_of(number) for number in range(1000)]
        assert list(store.append(rows)) == [NOW_US] * 1000
        assert stream_of(store, page_size=300) == rows

    def test_rows_are_there_when_the_store_is_opened_again(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        store.append([row_of(1)])
        store.close()
        store = factory.open(url)
        assert stream_of(store) == [row_of(1)]
        store.close()
