"""`python -m tests.kills.appends`: each event once and in order, whoever is killed.

Producers append events in transactions of their own that overlap all the time, and groups read
them, on a PostgreSQL server that is struck too. KILLS and STRIKES, from the environment, say how
often.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dueline import Dueline
from tests.harness.postgres import statement
from tests.kills.clicks import GROUPS, PRODUCER, SHARDS, STORE_VARIABLE
from tests.kills.cluster import StruckCluster, struck_cluster
from tests.kills.processes import start, told_in

ROLES = ("producer", "producer", "consumer", "consumer")
KILLS, STRIKES = 100, 10
BETWEEN_S_MAX = 1.0
STOPPED_S = 1.5
STOPS = 0.25
"""Of the kills: processes that stand still instead."""

SETTLED_S_MAX = 60.0
END_S_MAX = 30.0

TABLES = """
CREATE TABLE appended (name text PRIMARY KEY, number bigint);
CREATE TABLE seen (
  place_read bigserial, consumer text, name text, place bigint, shard bigint, at_us bigint, id bytea
)
"""


class Report(NamedTuple):
    """What was read. events: committed ones; faults: what must not be, in words."""

    events: int
    kills: int
    strikes: int
    faults: Sequence[str]


class Appends:
    """One run: producers and consumers that are killed and come again."""

    def __init__(self, folder: Path, cluster: StruckCluster, *, seed: int) -> None:
        """Take an empty folder, a server with an empty store, and the seed."""
        self._errors = folder / "stderr"
        self._cluster = cluster
        self._choice = random.Random(seed)
        self._app = Dueline(cluster.url)
        self._clicks = self._app.stream("clicks", shards=SHARDS)
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def run(self, *, kills: int, strikes: int) -> Report:
        """Run it all, let the groups read to the end, and judge."""
        statement(self._cluster.url, TABLES)
        assert self._clicks.settings.shards == SHARDS
        self._running = [(role, self._start(role)) for role in ROLES]
        strike_at = set(self._choice.sample(range(kills), strikes))
        try:
            self._wait_for_events()
            for number in range(kills):
                time.sleep(self._choice.random() * BETWEEN_S_MAX)
                self._cluster.heal(time.monotonic())
                if number in strike_at:
                    while not self._cluster.may_strike():
                        self._cluster.heal(time.monotonic())
                        time.sleep(0.1)
                    self._cluster.strike()
                self._kill()
            self._cluster.wait_ready()
            self._end("producer")
            self._settle()
            self._end("consumer")
        finally:
            for _, process in self._running:
                process.kill()
                process.wait()
            self._app.close()
        return Report(len(self._appended()), kills, strikes, list(self._faults()))

    def _wait_for_events(self) -> None:
        """Wait for the first event: on a busy machine all kills would come before it."""
        give_up = time.monotonic() + SETTLED_S_MAX
        while not self._appended():
            assert time.monotonic() < give_up, "nothing is appended: " + told_in(self._errors)
            time.sleep(0.1)

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        settings = {STORE_VARIABLE: self._cluster.url}
        return start("tests.kills.clicks", role, errors=self._errors, settings=settings)

    def _kill(self) -> None:
        """Kill a process, or let it stand still for longer than it may be silent."""
        place = self._choice.randrange(len(self._running))
        role, process = self._running[place]
        assert process.poll() is None, "a process ended unasked: " + told_in(self._errors)
        if self._choice.random() < STOPS:
            process.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)
            process.send_signal(signal.SIGCONT)
            return
        process.kill()
        process.wait()
        self._running[place] = role, self._start(role)

    def _end(self, role: str) -> None:
        """Kill producers; ask consumers to end."""
        for own, process in self._running:
            if own == role:
                process.send_signal(signal.SIGKILL if role == "producer" else signal.SIGTERM)
                process.wait(END_S_MAX)

    def _settle(self) -> None:
        """Wait until the sessions of the producers have ended, and the groups read everything."""
        give_up = time.monotonic() + SETTLED_S_MAX
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        while statement(self._cluster.url, sessions, (PRODUCER,))[0][0] or any(
            lag.rows for group in GROUPS for lag in self._clicks.lag(group)
        ):
            assert time.monotonic() < give_up, "events are not read: " + told_in(self._errors)
            time.sleep(0.2)

    def _appended(self) -> set[tuple[str, int]]:
        rows = statement(self._cluster.url, "SELECT name, number FROM appended")
        return {(name, place) for name, number in rows for place in range(number)}

    def _faults(self) -> Iterator[str]:
        wanted = self._appended()
        for group in GROUPS:
            rows = statement(
                self._cluster.url,
                "SELECT name, place, shard, at_us, id FROM seen WHERE consumer = %s"
                " ORDER BY place_read",
                (group,),
            )
            seen = Counter((name, place) for name, place, *_ in rows)
            yield from (f"{group}: {place} was not read" for place in wanted - seen.keys())
            yield from (f"{group}: {place} was rolled back" for place in seen.keys() - wanted)
            yield from (f"{group}: {place} came {n} times" for place, n in seen.items() if n > 1)
            for shard in range(SHARDS):
                places = [(at_us, key) for _, _, own, at_us, key in rows if own == shard]
                if any(after <= before for before, after in pairwise(places)):
                    yield f"{group}: shard {shard} was not read in order"


def main() -> int:
    """Run it once and print what happened as JSON; answer 1 where there is a fault."""
    seed, began = int.from_bytes(os.urandom(4)), time.monotonic()
    kills = int(os.environ.get("KILLS") or KILLS)
    strikes = int(os.environ.get("STRIKES") or STRIKES)
    with (
        tempfile.TemporaryDirectory() as folder,
        struck_cluster(Path(folder, "server"), seed) as cluster,
    ):
        report = Appends(Path(folder), cluster, seed=seed).run(kills=kills, strikes=strikes)
    said = report._asdict() | {"faults": len(report.faults), "examples": report.faults[:5]}
    took_s = round(time.monotonic() - began, 1)
    print(json.dumps({"seed": seed, "took_s": took_s, **said}, indent=2))  # noqa: T201
    return 1 if report.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
