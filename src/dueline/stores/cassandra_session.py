"""One connection to a Cassandra cluster.

Statements go in as text and values, rows come out as tuples, and the driver's errors stop here.
No write is ever repeated by the driver (rule U1).
"""

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, ResultSet, Session
from cassandra.query import BatchStatement

from dueline.errors import DuelineError, StoreUnavailable, Unknown
from dueline.stores.cassandra_binding import batch_of
from dueline.stores.cassandra_connection import connect, translated
from dueline.stores.cassandra_place import CONSISTENCIES, Place

DEFINE_TIMEOUT_S: Final = 60.0
"""A change of the schema takes longer than a request: every node makes its files."""

IN_FLIGHT_MAX: Final = 32
"""Requests of one call that are under way at once; the next waits for the oldest."""

KEYSPACE: Final = "{keyspace}"
"""Stands for the keyspace's name in statements: servers warn of names without it."""

APPLIED: Final = "[applied]"
"""The first column of what a conditional write is answered."""

Call = tuple[str, Sequence[object]]
"""A statement and its values."""

Rows = list[tuple[Any, ...]]

Outcome = TypeVar("Outcome")


class Answer(NamedTuple):
    """What became of a conditional batch.

    rows: when it was refused, the present values of the key and condition columns of each row
    that exists.
    """

    is_applied: bool
    rows: Sequence[Mapping[str, Any]]


class _Prepared(NamedTuple):
    """A statement as the driver knows it, and the columns that its answers had at first."""

    statement: Any
    columns: Sequence[str]


class _Asked(NamedTuple):
    """What is sent. columns: of a read, what it is to be answered with."""

    statement: Any
    columns: Sequence[str] | None = None


class CassandraSession:
    """Statements on one keyspace; connects at the first of them. Threads may share it."""

    def __init__(self, place: Place) -> None:
        """Take where the keyspace is; connects to nothing yet."""
        self.place = place
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._process = 0
        self._prepared: dict[str, _Prepared] = {}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._cluster is not None and self._process == os.getpid():
                self._cluster.shutdown()
            self._cluster = self._session = None
            self._prepared = {}

    # Reads, at the place's consistency

    def read(self, text: str, values: Sequence[object] = ()) -> Rows:
        """Read rows."""
        return self.read_many([(text, values)])[0]

    def read_many(self, calls: Sequence[Call]) -> list[Rows]:
        """Read with several statements at once; the first that fails is raised."""
        return [_or_raise(rows) for rows in self.try_read_many(calls)]

    def try_read_many(self, calls: Sequence[Call]) -> list[Rows | DuelineError]:
        """Read with several statements at once; tell of each how it failed."""
        outcomes = self._gather((self._asked(*call) for call in calls), is_write=False)
        return [
            outcome if isinstance(outcome, DuelineError) else outcome[1] for outcome in outcomes
        ]

    def read_serial(self, text: str, values: Sequence[object]) -> Rows:
        """Read what is decided, ending conditional writes that are half done."""
        asked = self._asked(text, values)
        asked.statement.consistency_level = ConsistencyLevel.name_to_value[
            CONSISTENCIES[self.place.consistency]
        ]
        _, rows = _or_raise(self._gather([asked], is_write=False)[0])
        return rows

    def read_back(self, lost: Unknown, text: str, values: Sequence[object]) -> Rows:
        """Read what came of a write; if nobody says, its answer stays lost (rule U2)."""
        try:
            return self.read_serial(text, values)
        except StoreUnavailable as silence:
            raise lost from silence

    # Writes

    def write_many(self, batches: Sequence[Sequence[Call]]) -> list[DuelineError | None]:
        """Write batches at once, each of one partition and whole; tell of each how it failed."""
        outcomes = self._gather_batches(batches)
        return [outcome if isinstance(outcome, DuelineError) else None for outcome in outcomes]

    def write(self, batches: Sequence[Sequence[Call]]) -> None:
        """Write batches; the first that failed is raised."""
        for error in self.write_many(batches):
            if error is not None:
                raise error

    def decide_many(self, batches: Sequence[Sequence[Call]]) -> list[Answer | DuelineError]:
        """Write conditional batches at once, each of one partition, whole or not at all."""
        outcomes = self._gather_batches(batches)
        return [
            outcome if isinstance(outcome, DuelineError) else self._to_answer(*outcome)
            for outcome in outcomes
        ]

    def decide(self, batch: Sequence[Call]) -> Answer:
        """Write one conditional batch."""
        return _or_raise(self.decide_many([batch])[0])

    # The cluster

    def define(self, statements: Iterable[str]) -> None:
        """Change the schema, statement by statement; each waits until all nodes agree."""
        session = self._connected()
        for statement in statements:
            try:
                result = session.execute(statement, timeout=DEFINE_TIMEOUT_S)
            except Exception as error:
                raise translated(error, self.place, is_write=True) from error
            if not _is_agreed(result):
                raise Unknown(
                    f"The nodes of {self.place} do not agree on their schema.",
                    hint="See that all of them are up, and do it again.",
                )
        with self._lock:
            self._prepared = {}

    def ask(self, text: str) -> Rows:
        """Read from the node's own tables, which needs no keyspace."""
        session = self._connected()
        try:
            return list(session.execute(text))
        except Exception as error:
            raise translated(error, self.place, is_write=False) from error

    def ask_each(self, text: str) -> Mapping[str, Rows | None]:
        """Read from the own tables of every node that is near; None where one is silent."""
        session = self._connected()
        assert self._cluster is not None
        near = [
            host
            for host in self._cluster.metadata.all_hosts()
            if self.place.dc in ("", host.datacenter)
        ]
        found: dict[str, Rows | None] = {}
        for host, future in [(host, session.execute_async(text, host=host)) for host in near]:
            try:
                found[host.address] = list(future.result())
            except Exception:  # noqa: BLE001
                found[host.address] = None
        return found

    def centres(self) -> Mapping[str, int]:
        """Count the nodes of each data centre."""
        self._connected()
        assert self._cluster is not None
        found: dict[str, int] = {}
        for host in self._cluster.metadata.all_hosts():
            found[host.datacenter] = found.get(host.datacenter, 0) + 1
        return found

    # Statements and answers

    def _asked(self, text: str, values: Sequence[object]) -> _Asked:
        """Bind a read."""
        prepared, columns = self._prepare(text)
        return _Asked(prepared.bind(values), columns)

    def _batch(self, calls: Sequence[Call]) -> BatchStatement:
        return batch_of(calls, lambda text: self._prepare(text).statement)

    def _gather_batches(
        self, batches: Sequence[Sequence[Call]]
    ) -> list[tuple[Sequence[str], Rows] | DuelineError]:
        # All before the first is sent: what fails here has written nothing.
        for text in {text for batch in batches for text, _ in batch}:
            self._prepare(text)
        asked = (_Asked(self._batch(batch)) for batch in batches)
        return self._gather(asked, is_write=True)

    def _prepare(self, text: str) -> _Prepared:
        prepared = self._prepared.get(text)
        if prepared is None:
            session = self._connected()
            try:
                statement = session.prepare(text.replace(KEYSPACE, self.place.keyspace))
            except Exception as error:
                raise translated(error, self.place, is_write=False) from error
            columns = tuple(name for _, _, name, _ in statement.result_metadata or ())
            prepared = self._prepared[text] = _Prepared(statement, columns)
        return prepared

    def _gather(
        self, asked: Iterable[_Asked], *, is_write: bool
    ) -> list[tuple[Sequence[str], Rows] | DuelineError]:
        """Send statements, at most IN_FLIGHT_MAX under way; answers in their order."""
        session = self._connected()
        under_way: deque[tuple[_Asked, Any]] = deque()
        outcomes: list[tuple[Sequence[str], Rows] | DuelineError] = []

        def send(one: _Asked) -> Any:  # noqa: ANN401  (the driver's future, or why there is none)
            try:
                return session.execute_async(one.statement)
            except Exception as error:  # noqa: BLE001
                return translated(error, self.place, is_write=is_write)

        def take() -> None:
            one, future = under_way.popleft()
            if isinstance(future, DuelineError):
                outcomes.append(future)
                return
            try:
                result = future.result()
                names, rows = tuple(result.column_names or ()), list(result)
            except Exception as error:  # noqa: BLE001
                outcomes.append(translated(error, self.place, is_write=is_write))
            else:
                outcomes.append(self._mixed_up(one.columns, names) or (names, rows))

        for one in asked:
            if len(under_way) >= IN_FLIGHT_MAX:
                take()
            under_way.append((one, send(one)))
        while under_way:
            take()
        return outcomes

    def _mixed_up(self, columns: Sequence[str] | None, names: Sequence[str]) -> DuelineError | None:
        """See that an answer has the columns that were asked for.

        Once in some million reads, while a node was killed and paused all the time, the driver
        gave rows with other columns (November 2026): they must not be taken for what was asked.
        """
        if columns is None or names == columns:
            return None
        return StoreUnavailable(
            f"{self.place} answered with the columns {', '.join(names) or 'of nothing'}, and not "
            f"with {', '.join(columns)}.",
            hint="Another try may do. If it comes again, report it.",
        )

    def _to_answer(self, names: Sequence[str], rows: Rows) -> Answer | DuelineError:
        """Read what a conditional batch was answered."""
        if names[:1] != (APPLIED,):
            return Unknown(
                f"{self.place} did not say whether a write happened, but answered with the "
                f"columns {', '.join(names) or 'of nothing'}."
            )
        has_rows = len(names) > 1  # not where no row exists, or none is told since all held
        present = [dict(zip(names, row, strict=True)) for row in rows] if has_rows else []
        return Answer(rows[0][0], present)

    # The connection

    def _connected(self) -> Session:
        """Give the session; a process that was forked makes its own."""
        if self._session is None or self._process != os.getpid():
            with self._lock:
                if self._session is None or self._process != os.getpid():
                    self._connect()
        return self._session

    def _connect(self) -> None:
        cluster, session = connect(self.place)
        self._prepared = {}
        self._cluster, self._session, self._process = cluster, session, os.getpid()


def _is_agreed(result: ResultSet) -> bool:
    return bool(result.response_future.is_schema_agreed)


def _or_raise(outcome: Outcome | DuelineError) -> Outcome:
    if isinstance(outcome, DuelineError):
        raise outcome
    return outcome
