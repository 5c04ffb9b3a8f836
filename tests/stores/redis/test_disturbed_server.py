"""A server that is disturbed during inserts and a drain loses nothing that it acknowledged."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import JobId
from dueline.core.store import Drop, Group, Lease, Store, Want
from dueline.store_tests.calls import LEASE_US, NOW_US, id_of, lane_of, new_job, row_of, token_of
from tests.harness.redis import StartServer
from tools.redis import Server
from tools.redis.server import HOST

TIMES = 5
JOBS_OF_A_CALL = 20
STALL_S = 15.0
"""Longer than the time limit of a call, and than the outcome of a lost one is read."""


def insert(store: Store, stop: threading.Event, acknowledged: set[JobId]) -> None:
    """Insert jobs until asked to stop; a call whose outcome is unknown is repeated."""
    for call in count():
        if stop.is_set():
            break
        first = call * JOBS_OF_A_CALL
        jobs = [new_job(first + number, body=b"x" * 100) for number in range(JOBS_OF_A_CALL)]
        while not stop.is_set():
            try:
                store.add(jobs)
            except StoreUnavailable:
                stop.wait(0.02)
            else:
                acknowledged.update(job.id for job in jobs)
                break


def drain(store: Store, stop: threading.Event, ended: dict[JobId, int], now_us: int) -> None:
    """End jobs, each together with a row of a stream, until asked to stop."""
    for number in count(1):
        if stop.is_set():
            break
        lease = Lease(now_us + number, LEASE_US, "worker", token_of(number))
        try:
            jobs = store.claim([Want(lane_of(), 50)], limit=50, lease=lease).jobs
            numbers = [int.from_bytes(job.id) for job in jobs]
            groups = [
                Group(verdicts=[Drop(job)], rows=[row_of(number)])
                for job, number in zip(jobs, numbers, strict=True)
            ]
            held = store.together(groups)
        except Unknown:
            continue  # these jobs are due again, or ended
        except StoreUnavailable:
            stop.wait(0.02)
            continue
        for job, is_held in zip(jobs, held, strict=True):
            ended[job.id] = ended.get(job.id, 0) + is_held


def kill(server: Server) -> None:
    """Kill the server, and start it again."""
    server.kill()
    server.start()


def kill_clients(server: Server) -> None:
    """Close the connections, some of them while they wait for an answer."""
    for _ in range(50):
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.005)


def delete_functions(server: Server) -> None:
    """Delete the functions of all programs, again and again."""
    for _ in range(50):
        server.ask("FUNCTION", "FLUSH")
        time.sleep(0.005)


def become_replica(server: Server) -> None:
    """Make the server a replica that never reaches its primary, then a primary again."""
    server.ask("REPLICAOF", HOST, "1")
    time.sleep(0.2)
    server.ask("REPLICAOF", "NO", "ONE")


def fill_memory(server: Server) -> None:
    """Let the server refuse what needs memory."""
    server.ask("CONFIG", "SET", "maxmemory", "1")
    time.sleep(0.2)
    server.ask("CONFIG", "SET", "maxmemory", "0")


def stall(server: Server) -> None:
    """Let the server stand still."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STALL_S)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.redis
@pytest.mark.long
@pytest.mark.parametrize(
    "disturb", [kill, kill_clients, delete_functions, become_replica, fill_memory, stall]
)
def test_nothing_acknowledged_is_lost_and_nothing_ends_twice(
    start_server: StartServer, disturb: Callable[[Server], None]
) -> None:
    server = start_server("always")
    stop, acknowledged = threading.Event(), set[JobId]()
    ended: dict[JobId, int] = {}
    with closing(open_store(server.url)) as store:
        threads = [
            threading.Thread(target=insert, args=(store, stop, acknowledged)),
            threading.Thread(target=drain, args=(store, stop, ended, NOW_US)),
        ]
        for thread in threads:
            thread.start()
        for _ in range(1 if disturb is stall else TIMES):
            known = len(ended)
            while len(ended) < known + 500:  # both go on
                stop.wait(0.01)
            disturb(server)
        known = len(ended)
        while len(ended) < known + 500:
            stop.wait(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert max(ended.values()) == 1
        left = {job_id for job_id in acknowledged if store.find([job_id])[0] is not None}
        rows, after = set[JobId](), None
        while page := store.tail("log", 0, after=after, limit=1000).rows:
            rows.update(id_of(int.from_bytes(row.id)) for row in page)
            after = (page[-1].at_us, page[-1].id)
        assert {job_id for job_id, times in ended.items() if times} <= rows
        assert acknowledged <= rows | left, "an acknowledged job is lost"
        assert not rows & left, "a job has ended, and is there"
