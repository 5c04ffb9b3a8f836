"""Tasks that misbehave beyond their time limits, and share what a process has."""

import asyncio
import contextlib
import logging
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dueline import Dueline, Retry

MODES = ("threads", "processes", "coroutines")
"""One queue, and one for probes, for the worker of each kind."""

HELD_S = 20.0
"""How long a lock may be waited for before it counts as left held."""

BLOCKED_S = 8.0
"""How long a handler waits in a library, where no limit interrupts it."""

CONNECTIONS = 5

app = Dueline(os.environ["LIMITS_STORE"])
for mode in MODES:
    app.queue(mode, shards=1)
    app.queue(f"{mode}-probes", shards=1)

log = logging.getLogger("limited")
items: queue.Queue[int] = queue.Queue(4)
condition = threading.Condition()
pool: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
for _ in range(CONNECTIONS):
    pool.put(sqlite3.connect(":memory:", check_same_thread=False))


@contextlib.contextmanager
def connection() -> Iterator[sqlite3.Connection]:
    """Take a connection of the pool, and put it back."""
    taken = pool.get()
    try:
        yield taken
    finally:
        pool.put(taken)


def logs() -> None:
    log.warning("a row of %s", "x" * 50)


def shares_a_queue() -> None:
    with contextlib.suppress(queue.Full):
        items.put(1, timeout=0.05)
    with contextlib.suppress(queue.Empty):
        items.get(timeout=0.05)


def notifies() -> None:
    with condition:
        condition.notify_all()
        condition.wait(0.002)


def queries() -> None:
    with connection() as taken, taken:
        taken.execute("SELECT 1").fetchall()


def computes() -> None:
    sum(range(2000))


WORK: Mapping[str, Callable[[], None]] = {
    work.__name__: work for work in (logs, shares_a_queue, notifies, queries, computes)
}


def repeats(work: Callable[[], None], until_s: float) -> None:
    while time.monotonic() < until_s:
        work()


def swallows(work: Callable[[], None], until_s: float) -> None:
    while time.monotonic() < until_s:
        try:  # noqa: SIM105
            work()
        except:  # noqa: E722, S110  (as some do)
            pass


def swallows_outside(work: Callable[[], None], until_s: float) -> None:
    while time.monotonic() < until_s:
        try:
            repeats(work, until_s)
        except Exception:
            log.exception("this goes on")


LOOPS = {loop.__name__: loop for loop in (repeats, swallows, swallows_outside)}


@app.task(retry=Retry(attempts=1))
def in_thread(work: str, loop: str, seconds: float) -> None:
    """Do something again and again."""
    if work == "blocks":
        threading.Event().wait(BLOCKED_S)
    elif work == "mixes":
        choose = random.Random(seconds).choice
        every = list(WORK.values())

        def mixes() -> None:
            choose(every)()

        LOOPS[loop](mixes, time.monotonic() + seconds)
    else:
        LOOPS[loop](WORK[work], time.monotonic() + seconds)


@app.task(retry=Retry(attempts=1))
async def in_loop(work: str, loop: str, seconds: float) -> None:
    """Do something again and again, and give way to others between."""
    until_s = time.monotonic() + seconds
    if work == "blocks":
        await asyncio.shield(asyncio.sleep(BLOCKED_S))
    while time.monotonic() < until_s:
        try:
            while time.monotonic() < until_s:
                if loop == "swallows":
                    with contextlib.suppress(BaseException):
                        await step(work)
                else:
                    await step(work)
        except BaseException:
            if loop == "repeats":
                raise


async def step(work: str) -> None:
    """Do it once; the loop's thread waits for nothing that others hold for long."""
    if work == "logs":
        logs()
    elif work == "computes":
        computes()
    await asyncio.sleep(0.002)


@app.task
def what_is_held() -> list[str]:
    """Return what this process holds that nobody will release."""
    handlers = logging.getLogger().handlers
    locks: dict[str, Any] = {"condition": condition, "queue": items.mutex}
    locks |= {
        f"log {number}": handler.lock for number, handler in enumerate(handlers) if handler.lock
    }
    held = [name for name, lock in locks.items() if not lock.acquire(timeout=HELD_S)]
    for name in locks.keys() - set(held):
        locks[name].release()
    give_up_s = time.monotonic() + HELD_S
    while pool.qsize() < CONNECTIONS and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return [*held, *(["connections"] if pool.qsize() < CONNECTIONS else [])]
