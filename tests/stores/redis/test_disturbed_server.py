"""A server that is disturbed during inserts and a drain loses nothing that it acknowledged."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.harness.redis import StartServer
from tests.harness.redis_load import disturb_during_load
from tools.redis import Server
from tools.redis.server import HOST

TIMES = 5
STALL_S = 15.0
"""Longer than the time limit of a call, and than the outcome of a lost one is read."""


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
    times = 1 if disturb is stall else TIMES
    disturb_during_load(server.url, lambda: disturb(server), times=times)
