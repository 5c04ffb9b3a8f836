"""The statements of the hot path read by indexes, also in tables with many rows."""

from collections.abc import Iterator

import pytest

from dueline.core.clock import SystemClock
from dueline.core.store import Drop, Extend, Store
from dueline.store_tests.helpers import NOW_US, claim, lane_of, move, new_job, new_jobs
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
        records = f"INSERT INTO {schema}.records SELECT 'p', n::text, '', '', n"
        statement(url, f"{records} FROM generate_series(1, {ROWS}) AS n")
        rows = f"INSERT INTO {schema}.rows SELECT 's', 0, n, int8send(n), ''"
        statement(url, f"{rows} FROM generate_series(1, {ROWS}) AS n")
        yield url, store
        store.close()


def sequential_scans(url: str) -> set[str]:
    """Return the large tables that were read from end to end since the last call."""
    schema = url.partition("schema=")[2]
    found = statement(
        url,
        "SELECT relname FROM pg_stat_user_tables WHERE schemaname = %s AND seq_scan > 0"
        " AND relname IN ('jobs', 'records', 'rows')",
        (schema,),
    )
    return {name for (name,) in found}


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
