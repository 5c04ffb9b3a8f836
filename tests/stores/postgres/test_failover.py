"""A failover to a synchronous replica, under a producer and a worker."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.errors import StoreUnavailable, Unknown
from tests.harness.postgres import port_of_own, server_url
from tests.harness.servers import migrate
from tools.postgres.cluster import HOST, Cluster

pytestmark = [pytest.mark.postgres, pytest.mark.long]

JOBS = 400
GIVE_UP_S = 60.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Start a primary and its replica."""
    server_url()  # skips where there is none
    primary = Cluster(tmp_path / "primary", port=port_of_own(1_000))
    made = [primary]
    try:
        primary.start()
        made.append(primary.copy(tmp_path / "replica", port_of_own(2_000)))
        yield primary, made[1]
    finally:
        for server in made:
            server.remove()


class Traffic:
    """Calls that enqueue jobs, and the jobs that ran."""

    def __init__(self, app: Dueline) -> None:
        """Register the task."""
        self.ran: list[int] = []
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self._note = app.task(name="note")(self.ran.append)

    def produce(self) -> None:
        """Enqueue jobs, one by one, until so many are acknowledged."""
        for number in itertools.count():
            try:
                self._note.enqueue(number)
                self.acknowledged.append(number)
            except (StoreUnavailable, Unknown):
                self.refused.append(number)
                time.sleep(0.05)
            if len(self.acknowledged) == JOBS:
                return


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def test_nothing_acknowledged_is_lost_when_the_replica_takes_over(
    servers: tuple[Cluster, Cluster],
) -> None:
    """The primary is killed, and both hosts are in the address."""
    primary, replica = servers
    hosts = f"{HOST}:{primary.port},{HOST}:{replica.port}"
    url = primary.url.replace(f"{HOST}:{primary.port}", hosts)
    url += "?target_session_attrs=read-write"
    migrate(url)
    with closing(Dueline(url)) as app:
        traffic = Traffic(app)
        with app.worker():
            producer = threading.Thread(target=traffic.produce, daemon=True)
            producer.start()
            wait_until(lambda: len(traffic.ran) > JOBS // 4)
            primary.kill()
            wait_until(lambda: bool(traffic.refused))
            replica.promote()
            wait_until(lambda: len(traffic.acknowledged) == JOBS)
            wait_until(lambda: set(traffic.acknowledged) <= set(traffic.ran))
