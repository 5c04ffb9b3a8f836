"""Rows on a Cassandra node, each side in a keyspace of its own."""

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from cassandra.cluster import Cluster

from benchmarks import against_cassandra, idle_cassandra, statements_cassandra
from benchmarks.commands import HERE, Checkout, Failed, Place, Sample
from benchmarks.idle import RATIO_MAX
from benchmarks.rounds import Rounds
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

PICKUP_EVERY_S: Final = 0.15
PICKUPS: Final = 60
IDLE_LANES: Final = 100_000
STATEMENTS_MAX: Final = 0.06
"""Maximum number of statements for each job: 22 for a claim of 1,000 jobs, and polls."""

NO_WAKE_UPS: Final = "?wake=off"
"""What is added to the URL of a store so that no wake-ups are sent over the network."""

_TOOK = re.compile(r"^\s*(?:time|duration)\s+([\d.]+) s", re.MULTILINE)


def rows(host: str, sizes: Sizes, base: Checkout | None) -> list[Row]:
    """Return the rows, in the order in which they are measured."""
    jobs = sizes.cassandra_jobs
    of: dict[str, Checkout] = {"ours": HERE} | ({"base": base} if base else {})

    def drains(**settings: object) -> dict[str, Measure]:
        return {
            name: partial(drain, host, checkout, settings=settings, jobs=jobs)
            for name, checkout in of.items()
        }

    soon: dict[str, Measure] = {
        name: partial(pickups, host, checkout) for name, checkout in of.items()
    }
    soon |= {"by polling": partial(pickups, host, HERE, more=NO_WAKE_UPS)}
    files = sizes.demo_files
    demos: dict[str, Measure] = {
        name: partial(demo, host, checkout, files=files) for name, checkout in of.items()
    }
    demos |= {"SQLite": partial(demo, "", HERE, files=files)}
    found = [
        Row("cassandra-default", "Cassandra: drain of no-op jobs, default settings",
            in_turn(drains()), [("", "per_s")]),
        Row("cassandra-history", "Cassandra: the same with history, without results",
            in_turn(drains(keep=0)), [("", "per_s")]),
        Row("cassandra-pickup", "Cassandra: from enqueue to start on an idle queue",
            in_turn(soon), [("", "p50_ms"), ("", "p95_ms")]),
        Row("cassandra-demo", "Cassandra: the demo", in_turn(demos), [("SQLite", "per_s")]),
    ]  # fmt: skip
    if base:
        return found
    return [
        *found,
        Row("cassandra-raw", "Cassandra: drain without history and results, eight shards",
            partial(raw, host, jobs=jobs), (),
            [Limit("per_s", 0.6, to="raw"), Limit("per_s", 15.0, to="lock per job")]),
        Row("cassandra-statements", "Cassandra: statements for each job of a default drain",
            partial(statements, host, jobs=jobs), (),
            [Limit("statements", STATEMENTS_MAX)], rounds_max=1),
        Row("cassandra-idle", "Cassandra: a claim beside idle lanes, many against few",
            partial(beside_idle, host), (),
            [Limit("tenants_ratio", RATIO_MAX), Limit("queues_ratio", RATIO_MAX)],
            rounds_max=1, is_long=True),
    ]  # fmt: skip


@contextmanager
def keyspace(host: str, checkout: Checkout, folder: Path, more: str = "") -> Iterator[str]:
    """Make a keyspace by a checkout's own command, and drop it after the block."""
    name = f"bench_{secrets.token_hex(4)}"
    url = f"cassandra://{host}/{name}"
    place = Place(checkout, folder, {"DUELINE_STORE": url + more})
    try:
        place.read(checkout.dueline("migrate"))
        yield url + more
    finally:
        cluster = Cluster([host], protocol_version=5)
        cluster.connect().execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)
        cluster.shutdown()


def drain(
    host: str, checkout: Checkout, folder: Path, places: Mapping[str, Path], *,
    settings: Mapping[str, object], jobs: int,
) -> Sample:  # fmt: skip
    """Drain a backlog by the worker command."""
    del places
    with keyspace(host, checkout, folder) as url:
        more = {"DUELINE_STORE": url, "BENCH_COUNT": str(jobs)}
        more |= {"BENCH_SETTINGS": json.dumps(settings)} if settings else {}
        place = place_of(checkout, folder, **more)
        place.side(APP, "put", jobs)
        place.run(worker(place, "--burst"))
        return between(place, jobs)


def pickups(
    host: str, checkout: Checkout, folder: Path, places: Mapping[str, Path], *, more: str = ""
) -> Sample:
    """Time how soon an idle worker starts a job that another process enqueues."""
    del places
    with keyspace(host, checkout, folder, more) as url:
        starts = str(folder / "starts")
        place = place_of(checkout, folder, DUELINE_STORE=url, BENCH_STARTS=starts)
        with place.running(worker(place)) as process_id:
            return picked_up(
                place, process_id, APP, PICKUPS, every_s=PICKUP_EVERY_S, settle_s=2 * SETTLE_S
            )


def demo(
    host: str, checkout: Checkout, folder: Path, places: Mapping[str, Path], *, files: int
) -> Sample:
    """Run the checkout's demo.

    Raises: Failed: its proof does not hold.
    """
    del places
    if host:
        with keyspace(host, checkout, folder) as url:
            return _demo(checkout, files, {"DUELINE_STORE": url})
    return _demo(checkout, files, {})


def _demo(checkout: Checkout, files: int, store: Mapping[str, str]) -> Sample:
    known = {name: value for name, value in os.environ.items() if name != "DUELINE_STORE"}
    words = [str(checkout.python), "-m", "examples.demo.run"]
    done = subprocess.run(
        words, cwd=checkout.root, env={**known, **store, "FILES": str(files), "NO_COLOR": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = _TOOK.search(done.stdout)
    if done.returncode or not found:
        raise Failed(f"The demo failed: {done.stdout[-2000:]}{done.stderr[-500:]}")
    return {"per_s": files / float(found[1])}


def raw(host: str, folder: Path, *, jobs: int) -> Mapping[str, Sample]:
    """Drain beside raw loops, and beside a lock per job."""
    del folder
    rounds = Rounds()
    with against_cassandra.opened(host) as (url, session):
        against_cassandra.run(rounds, url, session, jobs=jobs, singles=200)
    rates = {name: one[0] for name, one in rounds.rates.items()}
    return {
        "ours": {"per_s": rates["drain"], "history_per_s": rates["drain with history"],
                 "bulk_per_s": rates["bulk enqueue"]},
        "raw": {"per_s": rates["raw claim + drop"], "history_per_s": rates["raw claim + drop"],
                "bulk_per_s": rates["raw insert"]},
        "lock per job": {"per_s": rates["raw lock per job"]},
    }  # fmt: skip


def statements(host: str, folder: Path, *, jobs: int) -> Mapping[str, Sample]:
    """Count the statements of a drain."""
    del folder
    return {"ours": statements_cassandra.measure(host, jobs=jobs)}


def beside_idle(host: str, folder: Path) -> Mapping[str, Sample]:
    """Time claims beside idle lanes."""
    del folder
    found = idle_cassandra.measure(host, most=IDLE_LANES)
    kinds = ("tenants", "queues")
    return {"ours": {f"{kind}_ratio": float(str(found[f"ratio_beside_idle_{kind}"]))
                     for kind in kinds}}  # fmt: skip
