"""Peers on PostgreSQL, run by an environment of their own, which has no dueline.

`python benchmarks/postgres_peers.py PEER COMMAND COUNT`, with the database in PEER_URL. Each
command makes the peer's tables in an empty database and prints what it measured as JSON:
`drain`, `bulk` and `singles` a rate, `pickup` the milliseconds from enqueue to start.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Protocol

URL = os.environ.get("PEER_URL", "")
TEXT = "x" * 100
BATCH = 100
CHUNK = 10_000
PAUSE_S = 0.05


class Starts:
    """The starts of jobs, and an event at the last one."""

    def __init__(self, count: int) -> None:
        """Take the number of jobs."""
        self.at_s: list[float] = []
        self.count = count
        self.all = asyncio.Event()
        self.one = asyncio.Event()

    def note(self) -> None:
        """Note a start."""
        self.at_s.append(time.perf_counter())
        self.one.set()
        if len(self.at_s) >= self.count:
            self.all.set()


class PgQueuerPeer:
    """PgQueuer with asyncpg, its fastest driver, and a batch of 100 instead of 10."""

    async def open(self, starts: Starts) -> None:
        """Make the tables, and register the job."""
        import asyncpg  # noqa: PLC0415  (each peer is imported alone)
        from pgqueuer import PgQueuer  # noqa: PLC0415
        from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
        from pgqueuer.queries import Queries  # noqa: PLC0415

        producer = AsyncpgDriver(await asyncpg.connect(URL))
        self._queries = Queries(producer)
        await self._queries.install()
        self._worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

        async def noop(_job: object) -> None:
            starts.note()

        self._worker.entrypoint("noop")(noop)

    async def put(self) -> None:
        """Enqueue a job."""
        await self._queries.enqueue("noop", TEXT.encode())

    async def put_many(self, count: int) -> None:
        """Enqueue jobs in bulk."""
        for first in range(0, count, CHUNK):
            some = min(CHUNK, count - first)
            await self._queries.enqueue(["noop"] * some, [TEXT.encode()] * some, [0] * some)

    async def work(self) -> None:
        """Run a worker until it is cancelled."""
        await self._worker.run(batch_size=BATCH)


class ProcrastinatePeer:
    """Procrastinate with psycopg; ten jobs at a time."""

    async def open(self, starts: Starts) -> None:
        """Make the tables, and register the job."""
        import procrastinate  # noqa: PLC0415

        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

        async def noop(text: str) -> None:
            del text
            starts.note()

        self._noop = self._app.task(name="noop")(noop)

    async def put(self) -> None:
        """Enqueue a job."""
        await self._noop.defer_async(text=TEXT)

    async def put_many(self, count: int) -> None:
        """Enqueue jobs in bulk."""
        for first in range(0, count, CHUNK):
            some = min(CHUNK, count - first)
            await self._noop.batch_defer_async(*[{"text": TEXT}] * some)

    async def work(self) -> None:
        """Run a worker until it is cancelled."""
        await self._app.run_worker_async(
            concurrency=10, install_signal_handlers=False, delete_jobs="always"
        )


class Peer(Protocol):
    """A queue on PostgreSQL."""

    async def open(self, starts: Starts) -> None: ...  # noqa: D102
    async def put(self) -> None: ...  # noqa: D102
    async def put_many(self, count: int) -> None: ...  # noqa: D102
    async def work(self) -> None: ...  # noqa: D102


PEERS: dict[str, Callable[[], Peer]] = {
    "pgqueuer": PgQueuerPeer,
    "procrastinate": ProcrastinatePeer,
}


async def drain(peer: Peer, starts: Starts) -> dict[str, float]:
    """Drain a backlog with one worker; the rate between the first and the last start."""
    await peer.put_many(starts.count)
    worker = asyncio.create_task(peer.work())
    await starts.all.wait()
    worker.cancel()
    return {"per_s": starts.count / (starts.at_s[-1] - starts.at_s[0])}


async def timed(count: int, run: Awaitable[None]) -> dict[str, float]:
    """Time a call that handles jobs."""
    began_s = time.perf_counter()
    await run
    return {"per_s": count / (time.perf_counter() - began_s)}


async def bulk(peer: Peer, starts: Starts) -> dict[str, float]:
    """Enqueue jobs in bulk."""
    await peer.put()
    return await timed(starts.count, peer.put_many(starts.count))


async def singles(peer: Peer, starts: Starts) -> dict[str, float]:
    """Enqueue jobs one by one."""

    async def run() -> None:
        for _ in range(starts.count):
            await peer.put()

    await peer.put()
    return await timed(starts.count, run())


async def pickup(peer: Peer, starts: Starts) -> dict[str, float]:
    """Enqueue a job now and then, into an idle queue with a worker."""
    worker = asyncio.create_task(peer.work())
    await asyncio.sleep(1)
    taken_ms = []
    for _ in range(starts.count):
        starts.one.clear()
        began_s = time.perf_counter()
        await peer.put()
        await starts.one.wait()
        taken_ms.append((starts.at_s[-1] - began_s) * 1e3)
        await asyncio.sleep(PAUSE_S)
    worker.cancel()
    places = quantiles(taken_ms, n=100)
    return {"p50_ms": places[49], "p95_ms": places[94]}


COMMANDS = {"drain": drain, "bulk": bulk, "singles": singles, "pickup": pickup}


async def main(name: str, command: str, count: int) -> None:
    """Run a command of a peer, and print what it measured."""
    peer, starts = PEERS[name](), Starts(count)
    await peer.open(starts)
    print(json.dumps(await COMMANDS[command](peer, starts)), flush=True)
    os._exit(0)  # without waiting for tasks of the peer


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
