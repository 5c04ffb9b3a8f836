"""The project against raw loops on a Cassandra node, round by round."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from benchmarks import ours, raw_cassandra
from benchmarks.ours import BODY, TEXT
from benchmarks.raw_cassandra import Raw
from benchmarks.rounds import Rounds
from dueline.api.config import STORE_VARIABLE
from dueline.api.connect import open_store
from dueline.stores.cassandra.store import CassandraStore
from tools.cassandra import cql


def find_host() -> str | None:
    """Find a node that answers: the one that DUELINE_STORE names, or 127.0.0.1."""
    parts = urlsplit(os.environ.get(STORE_VARIABLE, ""))
    named = (parts.hostname or "").split(",")[0] if parts.scheme == "cassandra" else ""
    return next((host for host in (named, "127.0.0.1") if host and cql.answers(host)), None)


@contextmanager
def opened(host: str) -> Iterator[tuple[str, Raw]]:
    """Make a keyspace for a run, dropped at its end; give its address and a raw session."""
    name = f"bench_{secrets.token_hex(4)}"
    store = open_store(f"cassandra://{host}/{name}")
    assert isinstance(store, CassandraStore)
    store.migrate()
    store.close()
    raw = raw_cassandra.open_raw(host, name)
    try:
        yield f"cassandra://{host}/{name}", raw
    finally:
        raw.session.execute(f"DROP KEYSPACE {name}", timeout=60)
        raw.close()


def run(rounds: Rounds, url: str, raw: Raw, *, jobs: int, singles: int) -> None:
    """Run one round in queues of its own: raw, ours, raw, ours; then a lock per job."""
    queue = f"bench-{secrets.token_hex(4)}"
    app, task = ours.open_app(url, queue, history="off")
    births = raw_cassandra.rows(jobs, f"{queue}-raw", BODY)
    with rounds.timed("raw insert", jobs):
        raw_cassandra.insert(raw, births)
    with rounds.timed("bulk enqueue", jobs):
        ours.enqueue(task, jobs, TEXT)
    with rounds.timed("raw claim + drop", jobs):
        drained = raw_cassandra.drain(raw, births)
    assert drained == jobs
    with rounds.timed("drain", jobs):
        ours.drain(app, queue)
    assert ours.is_empty(app, queue)
    app.close()
    few = raw_cassandra.rows(singles, f"{queue}-singly", BODY)
    raw_cassandra.insert(raw, few)
    with rounds.timed("raw lock per job", singles):
        drained = raw_cassandra.drain_singly(raw, few)
    assert drained == singles
    _history(rounds, url, f"{queue}-history", jobs)


def _history(rounds: Rounds, url: str, queue: str, jobs: int) -> None:
    app, task = ours.open_app(url, queue, history="attempts")
    ours.enqueue(task, jobs, TEXT)
    with rounds.timed("drain with history", jobs):
        ours.drain(app, queue)
    assert ours.is_empty(app, queue)
    app.close()
