"""Rows on a PostgreSQL server, each side in a database of its own.

Peers run in an environment of their own: `make .venv-peers/.lock`. Graphile Worker runs on Node.js,
and is measured where it is installed: `make .venv-peers/node/.lock`.
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from benchmarks import idle_reads
from benchmarks.commands import HERE, ROOT, Checkout, Failed, Place, Sample
from benchmarks.rows import (
    APP,
    SETTLE_S,
    Limit,
    Measure,
    Row,
    Sizes,
    between,
    in_turn,
    picked_up,
    place_of,
    worker,
)

PEERS: Final = ("pgqueuer", "procrastinate")
GRAPHILE: Final = "graphile"
GRAPHILE_MODULES: Final = ROOT / ".venv-peers" / "node"

PEER_DRAINS: Final = {"pgqueuer": 100_000, "procrastinate": 1_000, "graphile": 100_000}
"""Jobs that peers drain: PgQueuer as many as this library, since its rate falls with the number
(17,200 jobs/s of 10,000, 13,400 of 100,000); Procrastinate would take two minutes."""

PEER_HELD_DRAINS: Final = {"pgqueuer": 50_000, "procrastinate": 2_000, "graphile": 50_000}
"""The same beside a snapshot: enough that rows that stay dead could count, few enough to end."""

PICKUPS: Final = 60
PICKUP_EVERY_S: Final = 0.1
BATCH: Final = 500
SHARED_BYTES: Final = 20
"""Bytes of history for each job in the rows that a settle shares."""

SMALL: Final = 10_000
EMPTY_EVERY_S: Final = 0.001
HELD_JOBS: Final = 1_000_000

CLAIM: Final = """
WITH chosen AS MATERIALIZED (
  SELECT ctid FROM dueline.jobs
  WHERE lane = %s AND pos_us >= %s AND at_us <= %s
  ORDER BY pos_us, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE dueline.jobs SET at_us = %s, fence = fence + 1, token = %s, worker = %s, claimed_us = %s
FROM chosen WHERE jobs.ctid = chosen.ctid
RETURNING pos_us, jobs.id, body, opts, task, fence
"""
SETTLE: Final = """
DELETE FROM dueline.jobs USING unnest(%s::bigint[], %s::bytea[]) AS done (pos, id)
WHERE lane = %s AND pos_us = done.pos AND jobs.id = done.id AND token = %s
"""
APPEND: Final = "INSERT INTO dueline.rows VALUES ('raw', 0, %s, %s, %s)"


def rows(url: str, sizes: Sizes, base: Checkout | None) -> list[Row]:
    """Return the rows, in the order in which they are measured."""
    jobs, singles = sizes.jobs, sizes.singles
    of: dict[str, Checkout] = {"ours": HERE} | ({"base": base} if base else {})

    def drains(count: int, *, is_held: bool = False, **settings: object) -> dict[str, Measure]:
        return {
            name: partial(drain, url, checkout, settings=settings, jobs=count, is_held=is_held)
            for name, checkout in of.items()
        }

    def peers(
        command: str, count: int | Mapping[str, int], *, is_held: bool = False
    ) -> dict[str, Measure]:
        if base:
            return {}
        names = [*PEERS, GRAPHILE] if (GRAPHILE_MODULES / ".lock").exists() else PEERS
        counts = count if isinstance(count, Mapping) else dict.fromkeys(names, count)
        return {
            name: partial(peer, url, [name, command, counts[name]], is_held=is_held)
            for name in names
        }

    raws: dict[str, Measure] = {"raw": partial(raw_drain, url, jobs=jobs)}
    held = drains(HELD_JOBS, is_held=True) | {"alone": drains(HELD_JOBS)["ours"]}
    backlog: dict[str, Measure] = {
        name: partial(emptied, url, checkout, jobs=HELD_JOBS) for name, checkout in of.items()
    }
    backlog[f"{SMALL:,}"] = partial(emptied, url, HERE, jobs=SMALL)
    return [
        Row("postgres-default", "PostgreSQL: drain of no-op jobs, default settings",
            in_turn(drains(jobs) | raws | peers("drain", PEER_DRAINS)), [("raw", "per_s")],
            [Limit("per_s", 4.0, to=name) for name in PEERS]),
        Row("postgres-history", "PostgreSQL: the same with history, without results",
            in_turn(drains(jobs, keep=0) | raws), [("raw", "per_s")],
            [Limit("per_s", 0.5, to="raw")]),
        Row("postgres-bulk", "PostgreSQL: bulk enqueue",
            in_turn(side(url, of, "put", jobs) | peers("bulk", SMALL)), [("", "per_s")],
            [Limit("per_s", 1.5, to=name) for name in PEERS]),
        Row("postgres-single", "PostgreSQL: one durable enqueue a call",
            in_turn(side(url, of, "singles", singles, 1) | peers("singles", singles // 4)),
            [("", "per_s")], [Limit("per_s", 0.8, to=name) for name in PEERS]),
        Row("postgres-pickup", "PostgreSQL: from enqueue to start on an idle queue",
            in_turn({name: partial(pickups, url, checkout) for name, checkout in of.items()}
                    | peers("pickup", PICKUPS)), [("", "p50_ms")]),
        Row("postgres-idle", "PostgreSQL: reads a second of 100 idle workers, of its clock too",
            partial(idle, url), (), [Limit("reads_per_s", idle_reads.READS_MAX)],
            rounds_max=1, is_long=True),
        Row("postgres-backlog", f"PostgreSQL: drain of a backlog of {HELD_JOBS:,}",
            in_turn(backlog), (), [Limit("per_s", 0.85, to=f"{SMALL:,}")], is_long=True),
        Row("postgres-snapshot",
            f"PostgreSQL: drain of {HELD_JOBS:,} beside a transaction that holds a snapshot",
            in_turn(held | peers("drain", PEER_HELD_DRAINS, is_held=True)), (),
            [Limit("per_s", 0.9, to="alone")], is_long=True),
    ]  # fmt: skip


@contextmanager
def database(url: str) -> Iterator[str]:
    """Make an empty database, and drop it after the block."""
    name = f"bench_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{url.rpartition('/')[0]}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def store(url: str, checkout: Checkout, folder: Path) -> Iterator[str]:
    """Make a store by a checkout's own command."""
    with database(url) as own:
        Place(checkout, folder, {"DUELINE_STORE": own}).read(checkout.dueline("migrate"))
        yield own


@contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """Hold a transaction with a snapshot open during the block."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_snapshot()")
        yield


def drain(
    url: str, checkout: Checkout, folder: Path, places: Mapping[str, Path], *,
    settings: Mapping[str, object], jobs: int, is_held: bool,
) -> Sample:  # fmt: skip
    """Drain a backlog by the worker command, beside a snapshot that is held or not."""
    del places
    with store(url, checkout, folder) as own, ExitStack() as beside:
        more = {"DUELINE_STORE": own}
        more |= {"BENCH_SETTINGS": json.dumps(settings)} if settings else {}
        place = place_of(checkout, folder, **more)
        place.side(APP, "fill", folder, jobs, 0, jobs)
        if is_held:
            beside.enter_context(held_snapshot(own))
        place.run(worker(place, "--burst"))
        return between(place, jobs)


def emptied(
    url: str, checkout: Checkout, folder: Path, places: Mapping[str, Path], *, jobs: int
) -> Sample:
    """Drain a backlog until no job is left, which is later than the last start.

    A worker has up to a few thousand jobs between their start and their settlement. Of a small
    backlog these are a large part, so a rate of starts would be no rate of the store.
    """
    del places
    with store(url, checkout, folder) as own, psycopg.connect(own, autocommit=True) as beside:
        place = place_of(checkout, folder, DUELINE_STORE=own)
        place.side(APP, "fill", folder, jobs, 0, jobs)
        with place.running(worker(place)):
            first = place.mark("first")
            place.mark("last", every_s=EMPTY_EVERY_S)
            while beside.execute("SELECT FROM dueline.jobs LIMIT 1").fetchone():
                time.sleep(EMPTY_EVERY_S)
            ended_ns = time.time_ns()
        return {"per_s": jobs / (ended_ns - first.at_ns) * 1e9}


def raw_drain(url: str, folder: Path, places: Mapping[str, Path], *, jobs: int) -> Sample:
    """Make the same changes of rows as a drain with history: claim, delete, and append."""
    del places
    with store(url, HERE, folder) as own, psycopg.connect(own, autocommit=True) as connection:
        place_of(HERE, folder, DUELINE_STORE=own).side(APP, "fill", folder, jobs, 0, jobs)
        connection.execute("ANALYZE dueline.jobs")
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        connection.execute("SET enable_hashjoin = off; SET enable_mergejoin = off")
        lanes = connection.execute("SELECT DISTINCT lane FROM dueline.jobs").fetchall()
        used_s, began_s, count = time.process_time(), time.perf_counter(), 0
        for (lane,) in lanes:
            place, now_us = 0, time.time_ns() // 1000
            while True:
                token = secrets.token_bytes(16)
                bound = (lane, place, now_us, BATCH, now_us + 60_000_000, token, "raw", now_us)
                found = connection.execute(CLAIM, bound, prepare=True).fetchall()
                if not found:
                    break
                taken, ids = [row[0] for row in found], [row[1] for row in found]
                place, count = min(taken), count + len(found)
                with connection.transaction():
                    connection.execute(SETTLE, (taken, ids, lane, token), prepare=True)
                    body = bytes(SHARED_BYTES * len(found))
                    connection.execute(APPEND, (now_us + count, token, body), prepare=True)
        seconds = time.perf_counter() - began_s
        cpu_us = (time.process_time() - used_s) / count * 1e6
        return {"per_s": count / seconds, "cpu_us": cpu_us}


def side(url: str, of: Mapping[str, Checkout], command: str, *values: object) -> dict[str, Measure]:
    """Return the sides that run a command of a producer."""

    def measure(checkout: Checkout, folder: Path, places: Mapping[str, Path]) -> Sample:
        del places
        with store(url, checkout, folder) as own:
            return place_of(checkout, folder, DUELINE_STORE=own).side(APP, command, *values)

    return {name: partial(measure, checkout) for name, checkout in of.items()}


def pickups(url: str, checkout: Checkout, folder: Path, places: Mapping[str, Path]) -> Sample:
    """Time how soon an idle worker starts a job that another process enqueues."""
    del places
    with store(url, checkout, folder) as own:
        starts = str(folder / "starts")
        place = place_of(checkout, folder, DUELINE_STORE=own, BENCH_STARTS=starts)
        with place.running(worker(place)) as process_id:
            return picked_up(
                place, process_id, APP, PICKUPS, every_s=PICKUP_EVERY_S, settle_s=SETTLE_S
            )


def idle(url: str, folder: Path) -> Mapping[str, Sample]:
    """Count the reads of idle workers."""
    with store(url, HERE, folder) as own:
        return {"ours": idle_reads.reads_of(own, folder)}


def peer(
    url: str, words: Sequence[object], folder: Path, places: Mapping[str, Path], *,
    is_held: bool = False,
) -> Sample:  # fmt: skip
    """Run a command of a peer, beside a snapshot that is held or not.

    words: its name, the command, and how many jobs.

    Raises: Failed: its environment is absent, or it failed.
    """
    del places
    python = ROOT / ".venv-peers" / "bin" / "python"
    if not python.exists():
        raise Failed("There are no peers: make .venv-peers/.lock")
    with database(url) as own, ExitStack() as beside:
        if is_held:
            beside.enter_context(held_snapshot(own))
        program = [str(python), str(ROOT / "benchmarks" / "postgres_peers.py")]
        if words[0] == GRAPHILE:
            program, words = ["node", str(ROOT / "benchmarks" / "graphile" / "peer.mjs")], words[1:]
        place = Place(HERE, folder, {"PEER_URL": own, "PEER_MODULES": str(GRAPHILE_MODULES)})
        printed = place.read([*program, *map(str, words)])
        found: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
        return found
