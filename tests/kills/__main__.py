"""`python -m tests.kills`: the long loop.

`--kills 200 --pauses 50 --jobs 100000` for the full form.
`--store cassandra` for a node, with `--nodes 3` for a ring of three.
There, with `--centres`, each node stands in a data centre of its own, and each process in one of
them; with `--astray` the clocks of half the processes are ten minutes off, as on other machines.
`--store postgres` or `--store redis` for a server of its own, which is struck too;
`--store redis-cluster` for a cluster of three primaries and their replicas.
`--store full-disk` for a file on a small disk that is full now and then; root may mount it, and
for others it is skipped. `--store silent-disk` for one that stands still now and then, while
workers are told to end. `--jumping` for processes whose wall clocks jump by ten minutes.
With `--silence 15 40 --struck paused --timeout 60 --threads 1 --version 5.0.8` nodes stand still
for longer than they let requests wait in their queues, and answer some on foreign streams.
KILLS, PAUSES, JOBS and NODES, from the environment, say how many where the options do not;
STRIKES how often something happens to Cassandra's nodes or the server of PostgreSQL or Redis, FILLS
and FREEZES how often the disk is full or stands still.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from simulation.judge import Report
from tests.kills.cluster import struck_cluster, struck_redis, struck_slots
from tests.kills.disk import MountError, frozen_disk, small_disk
from tests.kills.jumps import NoLibraryError
from tests.kills.loop import Loop
from tests.kills.ring import OF_LINES, OF_THREE, SILENT_S, TIMEOUT_S, Silence, struck_ring
from tools.cassandra.config import REQUEST_THREADS
from tools.cassandra.jars import CASSANDRA_VERSION

DEFAULTS = {
    "sqlite": {"KILLS": 50, "PAUSES": 10, "JOBS": 20_000},
    "full-disk": {"KILLS": 10, "PAUSES": 0, "JOBS": 10_000, "FILLS": 20},
    "silent-disk": {"KILLS": 10, "PAUSES": 0, "JOBS": 10_000, "FREEZES": 20},
    "postgres": {"KILLS": 30, "PAUSES": 5, "JOBS": 10_000, "STRIKES": 5},
    "redis": {"KILLS": 30, "PAUSES": 5, "JOBS": 10_000, "STRIKES": 12},
    "redis-cluster": {"KILLS": 30, "PAUSES": 5, "JOBS": 10_000, "STRIKES": 12},
    "cassandra": {"KILLS": 30, "PAUSES": 0, "JOBS": 5_000, "NODES": 1, "STRIKES": 6},
}


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills")
    parser.add_argument("--store", choices=DEFAULTS, default="sqlite")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--kills", type=int)
    parser.add_argument("--pauses", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--nodes", type=int, choices=(1, 3), help="Cassandra: nodes of the ring")
    parser.add_argument("--strikes", type=int, help="how often nodes or the server are struck")
    parser.add_argument("--centres", action="store_true", help="Cassandra: one for each node")
    parser.add_argument("--jumping", action="store_true", help="SQLite: all wall clocks jump")
    parser.add_argument("--astray", action="store_true", help="Cassandra: clocks of some are off")
    parser.add_argument(
        "--silence",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
        default=SILENT_S,
        help="Cassandra: how long a node is away, in seconds; default: %(default)s",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        help="Cassandra: how long an answer is waited for, in seconds; default: %(default)s",
    )
    parser.add_argument("--version", default=CASSANDRA_VERSION, help="Cassandra: of the server")
    parser.add_argument(
        "--threads",
        type=int,
        default=REQUEST_THREADS,
        help="Cassandra: requests that a node serves at once; default: %(default)s",
    )
    parser.add_argument(
        "--struck",
        nargs="+",
        choices=OF_THREE + OF_LINES,
        default=(),
        metavar="KIND",
        help="Cassandra: what happens to nodes, in turn; default: everything",
    )
    chosen = parser.parse_args()
    seed = chosen.seed
    began = time.monotonic()
    asked = {name: getattr(chosen, name.lower(), None) for name in DEFAULTS[chosen.store]}
    try:
        report = _run(chosen, seed, asked)
    except MountError as error:
        print(f"SKIPPED: no disk of our own can be mounted: {error}")  # noqa: T201
        return 0
    except NoLibraryError as error:
        print(f"SKIPPED: no clock can be set apart: {error}")  # noqa: T201
        return 0
    examples = {verdict: stories[:5] for verdict, stories in report.faults.items() if stories}
    told = {
        "store": chosen.store,
        "seed": seed,
        "took_s": round(time.monotonic() - began, 1),
        **report.counts,
        "faults": {verdict: len(stories) for verdict, stories in report.faults.items()},
    }
    print(json.dumps(told, indent=2))  # noqa: T201
    if examples:
        print(json.dumps(examples, indent=2))  # noqa: T201
    return 1 if examples else 0


def _run(chosen: argparse.Namespace, seed: int, asked: Mapping[str, int | None]) -> Report:
    store = chosen.store
    counts = {
        name: most if (most := asked.get(name)) is not None else int(os.environ.get(name) or usual)
        for name, usual in DEFAULTS[store].items()
    }
    loop = partial(
        Loop, jobs=counts["JOBS"], kills=counts["KILLS"], pauses=counts["PAUSES"], seed=seed
    )
    with tempfile.TemporaryDirectory() as place:
        diaries, server = Path(place, "diaries"), Path(place, "server")
        diaries.mkdir()
        if store == "sqlite":
            return loop(diaries, jumping=chosen.jumping).run()
        if store == "full-disk":
            server.mkdir()
            with small_disk(server) as disk:
                return loop(diaries, disk=disk, fills=counts["FILLS"]).run()
        if store == "silent-disk":
            server.mkdir()
            with frozen_disk(server, Path(place, "image")) as still_disk:
                return loop(diaries, still_disk=still_disk, freezes=counts["FREEZES"]).run()
        if store == "postgres":
            with struck_cluster(server, seed) as cluster:
                return loop(diaries, server=cluster, server_strikes=counts["STRIKES"]).run()
        if store == "redis":
            with struck_redis(server, seed) as redis:
                return loop(diaries, server=redis, server_strikes=counts["STRIKES"]).run()
        if store == "redis-cluster":
            with struck_slots(server, seed) as slots:
                return loop(diaries, server=slots, server_strikes=counts["STRIKES"]).run()
        nodes, strikes = counts["NODES"], counts["STRIKES"]
        least_s, most_s = chosen.silence
        silence = Silence(
            least_s,
            most_s,
            timeout_s=chosen.timeout,
            version=chosen.version,
            threads=chosen.threads,
            kinds=chosen.struck,
            in_turn=chosen.silence != SILENT_S,
        )
        with struck_ring(
            server, nodes=nodes, seed=seed, centres=chosen.centres, silence=silence
        ) as ring:
            return loop(diaries, server=ring, server_strikes=strikes, is_astray=chosen.astray).run()


if __name__ == "__main__":
    raise SystemExit(main())
