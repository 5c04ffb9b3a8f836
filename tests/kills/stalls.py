"""`python -m tests.kills.stalls`: answers of a node that is stopped and goes on.

Threads read rows of six tables, each of which tells its table and key, and write some under
conditions, while a node of their own is stopped (SIGSTOP) for longer than it lets requests wait in
its queue. Each answer is compared with its question. Connections are given as long as the driver's
own settings give them: the store's would close them before the node goes on.
"""

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from cassandra.cluster import DefaultConnection

from dueline.stores.cassandra import connection
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.guard import STRAY_ANSWERS
from dueline.stores.cassandra.url import Place
from tools.cassandra.jars import CASSANDRA_VERSION
from tools.cassandra.node import Node
from tools.cassandra.ring import Ring

FIRST = 111
KEYSPACE = "stalls"
TABLES = 6
KEYS = 40
AT_ONCE = 32
"""Requests of one thread that are under way."""

DECISIONS = 0.2
"""Share of conditional writes."""


class UnguardedConnection(DefaultConnection):  # type: ignore[misc]  # the driver has no types
    """The driver's own connection; counts answers on stream 0 that no request waits for."""

    def process_msg(self, header: Any, body: bytes) -> None:  # noqa: ANN401  (the driver's)
        if header.stream == 0 and 0 not in self._requests:
            STRAY_ANSWERS.drop()
        super().process_msg(header, body)


class Readers:
    """Threads that compare each answer with its question."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401  (the driver's)
        self._session = session
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self._reads, self._decisions = [], []
        for number in range(TABLES):
            table = f"{KEYSPACE}.t{number}"
            session.execute(f"DROP TABLE IF EXISTS {table}")
            session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text, c{number} int)")
            self._reads.append(session.prepare(f"SELECT id, name FROM {table} WHERE id = ?"))  # noqa: S608
            self._decisions.append(
                session.prepare(f"UPDATE {table} SET c{number} = 1 WHERE id = ? IF name = ?")  # noqa: S608
            )
            insert = session.prepare(f"INSERT INTO {table} (id, name) VALUES (?, ?)")  # noqa: S608
            sent = [session.execute_async(insert, (key, f"t{number}/{key}")) for key in range(KEYS)]
            for future in sent:
                future.result()

    def run(self, threads: int, seconds: float, stall: Any) -> None:  # noqa: ANN401  (a function)
        """Read for a time, while something happens to the node."""
        readers = [threading.Thread(target=self._read, args=[seed]) for seed in range(threads)]
        for reader in readers:
            reader.start()
        stall(time.monotonic() + seconds)
        self._over.set()
        for reader in readers:
            reader.join()

    def _read(self, seed: int) -> None:
        chance = random.Random(seed)
        counts: Counter[str] = Counter()
        under_way: deque[tuple[Any, Rows]] = deque()
        while not self._over.is_set() or under_way:
            if len(under_way) >= AT_ONCE or self._over.is_set():
                counts[_judge(*under_way.popleft())] += 1
            if not self._over.is_set():
                counts["asked"] += 1
                with suppress(Exception):  # no connection, for a while
                    under_way.append(self._ask(chance))
        with self._lock:
            self.counts += counts

    def _ask(self, chance: random.Random) -> tuple[Any, Rows]:
        """Send a request; return the driver's future, and what it should be answered."""
        table, key = chance.randrange(TABLES), chance.randrange(KEYS)
        name = f"t{table}/{key}"
        if chance.random() < DECISIONS:
            sent = self._session.execute_async(self._decisions[table], (key, name))
            return sent, [(True,)]
        return self._session.execute_async(self._reads[table], (key,)), [(key, name)]


def _judge(future: Any, expected: Rows) -> str:  # noqa: ANN401
    try:
        rows = [tuple(row) for row in future.result()]
    except Exception:  # noqa: BLE001  (no answer, or one that cannot be read)
        return "unanswered"
    if rows == expected:
        return "right"
    is_of_shape = [[*map(type, row)] for row in rows] == [[*map(type, row)] for row in expected]
    return "wrong, in the right columns" if is_of_shape else "wrong"


def stall_until(node: Node, end_s: float, *, pause_s: float, every_s: float) -> None:
    """Stop a node again and again."""
    time.sleep(min(every_s - pause_s, 3.0))
    while time.monotonic() + pause_s < end_s:
        began_s = time.monotonic()
        node.pause()
        time.sleep(pause_s)
        node.resume()
        time.sleep(max(0.0, min(began_s + every_s, end_s) - time.monotonic()))


def streams_free_twice(session: Any) -> int:  # noqa: ANN401  (the driver's)
    """Count the streams that two requests could be given at once."""
    connections = [
        connection for pool in session._pools.values() for connection in pool.get_connections()
    ]
    return sum(
        len(connection.request_ids) - len(set(connection.request_ids)) for connection in connections
    )


def main() -> int:
    """Run once and print what happened as JSON; answer 1 where an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills.stalls")
    parser.add_argument("--version", default=CASSANDRA_VERSION, help="of the server: %(default)s")
    parser.add_argument("--dir", type=Path, help="folder of a ring of one node that is running")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=13.5, help="seconds; default: %(default)s")
    parser.add_argument("--every", type=float, default=20.0, help="seconds; default: %(default)s")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--unguarded", action="store_true", help="the driver's own connection")
    parser.add_argument("--strays", action="store_true", help="fail where no stray answer came")
    chosen = parser.parse_args()
    vars(connection).update(HEARTBEAT_EVERY=3.0, HEARTBEAT_WAITS=3.0)
    if chosen.unguarded:
        vars(connection)["GuardedConnection"] = UnguardedConnection
    with ExitStack() as stack:
        ring = Ring.find(chosen.dir) if chosen.dir else None
        if ring is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ring = Ring(folder, first=FIRST, fast_start=True, version=chosen.version)
            stack.enter_context(ring)
        place = Place(ring.hosts, KEYSPACE)
        cluster, session = connection.connect(place)
        session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        readers = Readers(session)
        (node,) = ring.nodes
        readers.run(
            chosen.threads,
            chosen.seconds,
            lambda end_s: stall_until(node, end_s, pause_s=chosen.pause, every_s=chosen.every),
        )
        told = {
            "version": ring.version,
            "guarded": not chosen.unguarded,
            **{name: readers.counts[name] for name in _COUNTED},
            "stray answers": STRAY_ANSWERS.dropped,
            "connections closed": STRAY_ANSWERS.closed,
            "streams free twice": streams_free_twice(session),
        }
        cluster.shutdown()
    print(json.dumps(told, indent=2))  # noqa: T201
    is_wrong = told["wrong"] or told["wrong, in the right columns"]
    return 1 if is_wrong or (chosen.strays and not told["stray answers"]) else 0


_COUNTED = ("asked", "right", "unanswered", "wrong", "wrong, in the right columns")


if __name__ == "__main__":
    raise SystemExit(main())
