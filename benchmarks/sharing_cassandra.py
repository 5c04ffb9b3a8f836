"""What workers cost a Cassandra node who share a queue of several shards (H10).

`python -m benchmarks.sharing_cassandra 127.0.0.1` runs four workers, each with connections of its
own, and prints as JSON what they send while they are idle, while a light load comes, and while
they drain a backlog. `--alone` has each look at all shards, as if there were no others.
"""

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final

from dueline import Dueline
from dueline.api.connect import open_store
from dueline.api.launch import make_worker
from dueline.api.worker_plan import plan_of
from dueline.jobs.history import attempts
from dueline.stores.cassandra.store import CassandraStore
from dueline.worker.shard_affinity import ShardAffinity

WORKERS: Final = 4
IDLE_S: Final = 12.0
SINGLES: Final = 80
SINGLES_GAP_S: Final = 0.15
BACKLOG: Final = 4_000
SETTLED_S: Final = 6.0
_QUEUE: Final = "default"


class Sent:
    """Counts what a client sends. conditional, refused: batches; of both, those in vain."""

    def __init__(self, store: CassandraStore) -> None:
        """Listen to its connections."""
        self.statements = self.conditional = self.refused = 0
        session: Any = store._session  # noqa: SLF001  (what is sent is seen there alone)
        session._connected().add_request_init_listener(self._note)  # noqa: SLF001
        self._decide: Callable[[Sequence[Any]], Sequence[Any]] = session.decide_many
        session.decide_many = self._decide_many

    def _note(self, _request: object) -> None:
        self.statements += 1

    def _decide_many(self, batches: Sequence[Any]) -> Sequence[Any]:
        answers = self._decide(batches)
        self.conditional += len(batches)
        self.refused += sum(getattr(one, "is_applied", True) is False for one in answers)
        return answers


@contextmanager
def working(url: str) -> Iterator[list[Sent]]:
    """Have workers at work, each as if it were a process of its own."""
    with ExitStack() as stack:
        sent = []
        for _ in range(WORKERS):
            app = Dueline(url)
            stack.callback(app.close)

            @app.task(name="work")
            def work(number: int) -> None:
                """Take no time."""

            assert isinstance(app.store, CassandraStore)
            sent.append(Sent(app.store))
            one = make_worker(app, plan_of([_QUEUE], 4, 25, 0))
            thread = threading.Thread(target=one.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(one.stop)
        time.sleep(SETTLED_S)
        yield sent


def counts(sent: Sequence[Sent]) -> list[int]:
    """Add up what all have sent."""
    names = ("statements", "conditional", "refused")
    return [sum(getattr(one, name) for one in sent) for name in names]


def passed(sent: Sequence[Sent], act: Callable[[], object]) -> tuple[float, list[int]]:
    """Do something; tell how long it took, and what was sent meanwhile."""
    before, began_s = counts(sent), time.perf_counter()
    act()
    took_s = time.perf_counter() - began_s
    return took_s, [now - then for now, then in zip(counts(sent), before, strict=True)]


def measure(url: str) -> Mapping[str, object]:
    """Measure the three."""
    app = Dueline(url)

    @app.task(name="work")
    def work(number: int) -> None: ...

    ended = threading.Event()

    def wait_for(count: int) -> None:
        shards = app.queues.engine.catalog.settings(_QUEUE).shards_read
        while sum(1 for _ in attempts(app.store, _QUEUE, shards)) < count:
            ended.wait(0.2)

    def trickle() -> None:
        for number in range(SINGLES):
            work.enqueue(number)
            time.sleep(SINGLES_GAP_S)
        wait_for(SINGLES)

    def drain() -> None:
        work.enqueue_many([(number,) for number in range(BACKLOG)])
        wait_for(SINGLES + BACKLOG)

    with working(url) as sent:
        idle_s, idle = passed(sent, lambda: time.sleep(IDLE_S))
        _, light = passed(sent, trickle)
        shards = app.queues.engine.catalog.settings(_QUEUE).shards_read
        late = [(one.started_us - one.due_us) / 1e3 for one in attempts(app.store, _QUEUE, shards)]
        drain_s, heavy = passed(sent, drain)
    app.close()
    return {
        "idle statements a second and worker": round(idle[0] / idle_s / WORKERS, 1),
        "light load: statements a job": round(light[0] / SINGLES, 1),
        "light load: refused, conditional": light[1:][::-1],
        "pickup p50 ms": round(median(late)),
        "pickup p99 ms": round(sorted(late)[int(len(late) * 0.99)]),
        "backlog: statements a job": round(heavy[0] / BACKLOG, 2),
        "backlog: refused, conditional": heavy[1:][::-1],
        "backlog: jobs a second": round(BACKLOG / drain_s),
    }


def main(host: str, *options: str) -> None:
    """Measure in a keyspace of its own."""
    if "--alone" in options:
        ShardAffinity.chosen = lambda _self, places: places  # type: ignore[assignment, method-assign]
    url = f"cassandra://{host}/sharing_{secrets.token_hex(4)}?timeout=60s"
    store = open_store(url)
    assert isinstance(store, CassandraStore)
    store.migrate()
    try:
        print(json.dumps(measure(url), indent=1))
    finally:
        store._session.define([f"DROP KEYSPACE {store._session.place.keyspace}"])  # noqa: SLF001
        store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
