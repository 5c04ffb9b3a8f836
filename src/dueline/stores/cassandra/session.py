"""Sessions on a Cassandra cluster.

Statements are strings with values, rows are tuples, and the driver's errors are translated here.
The driver never retries a write (rule U1).
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, Session
from cassandra.pool import Host
from cassandra.query import BatchStatement, BatchType, BoundStatement

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.stores.cassandra.answers import (
    Answer,
    MixedUpError,
    Rows,
    answer_of,
    nothing_of,
    rows_of,
    token_of,
    with_token,
)
from dueline.stores.cassandra.connection import connect, translated
from dueline.stores.cassandra.url import CONSISTENCIES, Place

DEFINE_TIMEOUT_S: Final = 60.0
"""Time limit of a schema change, in seconds: longer than of a request."""

IN_FLIGHT_MAX: Final = 32
"""Maximum number of concurrent requests of one call."""

GRACE_US: Final = 5000
"""Extra time for the other nodes after the first answer, in addition to that answer's latency."""

KEYSPACE: Final = "{keyspace}"
"""Placeholder of the keyspace's name in statements: servers warn of unqualified names."""

Call = tuple[str, Sequence[object]]
"""A statement and its values."""

Outcome = TypeVar("Outcome")


class _Prepared(NamedTuple):
    """A prepared statement.

    columns: Columns of a read's answers. bears_token: Whether the first one is the partition's
    token. partition: Indexes of the partition key's values, by column.
    """

    statement: Any
    columns: Sequence[str]
    bears_token: bool
    partition: Mapping[str, int]


class _Asked(NamedTuple, Generic[Outcome]):
    """A statement to send, and the function that reads the columns and rows of its answer."""

    statement: Any
    take: Callable[[Sequence[str], Rows], Outcome]


class CassandraSession:
    """Runs statements on one keyspace; connects at the first one. Thread-safe."""

    def __init__(self, place: Place) -> None:
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
        """Run several reads at once; raise the first error."""
        return [_or_raise(rows) for rows in self.try_read_many(calls)]

    def try_read_many(self, calls: Sequence[Call]) -> list[Rows | DuelineError]:
        """Run several reads at once; return rows or an error for each."""
        return self._begin((self._asked(*call) for call in calls), is_write=False)()

    def read_serial(self, text: str, values: Sequence[object]) -> Rows:
        """Read at serial consistency, which completes conditional writes in progress."""
        asked = self._asked(text, values)
        asked.statement.consistency_level = ConsistencyLevel.name_to_value[
            CONSISTENCIES[self.place.consistency]
        ]
        return _or_raise(self._begin([asked], is_write=False)()[0])

    def read_back(self, lost: Unknown, text: str, values: Sequence[object]) -> Rows:
        """Read the rows of a write whose answer was lost; raise that error again (rule U2)."""
        try:
            return self.read_serial(text, values)
        except StoreUnavailable as silence:
            raise lost from silence

    # Writes

    def write_many(self, batches: Sequence[Sequence[Call]]) -> list[DuelineError | None]:
        """Write batches at once; return None or an error for each."""
        return self._begin_batches(batches, lambda _: nothing_of)()

    def begin_write(self, batches: Sequence[Sequence[Call]]) -> Callable[[], None]:
        """Send batches; return what waits, and raises the first error."""
        finish = self._begin_batches(batches, lambda _: nothing_of)

        def wait() -> None:
            for error in finish():
                if error is not None:
                    raise error

        return wait

    def write(self, batches: Sequence[Sequence[Call]]) -> None:
        """Write batches; raise the first error."""
        self.begin_write(batches)()

    def decide_many(self, batches: Sequence[Sequence[Call]]) -> list[Answer | DuelineError]:
        """Apply conditional batches of one partition each at once, each all or nothing."""
        return self._begin_batches(
            batches, lambda batch: partial(answer_of, partition=self._partition(*batch[0]))
        )()

    def decide(self, batch: Sequence[Call]) -> Answer:
        """Apply one conditional batch."""
        return _or_raise(self.decide_many([batch])[0])

    # The cluster

    def define(self, statements: Iterable[str]) -> None:
        """Change the schema, statement by statement, waiting for schema agreement."""
        session = self._connected()
        for statement in statements:
            try:
                result = session.execute(statement, timeout=DEFINE_TIMEOUT_S)
            except Exception as error:
                raise translated(error, self.place, is_write=True) from error
            if not result.response_future.is_schema_agreed:
                raise Unknown(
                    f"The nodes of {self.place} do not agree on their schema.",
                    hint="Check that all of them are up, and try again.",
                )
        with self._lock:
            self._prepared = {}

    def ask(self, text: str, *, columns: Sequence[str] | None = None) -> Rows:
        """Read from a node's system tables.

        Args:
          text: The statement.
          columns: Columns that the answer must have; None for any.
        """
        session = self._connected()
        try:
            result = session.execute(text)
            names, rows = tuple(result.column_names or ()), list(result)
            return rows_of(names, rows, columns=names if columns is None else columns, token=None)
        except MixedUpError as error:
            raise self._mixed_up(error, is_write=False) from error
        except Exception as error:
            raise translated(error, self.place, is_write=False) from error

    def ask_near(
        self, text: str, clock: Clock, *, columns: tuple[str, ...]
    ) -> list[tuple[Rows, int]]:
        """Read from the system tables of all local nodes that are up, at once.

        Waits for the first answer, then for others for the same time and GRACE_US.

        Args:
          text: The statement.
          clock: The machine's clock.
          columns: Columns that each answer must have.

        Returns:
          The answers, each with the monotonic time of its arrival, in microseconds.

        Raises:
          StoreUnavailable: No node answered.
        """
        session = self._connected()
        sent_us = clock.monotonic_us()
        came: SimpleQueue[tuple[Any, int]] = SimpleQueue()
        asked = 0
        last: Exception | None = None
        for host in self._near():
            if host.is_up is False:
                continue
            try:
                future = session.execute_async(text, host=host)
            except Exception as error:  # noqa: BLE001  (of the driver, whatever it is)
                last = error
                continue
            asked += 1

            def note(_: object, future: Any = future) -> None:  # noqa: ANN401  (the driver's)
                came.put((future, clock.monotonic_us()))

            future.add_callbacks(note, note)
        answers: list[tuple[Rows, int]] = []
        while asked:
            # The driver itself times a request out.
            until_us = sent_us + self.place.timeout_us + SECOND_US
            if answers:
                until_us = 2 * answers[0][1] - sent_us + GRACE_US
            try:
                patience_us = max(0, until_us - clock.monotonic_us())
                future, at_us = came.get(timeout=patience_us / SECOND_US)
            except Empty:
                break
            asked -= 1
            try:
                result = future.result()
                names, rows = tuple(result.column_names or ()), list(result)
                answers.append((rows_of(names, rows, columns=columns, token=None), at_us))
            except Exception as error:  # noqa: BLE001
                last = error
        if answers:
            return answers
        if isinstance(last, MixedUpError):
            raise self._mixed_up(last, is_write=False) from last
        if last is not None:
            raise translated(last, self.place, is_write=False) from last
        # The driver marked every node as down: this raises its reason.
        return [(self.ask(text, columns=columns), clock.monotonic_us())]

    def _near(self) -> list[Host]:
        """Return the nodes of the local data centre."""
        assert self._cluster is not None
        return [
            host
            for host in self._cluster.metadata.all_hosts()
            if self.place.dc in ("", host.datacenter)
        ]

    def ask_each(self, text: str) -> Mapping[str, Rows | None]:
        """Read from the system tables of each local node; None for a node without an answer."""
        session = self._connected()
        near = self._near()
        answers: dict[str, Rows | None] = {}
        for host, future in [(host, session.execute_async(text, host=host)) for host in near]:
            try:
                answers[host.address] = list(future.result())
            except Exception:  # noqa: BLE001
                answers[host.address] = None
        return answers

    def centres(self) -> Mapping[str, int]:
        """Return the number of nodes of each data centre."""
        self._connected()
        assert self._cluster is not None
        nodes: dict[str, int] = {}
        for host in self._cluster.metadata.all_hosts():
            nodes[host.datacenter] = nodes.get(host.datacenter, 0) + 1
        return nodes

    # Statements and answers

    def _asked(self, text: str, values: Sequence[object]) -> _Asked[Rows]:
        """Bind a read."""
        prepared = self._prepare(text)
        bound = prepared.statement.bind(values)
        token = token_of(bound.routing_key) if prepared.bears_token else None
        return _Asked(bound, partial(rows_of, columns=prepared.columns, token=token))

    def _partition(self, text: str, values: Sequence[object]) -> Mapping[str, object]:
        """Return the partition key that a statement is bound to."""
        return {name: values[place] for name, place in self._prepare(text).partition.items()}

    def _batch(self, calls: Sequence[Call]) -> BatchStatement:
        return batch_of(calls, lambda text: self._prepare(text).statement)

    def _begin_batches(
        self,
        batches: Sequence[Sequence[Call]],
        take: Callable[[Sequence[Call]], Callable[[Sequence[str], Rows], Outcome]],
    ) -> Callable[[], list[Outcome | DuelineError]]:
        # Prepared before the first batch is sent: a failure here has written nothing.
        for text in {text for batch in batches for text, _ in batch}:
            self._prepare(text)
        asked = (_Asked(self._batch(batch), take(batch)) for batch in batches)
        return self._begin(asked, is_write=True)

    def _prepare(self, text: str) -> _Prepared:
        prepared = self._prepared.get(text)
        if prepared is None:
            session = self._connected()
            whole, bears_token = with_token(text)
            try:
                statement = session.prepare(whole.replace(KEYSPACE, self.place.keyspace))
            except Exception as error:
                raise translated(error, self.place, is_write=False) from error
            columns = tuple(name for _, _, name, _ in statement.result_metadata or ())
            marks = [column.name for column in statement.column_metadata]
            places = statement.routing_key_indexes or ()
            partition = {marks[place]: place for place in places}
            prepared = _Prepared(statement, columns, bears_token, partition)
            self._prepared[text] = prepared
        return prepared

    def _begin(
        self, asked: Iterable[_Asked[Outcome]], *, is_write: bool
    ) -> Callable[[], list[Outcome | DuelineError]]:
        """Send the first IN_FLIGHT_MAX statements; return what sends the rest and waits for all."""
        session = self._connected()
        rest = iter(asked)

        def send(call: _Asked[Outcome]) -> Any:  # noqa: ANN401  (a future or an error)
            try:
                return session.execute_async(call.statement)
            except Exception as error:  # noqa: BLE001
                return translated(error, self.place, is_write=is_write)

        def take(call: _Asked[Outcome], future: Any) -> Outcome | DuelineError:  # noqa: ANN401
            if isinstance(future, DuelineError):
                return future
            try:
                result = future.result()
                return call.take(tuple(result.column_names or ()), list(result))
            except MixedUpError as error:
                return self._mixed_up(error, is_write=is_write)
            except Exception as error:  # noqa: BLE001
                return translated(error, self.place, is_write=is_write)

        under_way = deque((call, send(call)) for call in islice(rest, IN_FLIGHT_MAX))

        def finish() -> list[Outcome | DuelineError]:
            outcomes: list[Outcome | DuelineError] = []
            while under_way:
                outcomes.append(take(*under_way.popleft()))
                under_way.extend((call, send(call)) for call in islice(rest, 1))
            return outcomes

        return finish

    def _mixed_up(self, error: MixedUpError, *, is_write: bool) -> DuelineError:
        """Return the error for a request that got the answer to another one."""
        if is_write:
            return Unknown(
                f"{self.place} did not say whether a write happened, but answered with {error}."
            )
        return StoreUnavailable(
            f"{self.place} answered a read with {error}.",
            hint="Try again. If it happens again, report it.",
        )

    # The connection

    def _connected(self) -> Session:
        """Return the session; a forked process makes its own."""
        if self._session is None or self._process != os.getpid():
            with self._lock:
                if self._session is None or self._process != os.getpid():
                    cluster, session = connect(self.place)
                    self._prepared = {}
                    self._cluster, self._session, self._process = cluster, session, os.getpid()
        return self._session


def _or_raise(outcome: Outcome | DuelineError) -> Outcome:
    if isinstance(outcome, DuelineError):
        raise outcome
    return outcome


Prepare = Callable[[str], Any]
"""Gives the driver's prepared statement for a text."""


def batch_of(calls: Sequence[tuple[str, Sequence[object]]], prepare: Prepare) -> BatchStatement:
    """Bind statements and their values into one unlogged batch.

    By the columns' own encoders: the driver's `bind` checks each value and takes three times as
    long for a claim of one row.
    """
    batch = BatchStatement(BatchType.UNLOGGED)
    shapes: dict[str, tuple[BoundStatement, list[Callable[[object, int], bytes]], int]] = {}
    for text, values in calls:
        if text not in shapes:
            prepared = prepare(text)
            encoders = [column.type.serialize for column in prepared.column_metadata]
            shapes[text] = BoundStatement(prepared), encoders, prepared.protocol_version
        bound, encoders, protocol = shapes[text]
        bound.values = [
            None if value is None else encode(value, protocol)
            for encode, value in zip(encoders, values, strict=True)
        ]
        batch.add(bound)  # which keeps the values, not the statement
    return batch
