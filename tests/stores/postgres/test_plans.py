"""The statements of the hot path read by indexes, also in tables with many rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from dueline.core.clock import SystemClock
from dueline.core.job import UNCLAIMED_TOKEN
from dueline.core.store import Drop, Extend, Store, Verdict
from dueline.store_tests.calls import NOW_US, claim, lane_of, move, new_job, new_jobs
from dueline.stores.postgres.claims import MANY
from dueline.stores.postgres.database import Database
from tests.harness.postgres import schemas, statement

pytestmark = pytest.mark.postgres

ROWS = 100_000


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[str, Store]]:
    """Open a store with many jobs, records and rows of streams."""
    with schemas() as made:
        url = made.fresh()
        store = made.open(url)
        store.add(new_jobs(1))
        schema = url.partition("schema=")[2]
        fill = (
            f"INSERT INTO {schema}.jobs (lane, pos_us, id, hop, due_us, enqueued_us, task, codec,"  # noqa: S608
            " body, opts, at_us) SELECT l.id, n, int8send(n) || int8send(n), 0, n, n, 't', 1, '',"
            f" '', n FROM {schema}.lanes l, generate_series({NOW_US + 1}, {NOW_US + ROWS}) AS n"
        )
        statement(url, fill)
        records = (
            f"INSERT INTO {schema}.records SELECT 'p', lpad(n::text, 6, '0'), '', '', {2**60} + n"
        )
        statement(url, f"{records} FROM generate_series(1, {ROWS}) AS n")
        rows = f"INSERT INTO {schema}.rows SELECT 's', 0, n, int8send(n), ''"
        statement(url, f"{rows} FROM generate_series(1, {ROWS}) AS n")
        yield url, store
        store.close()


def sequential_scans(url: str) -> set[str]:
    """Return the large tables that were read from end to end since the last call."""
    schema = url.partition("schema=")[2]
    names = statement(
        url,
        "SELECT relname FROM pg_stat_user_tables WHERE schemaname = %s AND seq_scan > 0"
        " AND relname IN ('jobs', 'records', 'rows')",
        (schema,),
    )
    return {name for (name,) in names}


def test_no_statement_reads_a_large_table_from_end_to_end(filled: tuple[str, Store]) -> None:
    url, store = filled
    statement(url, "SELECT pg_stat_reset()")
    now_us = NOW_US + ROWS
    for token in range(1, 4):
        jobs = claim(store, lane_of(), limit=5, now_us=now_us, token=token).jobs
        drop, extend, back, *rest = jobs
        held = store.settle([Drop(drop), Extend(extend, now_us + 99), move(back, now_us + 9)])
        assert list(held) == [True] * 3
        assert store.find([rest[0].id])[0] == rest[0]
    assert len(claim(store, lane_of(), limit=MANY, now_us=now_us, token=4).jobs) == MANY
    store.add([new_job(1 + 2**100)])
    store.scan(lane_of(), after=None, until_us=NOW_US, limit=10)
    store.lanes("laws", 0, until_bucket=2**40, after=None, limit=10)
    store.sweep("laws", 0, now_us=now_us, width_us=10_000_000)
    store.read("p", after=None, limit=10)
    store.tail("s", 0, after=None, limit=10)
    store.close_until("s", 0, at_us=50)
    assert store.clock_us() - SystemClock().wall_us() < 60_000_000
    store.close()  # the server counts a session's scans at its end, at the latest
    assert sequential_scans(url) == set()


@pytest.mark.parametrize(
    "read",
    [
        lambda store, at: store.walk(lane_of(), after=(NOW_US + at, b""), until=None, limit=100),
        lambda store, at: store.walk_columns(
            lane_of(), frozenset(("at_us",)), after=(NOW_US + at, b""), until=None, limit=100
        ),
        lambda store, at: store.tail("s", 0, after=(at, b""), limit=100),
        lambda store, at: store.read("p", after=f"{at:06}", limit=100),
        lambda store, at: store.all_records(after=f'["p", "{at:06}"]', limit=100),
    ],
    ids=["walk", "columns", "tail", "records", "all records"],
)
def test_the_last_page_costs_as_much_as_the_first(
    read: Callable[[Any, int], object],
    filled: tuple[str, Store],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, store = filled
    fetch = Database.fetch
    read_blocks: list[int] = []

    def counting(database: Database, query: str, bound: Sequence[object] = ()) -> object:
        if "LIMIT" in query:
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
            ((plans,),) = fetch(database, explain, bound)
            plan = plans[0]["Plan"]
            read_blocks.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return fetch(database, query, bound)

    monkeypatch.setattr(Database, "fetch", counting)
    for at in (0, ROWS - 150):
        read(store, at)
    first, last = read_blocks
    assert last <= first + 10


def test_most_claims_are_updates_that_change_no_index(filled: tuple[str, Store]) -> None:
    url, store = filled
    schema = url.partition("schema=")[2]
    counted = (
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
        " WHERE schemaname = %s AND relname = 'jobs'"
    )
    store.close()
    ((updates, hot),) = statement(url, counted, (schema,))
    for token in range(10, 20):
        claim(store, lane_of(), limit=50, now_us=NOW_US + ROWS, token=token)
    store.close()
    statement(url, "SELECT pg_stat_force_next_flush()")
    ((later, later_hot),) = statement(url, counted, (schema,))
    assert later - updates >= 500
    # Each page has room for two thirds of its rows; one claim of all of them needs other pages.
    assert later_hot - hot >= 0.6 * (later - updates)


@contextmanager
def open_transaction(url: str) -> Iterator[None]:
    """Keep the rows that others delete, as a report does that runs for hours."""
    import psycopg  # noqa: PLC0415  (an extra)

    with psycopg.connect(url.partition("?")[0]) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield


def blocks_read(url: str, schema: str) -> int:
    """Return how many blocks of the indexes of jobs sessions have read, once those have ended."""
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    while statement(url, open_ones, (schema,))[0][0]:  # the server counts at their end
        pass
    ((blocks,),) = statement(
        url,
        "SELECT sum(idx_blks_hit + idx_blks_read)::int FROM pg_statio_user_indexes"
        " WHERE schemaname = %s AND relname = 'jobs'",
        (schema,),
    )
    assert isinstance(blocks, int)
    return blocks


@pytest.mark.parametrize("live", [0, 1, 3])
def test_rows_are_found_by_id_whatever_the_statistics_say(live: int) -> None:
    """Few live rows between many dead ones that cannot be removed yet."""
    with schemas() as made:
        url = made.fresh()
        schema = url.partition("schema=")[2]
        store = made.open(url)
        statement(url, f"ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)")
        store.add(new_jobs(1))
        with open_transaction(url):
            statement(
                url,
                f"INSERT INTO {schema}.jobs (lane, pos_us, id, hop, due_us, enqueued_us, task,"  # noqa: S608
                " codec, body, opts, at_us) SELECT l.id, n, decode(md5(n::text), 'hex'), 0, n, n,"
                f" 't', 1, '', '', n FROM {schema}.lanes l, generate_series(1, 20000) AS n",
            )
            kept = f"SELECT ctid FROM {schema}.jobs ORDER BY pos_us DESC LIMIT {live}"  # noqa: S608
            statement(url, f"DELETE FROM {schema}.jobs WHERE ctid NOT IN ({kept})")  # noqa: S608
            statement(url, f"ANALYZE {schema}.jobs")
            store.add(new_jobs(20, first=2))
            jobs = claim(store, lane_of(), limit=12, now_us=NOW_US, token=1).jobs
            store.close()
            before = blocks_read(url, schema)
            store = made.open(url)
            kinds: list[Verdict] = [
                *map(Drop, jobs[:3]),
                *(Extend(job, NOW_US + 99) for job in jobs[3:6]),
                *(move(job, NOW_US + 9) for job in jobs[6:9]),
            ]
            for kind in kinds[:3], kinds[3:6], kinds[6:]:
                assert list(store.settle(kind)) == [True] * 3
            unclaimed = [Drop(job._replace(token=UNCLAIMED_TOKEN)) for job in jobs[9:]]
            assert list(store.settle(unclaimed)) == [False] * 3
            assert store.find([jobs[9].id, jobs[0].id])[:2] == [jobs[9], None]
            store.close()
            assert blocks_read(url, schema) - before < 300
