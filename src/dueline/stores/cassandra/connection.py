"""Connects to a Cassandra cluster, and translates the driver's errors."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, Final

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    ReadFailure,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
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
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage
from cassandra.query import tuple_factory

from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError, DuelineError, SchemaMismatch, StoreUnavailable, Unknown
from dueline.stores.cassandra.guard import PROTOCOL, GuardedConnection
from dueline.stores.cassandra.server_warnings import count_warnings
from dueline.stores.cassandra.url import CONSISTENCIES, Place

VERSION_MIN: Final = (4, 1)
"""The first release with Paxos v2."""

PARTITIONER: Final = "Murmur3Partitioner"
"""The default partitioner since 2012."""

CONNECT_TIMEOUT_S: Final = 5.0
"""Minimum time limit of a connection attempt, in seconds; half of a request's, if that is more."""

RECONNECT_S: Final = (0.5, 5.0)
"""Shortest and longest delay of a reconnection, in seconds; the driver's maximum is ten minutes."""

HEARTBEAT_EVERY: Final = 0.25
HEARTBEAT_WAITS: Final = 0.5
"""Shares of a request's time limit: an idle connection sends a heartbeat after the first, and is
closed without an answer after the second. With the driver's 30 s each, every third call on a ring
of three would wait a minute for a node that hangs."""

MIGRATE: Final = "Run `dueline migrate` with this URL once."

CERTIFICATE: Final = "Name its issuer (ca=FILE), and the name in it (name=NAME)."

FAILURES: Final = (DriverException, ErrorMessage, NoHostAvailable, ConnectionException, OSError)
"""Exceptions of the driver for failures of the cluster, not of the driver itself."""

_NOT_SENT: Final = (Unavailable, ConnectionRefusedError)
"""Errors of a request that was not sent or applied."""

_NOT_SET_UP: Final = ("does not exist", "unconfigured table", "No keyspace")
_NOT_TRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
_OTHER_PROTOCOL: Final = "ProtocolError returned from server"
_TOMBSTONES: Final = 1
"""Failure code of a replica for a read that crosses too many deleted rows."""


class TooManyTombstones(StoreUnavailable):
    """A read crossed more deleted rows than the server allows."""


class _UntilExit(Executor):
    """Runs what the driver's scheduler submits; nothing when the interpreter exits.

    The scheduler's thread outlives the executor then, and would print a traceback.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, *args: Any, **named: Any) -> "Future[Any]":  # noqa: ANN401  (the driver's)
        """Submit a call; return what has ended already if no call can be submitted."""
        try:
            return self._executor.submit(*args, **named)
        except RuntimeError:
            ended: Future[Any] = Future()
            ended.set_result(None)
            return ended


def connect(place: Place) -> tuple[Cluster, Session]:
    """Connect to a cluster.

    Raises:
      ConfigError: It is too old, rejects the user, needs another data centre in the URL, shows no
        trusted certificate, or is another server.
      StoreUnavailable: No node answers.
    """
    try:
        cluster = _cluster(place)
    except UnresolvableContactPoints as error:
        raise StoreUnavailable(
            f"No address is known for the hosts of {place}.", hint="Check the host names."
        ) from error
    cluster.scheduler._executor = _UntilExit(cluster.executor)  # noqa: SLF001
    try:
        session = cluster.connect()
        count_warnings(session)
        # The driver has no time limit for a second page. Each statement has a LIMIT or few rows.
        session.default_fetch_size = None
        _check(place, cluster, session)
    except FAILURES as error:
        cluster.shutdown()
        _refuse_centres(place, cluster)
        raise _mistake(place, error) or translated(error, place, is_write=False) from error
    except DuelineError:
        cluster.shutdown()
        raise
    return cluster, session


def _cluster(place: Place) -> Cluster:
    timeout_s = place.timeout_us / SECOND_US
    connect_s = max(CONNECT_TIMEOUT_S, timeout_s / 2)
    return Cluster(
        list(place.hosts),
        port=place.port,
        protocol_version=PROTOCOL,
        ssl_context=place.tls,
        ssl_options={"server_hostname": place.name} if place.name else None,
        auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
        connect_timeout=connect_s,
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_S, max_attempts=None),
        control_connection_timeout=connect_s,
        # A node that hangs keeps its connections open, and the driver keeps using them.
        idle_heartbeat_interval=timeout_s * HEARTBEAT_EVERY,
        idle_heartbeat_timeout=timeout_s * HEARTBEAT_WAITS,
        # Nagle's algorithm delays a batch of 50 or more by 40 ms.
        connection_class=GuardedConnection,
        sockopts=[(IPPROTO_TCP, TCP_NODELAY, 1)],
        execution_profiles={EXEC_PROFILE_DEFAULT: _profile(place)},
    )


def _profile(place: Place) -> ExecutionProfile:
    near = DCAwareRoundRobinPolicy(place.dc) if place.dc else RoundRobinPolicy()
    level = ConsistencyLevel.name_to_value
    return ExecutionProfile(
        # A fixed order of replicas, so that a partition usually has one Paxos coordinator.
        load_balancing_policy=TokenAwarePolicy(near, shuffle_replicas=False),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=level[place.consistency],
        serial_consistency_level=level[CONSISTENCIES[place.consistency]],
        request_timeout=place.timeout_us / SECOND_US,
        row_factory=tuple_factory,
    )


def _check(place: Place, cluster: Cluster, session: Session) -> None:
    """Refuse a server that is too old, or a URL that needs a data centre."""
    version = next(iter(session.execute("SELECT release_version FROM system.local")))[0]
    if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < VERSION_MIN:
        raise _too_old(place, f"Cassandra {version}, which has no Paxos v2")
    _refuse_partitioner(place, cluster.metadata.partitioner)
    _refuse_centres(place, cluster)


def _refuse_centres(place: Place, cluster: Cluster) -> None:
    """Refuse a URL that names no data centre of the cluster, as far as they are known."""
    centres = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
    if place.dc and centres and place.dc not in centres:
        raise ConfigError(
            f"{place} has no data centre {place.dc!r}.",
            hint=f"Write dc= with one of {', '.join(sorted(centres))}.",
        )
    if not place.dc and len(centres) > 1:
        raise ConfigError(
            f"{place} has the data centres {', '.join(sorted(centres))}.",
            hint="Name the local one: ?dc=NAME.",
        )


def _mistake(place: Place, error: Exception) -> ConfigError | None:
    """Return the error of a URL that this cluster never accepts; None for an outage.

    For a first connection alone: the driver reconnects by itself, and a certificate that expires
    while a worker runs may be renewed.
    """
    text = _text_of(error)
    if _NOT_TRUSTED in text:
        return ConfigError(
            f"{place} has a certificate that is not trusted: {text}.", hint=CERTIFICATE
        )
    reasons = list(_reasons(error))
    if any(isinstance(reason, ConnectionRefusedError | AuthenticationFailed) for reason in reasons):
        return None
    from dueline.stores import server_probe  # noqa: PLC0415  (needed after a failure only)

    answered = server_probe.servers_at(place.hosts[0], place.port)
    where = f"{place.hosts[0]}:{place.port}"
    if server_probe.CASSANDRA in answered:
        if place.tls is None or server_probe.TLS in answered:
            return None
        return ConfigError(
            f"{where} does not speak TLS.",
            hint="Use its port with TLS, or insecure=1 without ca, cert, key, name and tls.",
        )
    if server_probe.TLS in answered and place.tls is None:
        return ConfigError(
            f"{where} speaks TLS only.",
            hint="Use tls=1, or name the certificate's issuer: ca=FILE.",
        )
    if other := server_probe.misplaced(answered, server_probe.CASSANDRA):
        return ConfigError(
            f"{where} is {other}, not a Cassandra node.", hint="Check the host and the port."
        )
    return None


def _refuse_partitioner(place: Place, partitioner: str | None) -> None:
    """Refuse a cluster with other tokens than those that answers are compared by."""
    if partitioner is not None and not partitioner.endswith(PARTITIONER):
        raise ConfigError(
            f"{place} uses {partitioner.rpartition('.')[2]}.", hint=f"Use {PARTITIONER}."
        )


def _too_old(place: Place, what: str) -> ConfigError:
    least = ".".join(map(str, VERSION_MIN))
    return ConfigError(
        f"{place} is {what}.",
        hint=f"Use Apache Cassandra {least} or later; other servers were never run.",
    )


def translated(error: Exception, place: Place, *, is_write: bool) -> DuelineError:
    """Translate an error of the driver.

    Other errors than FAILURES come here too, such as of an answer that cannot be decoded or of a
    race in the driver: the request was sent.
    """
    reasons = list(_reasons(error))
    text = _text_of(error)
    if not isinstance(error, FAILURES):
        text = f"the driver failed with {type(error).__name__}: {error}"
    if any(isinstance(reason, AuthenticationFailed | Unauthorized) for reason in reasons):
        rejected = f"the user {place.user}" if place.user else "a client without a user"
        return ConfigError(
            f"{place} rejects {rejected}.",
            hint="Check the user and password in the URL, and the user's permissions.",
        )
    if isinstance(error, InvalidRequest):
        if any(sign in str(error) for sign in _NOT_SET_UP):
            return ConfigError(f"{place} has not been set up.", hint=MIGRATE)
        return SchemaMismatch(f"{place} refuses a statement: {error}.", hint=MIGRATE)
    if _OTHER_PROTOCOL in text:
        return _too_old(place, f"a server that does not speak version {PROTOCOL} of the protocol")
    if _NOT_TRUSTED in text:
        return StoreUnavailable(
            f"{place} has a certificate that is not trusted: {text}.", hint=CERTIFICATE
        )
    if isinstance(error, ReadFailure) and _TOMBSTONES in (error.error_code_map or {}).values():
        return TooManyTombstones(f"{place} found too many deleted rows in one read.")
    if is_write and not all(isinstance(reason, _NOT_SENT) for reason in reasons):
        return Unknown(f"{place} did not say whether a write happened: {text}.")
    return StoreUnavailable(
        f"{place} does not answer: {text}.", hint="Check that it is running and reachable."
    )


def _text_of(error: Exception) -> str:
    reasons = {str(reason) for reason in _reasons(error)}
    return "; ".join(sorted(reasons)) or type(error).__name__


def _reasons(error: Exception) -> Iterator[BaseException]:
    """Yield the errors of all hosts that were tried."""
    inner = getattr(error, "errors", None)
    if isinstance(error, NoHostAvailable) and isinstance(inner, Mapping):
        for reason in inner.values():
            yield from _reasons(reason) if isinstance(reason, Exception) else ()
    else:
        yield error
