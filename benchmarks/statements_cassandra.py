"""Statements that a worker sends to Cassandra for each job of a drain."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from cassandra.query import BatchStatement

from benchmarks import against_cassandra, ours
from dueline import Dueline
from dueline.api.task import Task
from dueline.stores.cassandra.session import CassandraSession
from dueline.stores.cassandra.store import CassandraStore

KINDS: Final = ("conditional", "plain", "read")


def measure(host: str, *, jobs: int) -> Mapping[str, float]:
    """Drain jobs with default settings, and count the statements of each kind."""
    sent: Counter[str] = Counter()
    with against_cassandra.opened(host) as (url, _):
        app, task = _app(url)
        ours.enqueue(task, jobs, ours.TEXT)
        assert isinstance(app.store, CassandraStore)
        session = app.store._session  # noqa: SLF001  (what is sent is seen there alone)

        def note(future: Any) -> None:  # noqa: ANN401  (the driver's)
            sent[_kind_of(future.query, session)] += 1

        session._connected().add_request_init_listener(note)  # noqa: SLF001
        ours.drain(app, ours.QUEUE)
        assert ours.is_empty(app, ours.QUEUE)
        app.close()
    each = {f"{kind}_statements": sent[kind] / jobs for kind in KINDS}
    return {**each, "statements": sum(sent.values()) / jobs}


def _app(url: str) -> tuple[Dueline, Task[[str], None]]:
    app = Dueline(url)

    @app.task(name="bench.noop", queue=ours.QUEUE)
    def noop(text: str) -> None:
        del text

    app.queues  # noqa: B018  (makes the queue)
    return app, noop


def _kind_of(statement: Any, session: CassandraSession) -> str:  # noqa: ANN401  (the driver's)
    """Return whether a statement is a conditional write, a plain write or a read."""
    prepared = getattr(statement, "prepared_statement", None)
    text = prepared.query_string if prepared else str(statement)
    if isinstance(statement, BatchStatement):  # which has ids of statements, all of one kind
        first = statement._statements_and_parameters[0][1]  # noqa: SLF001
        texts = {one.statement.query_id: text for text, one in session._prepared.items()}  # noqa: SLF001
        text = texts[first]
    if text.startswith("SELECT"):
        return "read"
    return "conditional" if " IF " in text else "plain"
