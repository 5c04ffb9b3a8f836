"""dueline and its peers on one Redis server, in turns: `python -m benchmarks.redis_peers [ROUNDS]`.

Each measurement is a process of its own on an empty server with `appendfsync everysec`. dueline
has its default settings, with history and results; the peers keep no results, and have the
settings with which they are fastest. Prints the medians as JSON, and the ratios of dueline to RQ
and to the best peer.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

from tools.redis import Server

PORT: Final = 63795
TEXT: Final = "x" * 100
PART: Final = 10_000
PICKUPS: Final = 200
EVERY_S: Final = 0.02
WAITING: Final = 1_000_000
TAKEN: Final = 10_000
"""Number of jobs of the drain that is compared with one of WAITING jobs."""

started_s: list[float] = []


def noop(text: str) -> None:
    """Note when it starts."""
    del text
    started_s.append(time.perf_counter())


async def arq_noop(context: object, text: str) -> None:
    """Do the same as a coroutine."""
    del context
    noop(text)


def note(sent_s: str) -> None:
    """Note how long the start took; end the process after the last one."""
    started_s.append(time.time() - float(sent_s))
    if len(started_s) == PICKUPS:
        finish({"p50_ms": median(started_s) * 1000})


async def arq_note(context: object, sent_s: str) -> None:
    """Do the same as a coroutine."""
    del context
    note(sent_s)


class Side(ABC):
    """A queue.

    Attributes:
      counts: Number of jobs of each measurement: some seconds each.
    """

    counts: ClassVar[Mapping[str, int]]

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""

    def put_many(self, count: int) -> None:
        """Enqueue many jobs."""
        for _ in range(count):
            self.put("noop", TEXT)

    @abstractmethod
    def drain(self, count: int) -> None:
        """Run all jobs."""

    @abstractmethod
    def serve(self) -> None:
        """Run a worker for ever."""


class OnDueline(Side):
    """dueline."""

    counts: ClassVar = {"drain": 20_000, "bulk": 50_000, "singles": 3_000}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from dueline import Dueline  # noqa: PLC0415  (each side is imported alone)

        self.app = Dueline(url)
        self.tasks = {name: self.app.task(name=name)(globals()[name]) for name in ("noop", "note")}

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.tasks[function].enqueue(text)

    def put_many(self, count: int) -> None:
        """Enqueue many jobs."""
        for first in range(0, count, PART):
            self.tasks["noop"].enqueue_many([(TEXT,)] * min(PART, count - first))

    def drain(self, count: int) -> None:
        """Run all jobs."""
        del count
        self.app.run_worker(burst=True)

    def serve(self) -> None:
        """Run a worker for ever."""
        self.app.run_worker()


class OnRq(Side):
    """RQ, with the worker that does not fork."""

    counts: ClassVar = {"drain": 1_000, "bulk": 5_000, "singles": 2_000}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        import redis  # noqa: PLC0415
        import rq  # noqa: PLC0415

        connection: Any = redis.Redis.from_url(url)
        self.queue = rq.Queue(connection=connection)
        self.worker = rq.SimpleWorker([self.queue], connection=connection)
        self.prepared = rq.Queue.prepare_data

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.queue.enqueue(f"benchmarks.redis_peers.{function}", text, result_ttl=0)

    def put_many(self, count: int) -> None:
        """Enqueue many jobs."""
        function = "benchmarks.redis_peers.noop"
        self.queue.enqueue_many(
            [self.prepared(function, (TEXT,), result_ttl=0) for _ in range(count)]
        )

    def drain(self, count: int) -> None:
        """Run all jobs."""
        del count
        self.worker.work(burst=True, logging_level="WARNING")

    def serve(self) -> None:
        """Run a worker for ever."""
        self.worker.work(logging_level="WARNING")


class OnArq(Side):
    """arq, with many jobs at once and a poll every 5 ms."""

    counts: ClassVar = {"drain": 3_000, "bulk": 3_000, "singles": 2_000}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from arq import create_pool  # noqa: PLC0415
        from arq.connections import RedisSettings  # noqa: PLC0415

        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.pool = self.loop.run_until_complete(create_pool(RedisSettings.from_dsn(url)))

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.loop.run_until_complete(self.pool.enqueue_job(f"arq_{function}", text))

    def put_many(self, count: int) -> None:
        """Enqueue jobs concurrently, a hundred at once."""

        async def put() -> None:
            for _ in range(0, count, 100):
                await asyncio.gather(*(self.pool.enqueue_job("arq_noop", TEXT) for _ in range(100)))

        self.loop.run_until_complete(put())

    def _worker(self, *, burst: bool) -> Any:  # noqa: ANN401
        from arq.worker import Worker  # noqa: PLC0415

        functions: Any = [arq_noop, arq_note]
        return Worker(
            functions, redis_pool=self.pool, burst=burst, max_jobs=300, keep_result=0,
            poll_delay=0.005, handle_signals=False,
        )  # fmt: skip

    def drain(self, count: int) -> None:
        """Run all jobs."""
        del count
        self.loop.run_until_complete(self._worker(burst=True).main())

    def serve(self) -> None:
        """Run a worker for ever."""
        self.loop.run_until_complete(self._worker(burst=False).main())


class OnDramatiq(Side):
    """Dramatiq, with its middleware for time limits and retries."""

    counts: ClassVar = {"drain": 4_000, "bulk": 5_000, "singles": 2_000}
    threads = 16

    def __init__(self, url: str) -> None:
        super().__init__(url)
        import dramatiq  # noqa: PLC0415
        from dramatiq.brokers.redis import RedisBroker  # noqa: PLC0415

        kind: Any = RedisBroker
        self.broker = kind(url=url)
        dramatiq.set_broker(self.broker)
        self.actors = {name: dramatiq.actor(globals()[name]) for name in ("noop", "note")}

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.actors[function].send(text)

    def _start(self) -> Any:  # noqa: ANN401
        from dramatiq import Worker  # noqa: PLC0415

        worker = Worker(self.broker, worker_threads=self.threads, worker_timeout=5)
        worker.start()
        return worker

    def drain(self, count: int) -> None:
        """Run all jobs."""
        self._start()
        wait_for(count)

    def serve(self) -> None:
        """Run a worker for ever."""
        self._start()
        threading.Event().wait()


class OnHuey(Side):
    """Huey; its drain is the loop of a worker without a consumer around it."""

    counts: ClassVar = {"drain": 10_000, "bulk": 10_000, "singles": 3_000}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from huey import RedisHuey  # noqa: PLC0415

        self.huey = RedisHuey(url=url, results=False)
        self.tasks = {name: self.huey.task()(globals()[name]) for name in ("noop", "note")}

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.tasks[function](text)

    def drain(self, count: int) -> None:
        """Run all jobs."""
        for _ in range(count):
            self.huey.execute(self.huey.dequeue())

    def serve(self) -> None:
        """Run a worker for ever."""
        self.huey.create_consumer(workers=1, periodic=False).run()


class OnCelery(Side):
    """Celery, with the pool `solo` and prefetching."""

    counts: ClassVar = {"drain": 4_000, "bulk": 4_000, "singles": 2_000}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from celery import Celery  # noqa: PLC0415

        self.app = Celery("bench", broker=url)
        self.app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=128,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            worker_disable_rate_limits=True,
            broker_connection_retry_on_startup=True,
        )
        self.tasks = {name: self.app.task(name=name)(globals()[name]) for name in ("noop", "note")}

    def put(self, function: str, text: str) -> None:
        """Enqueue a job."""
        self.tasks[function].delay(text)

    def drain(self, count: int) -> None:
        """Run all jobs."""

        def end() -> None:  # its worker has to run in the main thread
            wait_for(count)
            finish({"per_s": rate_of_starts()})

        threading.Thread(target=end).start()
        self.serve()

    def serve(self) -> None:
        """Run a worker for ever."""
        words = ["worker", "-P", "solo", "--without-gossip", "--without-mingle"]
        self.app.worker_main([*words, "--without-heartbeat", "-l", "CRITICAL"])


SIDES: Final[dict[str, type[Side]]] = {
    "dueline": OnDueline, "rq": OnRq, "arq": OnArq, "dramatiq": OnDramatiq, "huey": OnHuey,
    "celery": OnCelery,
}  # fmt: skip


def wait_for(count: int) -> None:
    """Wait until so many jobs have started."""
    while len(started_s) < count:
        time.sleep(0.001)


def rate_of_starts() -> float:
    """Return the rate between the first and the last start."""
    return len(started_s) / (started_s[-1] - started_s[0])


def finish(measured: dict[str, float]) -> None:
    """Print a result, and end the process: threads of workers may still run."""
    print(json.dumps(measured), flush=True)
    os._exit(0)


def rate(count: int, run: Callable[[], object]) -> dict[str, float]:
    """Return the rate and the processor time of this process for each job."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    run()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return {"per_s": count / took_s, "cpu_us": cpu_s / count * 1e6}


def drained(side: Side, count: int) -> dict[str, float]:
    """Run jobs. The rate of workers that go on is that of the starts."""
    side.put_many(count)
    measured = rate(count, lambda: side.drain(count))
    if isinstance(side, OnDramatiq):
        measured["per_s"] = rate_of_starts()
    return measured


def backlog(side: Side) -> dict[str, float]:
    """Drain a million jobs, and ten thousand; return the rates, and memory of a waiting job."""
    import redis  # noqa: PLC0415

    server: Any = redis.Redis.from_url(side.url)
    found: dict[str, float] = {}
    for name, count in (("per_s", WAITING), ("alone_per_s", TAKEN)):
        used = server.info("memory")["used_memory"]
        side.put_many(count)
        found.setdefault("bytes", (server.info("memory")["used_memory"] - used) / count)
        found[name] = rate(count, partial(side.drain, count))["per_s"]
    return found


def measured_here(name: str, command: str, url: str) -> dict[str, float]:
    """Measure one side in this process."""
    logging.disable()
    side = SIDES[name](url)
    count = side.counts.get(command, 0)
    if command == "drain":
        return drained(side, count)
    if command == "backlog":
        return backlog(side)
    if command == "produce":
        for _ in range(PICKUPS):
            time.sleep(EVERY_S)
            side.put("note", repr(time.time()))
        return {}
    if command == "pickup":
        words = [sys.executable, "-m", "benchmarks.redis_peers", name, "produce", url]
        start = partial(subprocess.Popen, words, stdout=subprocess.DEVNULL)
        timer = threading.Timer(1, start)  # the worker is idle by then
        timer.start()
        side.serve()
    side.put("noop", TEXT)
    put = (
        side.put_many if command == "bulk" else lambda n: [side.put("noop", TEXT) for _ in range(n)]
    )
    return rate(count, lambda: put(count))


def compare(rounds: int) -> dict[str, Any]:
    """Measure all in turns; return medians and ratios."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {
        command: {name: [] for name in SIDES} for command in ("drain", "bulk", "singles", "pickup")
    }
    samples["backlog"] = {"dueline": []}
    for number in range(rounds):
        for command, sides in samples.items():
            for name, found in sides.items():
                found.append(measured_alone(name, command))
        print(f"round {number + 1}", file=sys.stderr)
    return {command: medians(sides) for command, sides in samples.items()}


def medians(sides: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of all sides, and the ratios of dueline to RQ and to the best peer."""
    report: dict[str, Any] = {
        name: {key: round(median(one[key] for one in found), 2) for key in found[0]}
        for name, found in sides.items()
    }
    key = "p50_ms" if "p50_ms" in report["dueline"] else "per_s"
    peers = {name: found[key] for name, found in report.items() if name != "dueline"}
    if peers:
        best = (min if key == "p50_ms" else max)(peers, key=peers.__getitem__)
        for name in ("rq", best):
            report[f"dueline / {name}"] = round(report["dueline"][key] / peers[name], 3)
    return report


def measured_alone(name: str, command: str) -> dict[str, float]:
    """Measure one side in a process of its own, on an empty server."""
    with TemporaryDirectory() as folder:
        # A rewrite of the file would take one of two cores in some drains, and not in others.
        settings = {"auto-aof-rewrite-percentage": "0"}
        server = Server("redis", Path(folder), port=PORT, fsync="everysec", settings=settings)
        server.start()
        try:
            words = [sys.executable, "-m", "benchmarks.redis_peers", name, command, server.url]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=300)
        finally:
            server.kill()
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Measure one side, or all in turns."""
    if len(sys.argv) > 2:
        finish(measured_here(*sys.argv[1:]))
    print(json.dumps(compare(int(sys.argv[1]) if sys.argv[1:] else 5), indent=2))


if __name__ == "__main__":
    main()
