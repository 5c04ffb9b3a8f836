"""Laws of streams and their watermarks."""

import threading

from dueline.core.store import Commit, Group, Put, Row, Store
from dueline.store_tests.calls import NOW_US, row_of, stream_of
from dueline.store_tests.factory import StoreFactory

WEEK_US = 7 * 86_400 * 1_000_000


def ids_in(rows: list[Row]) -> list[bytes]:
    """Return the ids of rows, each once, in the order of their first rows."""
    return list(dict.fromkeys(row.id for row in rows))


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
        if store.transactional:  # other stores do not compare the rows
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


class WatermarkLaws:
    """Rows at or below the watermark never change."""

    def test_a_mark_only_grows(self, store: Store) -> None:
        assert store.close_until("log", 0, at_us=-1) == -1
        assert store.close_until("log", 0, at_us=NOW_US) == NOW_US
        assert store.close_until("log", 0, at_us=NOW_US - 5) == NOW_US
        assert store.close_until("log", 0, at_us=0) == NOW_US
        assert store.close_until("log", 0, at_us=NOW_US + 1) == NOW_US + 1
        assert store.close_until("log", 1, at_us=5) == 5
        assert store.close_until("other", 0, at_us=-1) == -1

    def test_a_row_at_or_below_the_mark_is_stored_above_it(self, store: Store) -> None:
        store.close_until("log", 0, at_us=NOW_US)
        rows = [row_of(1, at_us=NOW_US - WEEK_US), row_of(2), row_of(3, at_us=NOW_US + 1)]
        rows.append(row_of(4, at_us=NOW_US + 2))
        moved = [row._replace(at_us=max(row.at_us, NOW_US + 1)) for row in rows]
        assert list(store.append(rows)) == [row.at_us for row in moved]
        assert [row for row in stream_of(store) if row.at_us > NOW_US] == moved
        assert ids_in(stream_of(store)) == [row.id for row in moved]

    def test_a_group_that_comes_late_is_stored_above_the_mark_too(self, store: Store) -> None:
        store.close_until("log", 0, at_us=NOW_US)
        commit = Commit("p", [Put("key", b"v" * 16, b"")])
        assert list(store.together([Group(commits=[commit], rows=[row_of(1)])])) == [True]
        assert stream_of(store)[-1] == row_of(1, at_us=NOW_US + 1)

    def test_shards_have_marks_of_their_own(self, store: Store) -> None:
        store.close_until("log", 0, at_us=NOW_US)
        others = [row_of(1, shard=1), row_of(1, stream="other")]
        assert list(store.append(others)) == [NOW_US, NOW_US]
        assert stream_of(store, "log", 1) == [others[0]]

    def test_a_call_appends_above_the_mark_of_each_shard(self, store: Store) -> None:
        for number in range(3):
            places = [(f"a{number}", 0), (f"a{number}", 1), (f"b{number}", 0)]
            rows = [row_of(1, stream=stream, shard=shard) for stream, shard in places]
            store.close_until(*places[number], at_us=NOW_US)
            expected = [NOW_US + (place == places[number]) for place in places]
            assert list(store.append(rows)) == expected
            assert [store.close_until(*place, at_us=-1) for place in places] == [
                NOW_US if place == places[number] else -1 for place in places
            ]

    def test_a_late_row_is_only_known_by_all_of_its_key(self, store: Store) -> None:
        """Rows that have all but one column in common with it are not the same row."""
        others = [row_of(1, shard=1), row_of(1, stream="other"), row_of(1, at_us=NOW_US - 1)]
        store.append([*others, row_of(2)])
        store.close_until("log", 0, at_us=NOW_US)
        assert list(store.append([row_of(1)])) == [NOW_US + 1]
        assert [row.at_us for row in stream_of(store)] == [NOW_US - 1, NOW_US, NOW_US + 1]

    def test_a_row_of_before_the_mark_that_is_repeated_keeps_its_id(self, store: Store) -> None:
        rows = [row_of(1), row_of(2)]
        store.append(rows)
        store.close_until("log", 0, at_us=NOW_US)
        store.append(rows)
        assert stream_of(store)[:2] == rows
        assert ids_in(stream_of(store)) == [row.id for row in rows]
        if store.transactional:
            assert stream_of(store) == rows

    def test_a_reader_goes_up_to_an_instant(self, store: Store) -> None:
        rows = [row_of(number, at_us=NOW_US + number) for number in range(10)]
        store.append(rows)
        for until in (-1, 0, 5, 9, 20):
            page = store.tail("log", 0, after=None, limit=100, until_us=NOW_US + until)
            assert list(page.rows) == rows[: max(0, until + 1)]
        after = (rows[3].at_us, rows[3].id)
        page = store.tail("log", 0, after=after, limit=2, until_us=NOW_US + 8)
        assert (list(page.rows), page.after) == (rows[4:6], (rows[5].at_us, rows[5].id))
        assert list(store.tail("log", 0, after=None, limit=9, until_us=0).rows) == []

    def test_a_reader_may_skip_rows(self, store: Store) -> None:
        rows = [row_of(number, at_us=NOW_US + number // 4 * 60_000_000) for number in range(20)]
        store.append(rows)
        after, until_us = (rows[2].at_us, rows[2].id), rows[-2].at_us
        for skip in range(20):
            for limit in (1, 3):
                page = store.tail("log", 0, after=after, limit=limit, until_us=until_us, skip=skip)
                assert list(page.rows) == rows[3 + skip :][:limit]
                last = page.rows[-1] if page.rows else rows[2]
                assert page.after == (last.at_us, last.id)

    def test_what_was_read_up_to_the_mark_is_all_there_will_be(self, store: Store) -> None:
        # T12: appends race with readers that raise the watermark past their rows
        last, count, tries = NOW_US + 10**9, 25, 1000
        known: list[int] = []

        def write(first: int) -> None:
            for number in range(first, first + count):
                row = row_of(number, at_us=NOW_US + number % 5)
                for _ in range(tries):  # unknown if the watermark keeps passing it
                    (place,) = store.append([row])
                    if place is not None:
                        known.append(place)
                        break

        threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100)]
        for thread in threads:
            thread.start()
        read: list[Row] = []
        after, mark = None, NOW_US
        while any(thread.is_alive() for thread in threads) or mark < last:
            mark = mark + 3 if any(thread.is_alive() for thread in threads) else last
            mark = store.close_until("log", 0, at_us=mark)
            page = store.tail("log", 0, after=after, limit=1000, until_us=mark)
            read += page.rows
            after = page.after
        assert len(known) == 2 * count
        assert sorted(ids_in(read)) == sorted(
            row_of(first + number).id for first in (0, 100) for number in range(count)
        )

    def test_what_has_expired_is_gone_and_the_rest_stays(self, store: Store) -> None:
        days = [
            row_of(number, at_us=NOW_US + number * WEEK_US // 7, shard=shard)
            for number in range(8)
            for shard in (0, 1)
        ]
        store.append([*days, row_of(1, stream="other")])
        store.expire("log", 0, before_us=NOW_US + WEEK_US)  # nothing is closed: nothing is deleted
        assert stream_of(store) == days[::2]
        store.close_until("log", 0, at_us=NOW_US + WEEK_US)
        store.expire("log", 0, before_us=NOW_US + WEEK_US)
        assert stream_of(store) == days[14::2]
        assert stream_of(store, "log", 1) == days[1::2]
        assert stream_of(store, "other") == [row_of(1, stream="other")]
        store.append([row_of(99)])  # into an expired bucket
        assert [row.id for row in stream_of(store)] == [days[14].id, row_of(99).id]
        store.expire("log", 0, before_us=NOW_US + 2 * WEEK_US)
        assert row_of(99).id in ids_in(stream_of(store))

    def test_a_mark_is_there_when_the_store_is_opened_again(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        store.close_until("log", 0, at_us=NOW_US)
        store.close()
        store = factory.open(url)
        assert store.close_until("log", 0, at_us=0) == NOW_US
        assert list(store.append([row_of(1)])) == [NOW_US + 1]
        store.close()
