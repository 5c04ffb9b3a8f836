"""One connection to a Cassandra cluster.

The only module that knows the driver: statements go in as text and values, rows come out as
tuples, and the driver's errors stop here. No write is ever repeated by the driver.
"""

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, Final, NamedTuple, TypeVar

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    ReadFailure,
    Unauthorized,
    Unavailable,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import ConnectionException
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage
from cassandra.query import BatchStatement, BatchType, tuple_factory

from dueline.errors import (
    ConfigError,
    DuelineError,
    SchemaMismatch,
    StoreUnavailable,
    Unknown,
)
from dueline.stores.cassandra_place import CONSISTENCIES, Place

VERSION_MIN: Final = (4, 1)
"""The first release with Paxos v2."""

PROTOCOL: Final = 5
"""Every server since 4.0 speaks it."""

REQUEST_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
IN_FLIGHT_MAX: Final = 32
"""Requests of one call that are under way at once; the next waits for the oldest."""

PAGE_ROWS: Final = 1000
MIGRATE: Final = "Run `dueline migrate` with this address once."

KEYSPACE: Final = "{keyspace}"
"""Stands for the keyspace's name in statements: servers warn of names without it."""

Call = tuple[str, Sequence[object]]
"""A statement and its values."""

Rows = list[tuple[Any, ...]]

Outcome = TypeVar("Outcome")

_FAILURES = (DriverException, ErrorMessage, NoHostAvailable, ConnectionException, OSError)


class Answer(NamedTuple):
    """What became of a conditional batch.

    rows: when it was refused, the present values of the key and condition columns of each row
    that exists.
    """

    is_applied: bool
    rows: Sequence[Mapping[str, Any]]


class TooManyTombstones(StoreUnavailable):
    """A read would have crossed more deleted rows than the server lets one read cross."""


class CassandraSession:
    """Statements on one keyspace; connects at the first of them. Threads may share it."""

    def __init__(self, place: Place) -> None:
        """Take where the keyspace is; connects to nothing yet."""
        self.place = place
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._process = 0
        self._prepared: dict[str, Any] = {}

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
        outcomes = self._gather((self._bound(*call) for call in calls), is_write=False)
        return [
            outcome if isinstance(outcome, DuelineError) else outcome[1] for outcome in outcomes
        ]

    def read_serial(self, text: str, values: Sequence[object]) -> Rows:
        """Read what is decided, ending conditional writes that are half done."""
        bound = self._bound(text, values)
        bound.consistency_level = ConsistencyLevel.name_to_value[
            CONSISTENCIES[self.place.consistency]
        ]
        _, rows = _or_raise(self._gather([bound], is_write=False)[0])
        return rows

    # Writes

    def write_many(self, batches: Sequence[Sequence[Call]]) -> list[DuelineError | None]:
        """Write batches at once, each of one partition and whole; tell of each how it failed."""
        outcomes = self._gather(map(self._batch, batches), is_write=True)
        return [outcome if isinstance(outcome, DuelineError) else None for outcome in outcomes]

    def write(self, batches: Sequence[Sequence[Call]]) -> None:
        """Write batches; the first that failed is raised."""
        for error in self.write_many(batches):
            if error is not None:
                raise error

    def decide_many(self, batches: Sequence[Sequence[Call]]) -> list[Answer | DuelineError]:
        """Write conditional batches at once, each of one partition, whole or not at all."""
        outcomes = self._gather(map(self._batch, batches), is_write=True)
        return [
            outcome if isinstance(outcome, DuelineError) else _to_answer(*outcome)
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
                session.execute(statement)
            except _FAILURES as error:
                raise self._translated(error, is_write=True) from error
        with self._lock:
            self._prepared = {}

    def ask(self, text: str) -> Rows:
        """Read from the node's own tables, which needs no keyspace."""
        try:
            return list(self._connected().execute(text))
        except _FAILURES as error:
            raise self._translated(error, is_write=False) from error

    def centres(self) -> Mapping[str, int]:
        """Count the nodes of each data centre."""
        self._connected()
        assert self._cluster is not None
        found: dict[str, int] = {}
        for host in self._cluster.metadata.all_hosts():
            found[host.datacenter] = found.get(host.datacenter, 0) + 1
        return found

    # Statements and answers

    def _bound(self, text: str, values: Sequence[object]) -> Any:  # noqa: ANN401  (the driver's)
        return self._prepare(text).bind(values)

    def _batch(self, calls: Sequence[Call]) -> BatchStatement:
        batch = BatchStatement(BatchType.UNLOGGED)
        for text, values in calls:
            batch.add(self._prepare(text), values)
        return batch

    def _prepare(self, text: str) -> Any:  # noqa: ANN401  (the driver's)
        prepared = self._prepared.get(text)
        if prepared is None:
            session = self._connected()
            try:
                prepared = session.prepare(text.replace(KEYSPACE, self.place.keyspace))
            except _FAILURES as error:
                raise self._translated(error, is_write=False) from error
            self._prepared[text] = prepared
        return prepared

    def _gather(
        self, statements: Iterable[Any], *, is_write: bool
    ) -> list[tuple[Sequence[str], Rows] | DuelineError]:
        """Send statements, at most IN_FLIGHT_MAX under way; answers in their order."""
        session = self._connected()
        under_way: deque[Any] = deque()
        outcomes: list[tuple[Sequence[str], Rows] | DuelineError] = []

        def take() -> None:
            try:
                result = under_way.popleft().result()
                outcomes.append((result.column_names or (), list(result)))
            except _FAILURES as error:
                outcomes.append(self._translated(error, is_write=is_write))

        for statement in statements:
            if len(under_way) >= IN_FLIGHT_MAX:
                take()
            under_way.append(session.execute_async(statement))
        while under_way:
            take()
        return outcomes

    # The connection

    def _connected(self) -> Session:
        """Give the session; a process that was forked makes its own."""
        if self._session is None or self._process != os.getpid():
            with self._lock:
                if self._session is None or self._process != os.getpid():
                    self._connect()
        return self._session

    def _connect(self) -> None:
        place = self.place
        cluster = Cluster(
            list(place.hosts),
            port=place.port,
            protocol_version=PROTOCOL,
            ssl_context=place.tls,
            auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
            connect_timeout=CONNECT_TIMEOUT_S,
            # Nagle's wait costs a batch of 50 or more 40 ms (measured, November 2026).
            sockopts=[(IPPROTO_TCP, TCP_NODELAY, 1)],
            execution_profiles={EXEC_PROFILE_DEFAULT: _profile(place)},
        )
        try:
            session = cluster.connect()
            session.default_fetch_size = PAGE_ROWS
            self._check(cluster, session)
        except _FAILURES as error:
            cluster.shutdown()
            raise self._translated(error, is_write=False) from error
        except DuelineError:
            cluster.shutdown()
            raise
        self._prepared = {}
        self._cluster, self._session, self._process = cluster, session, os.getpid()

    def _check(self, cluster: Cluster, session: Session) -> None:
        """Refuse a server that is too old, and a choice among data centres that is not made."""
        version = next(iter(session.execute("SELECT release_version FROM system.local")))[0]
        if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < VERSION_MIN:
            raise ConfigError(
                f"{self.place} is Cassandra {version}, which has no Paxos v2.",
                hint="Use Cassandra 4.1 or later.",
            )
        centres = {host.datacenter for host in cluster.metadata.all_hosts()}
        if self.place.dc and self.place.dc not in centres:
            raise ConfigError(
                f"{self.place} has no data centre {self.place.dc!r}.",
                hint=f"Write dc= with one of {', '.join(sorted(centres))}.",
            )
        if not self.place.dc and len(centres) > 1:
            raise ConfigError(
                f"{self.place} has the data centres {', '.join(sorted(centres))}.",
                hint="Say which one is near: ?dc=NAME.",
            )

    def _translated(self, error: Exception, *, is_write: bool) -> DuelineError:
        """Say what a driver's error means for the call."""
        reasons = list(_reasons(error))
        if any(isinstance(reason, AuthenticationFailed | Unauthorized) for reason in reasons):
            return ConfigError(
                f"{self.place} does not let {self.place.user or 'nobody'} in.",
                hint="Check the user and password in the address, and what the user may do.",
            )
        if isinstance(error, InvalidRequest):
            if any(sign in str(error) for sign in _NOT_SET_UP):
                return ConfigError(f"{self.place} has not been set up.", hint=MIGRATE)
            return SchemaMismatch(f"{self.place} refuses a statement: {error}.", hint=MIGRATE)
        if isinstance(error, ReadFailure) and _TOMBSTONES in (error.error_code_map or {}).values():
            return TooManyTombstones(f"{self.place} found too many deleted rows in one read.")
        told = "; ".join(sorted({str(reason) for reason in reasons})) or type(error).__name__
        if is_write and not all(isinstance(reason, _NOT_SENT) for reason in reasons):
            return Unknown(f"{self.place} did not say whether a write happened: {told}.")
        return StoreUnavailable(
            f"{self.place} does not answer: {told}.", hint="Is it running, and reachable?"
        )


_NOT_SET_UP = ("does not exist", "unconfigured table", "No keyspace")
_TOMBSTONES = 1
"""Why a replica fails a read that crosses too many deleted rows, as the protocol numbers it."""

_NOT_SENT = (Unavailable, ConnectionRefusedError)
"""What is told before anything was written."""


def _profile(place: Place) -> ExecutionProfile:
    near = DCAwareRoundRobinPolicy(place.dc) if place.dc else RoundRobinPolicy()
    level = ConsistencyLevel.name_to_value
    return ExecutionProfile(
        # The replicas in one order, so that Paxos has one coordinator a partition if it can.
        load_balancing_policy=TokenAwarePolicy(near, shuffle_replicas=False),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=level[place.consistency],
        serial_consistency_level=level[CONSISTENCIES[place.consistency]],
        request_timeout=REQUEST_TIMEOUT_S,
        row_factory=tuple_factory,
    )


def _reasons(error: Exception) -> Iterator[BaseException]:
    """Look into an error that stands for several: one for each host that was tried."""
    inner = getattr(error, "errors", None)
    if isinstance(error, NoHostAvailable) and isinstance(inner, Mapping):
        for one in inner.values():
            yield from _reasons(one) if isinstance(one, Exception) else ()
    else:
        yield error


def _or_raise(outcome: Outcome | DuelineError) -> Outcome:
    if isinstance(outcome, DuelineError):
        raise outcome
    return outcome


def _to_answer(names: Sequence[str], rows: Rows) -> Answer:
    has_rows = len(names) > 1  # not where no row exists, or none is told since all held
    present = [dict(zip(names, row, strict=True)) for row in rows] if has_rows else []
    return Answer(rows[0][0], present)
