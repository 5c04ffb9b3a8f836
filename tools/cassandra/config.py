"""Configuration of one node.

Pure functions from `Settings` to text: the two files a node reads and the flags of its command
line. Nothing here touches the disk or starts anything.

Source: options of Cassandra 5.0.8 and 5.0.9 under Java 17, each started as written here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.cassandra.jars import CASSANDRA_VERSION

CommitLog = Literal["batch", "periodic"]

DATA_CENTRE = "datacenter1"  # what SimpleSnitch says of every node
CQL_PORT = 9042
STORAGE_PORT = 7000
JMX_PORT_BASE = 7100
NODES_ALLOWED = (1, 3)
KEYSTORE_PASSWORD = "dueline"  # noqa: S105  (of files for tests)
REQUEST_THREADS = 16
FIRST_MAX = 252  # the last address of three is then 127.0.0.254

_TOKEN_MIN = -(2**63)

_EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What one node is told.

    Args:
        folder: where the node keeps its files, absolute
        number: its place in the ring, from 1 to `nodes`
        nodes: size of the ring, 1 or 3
        first: last number of the first node's address 127.0.0.x, 1 to 252
        commitlog: `batch` loses no acknowledged write at a SIGKILL; `periodic` is faster
        fast_start: compile less: half the time to start, slower after
        lazy: do not flush the node's own tables with each TRUNCATE and change of a schema; for
            nodes that no test kills
        logins: who connects needs a name and a password; the first user is `cassandra`, with
            that password
        keystore: a PKCS 12 file, absolute, whose password is KEYSTORE_PASSWORD; with it the
            node also speaks TLS, on the same port. Empty for none.
        centres: each node stands in a data centre of its own, dc1 to dc3
        version: the release of the server
        threads: how many requests of clients are served at once; others wait in a queue
    """

    folder: Path
    number: int = 1
    nodes: int = 1
    first: int = 1
    commitlog: CommitLog = "batch"
    fast_start: bool = False
    lazy: bool = False
    logins: bool = False
    keystore: str = ""
    centres: bool = False
    version: str = CASSANDRA_VERSION
    threads: int = REQUEST_THREADS

    @property
    def centre(self) -> str:
        """The data centre of this node."""
        return centre_of(self.number) if self.centres else DATA_CENTRE

    @property
    def host(self) -> str:
        """The address of this node."""
        return self.hosts[self.number - 1]

    @property
    def hosts(self) -> Sequence[str]:
        """The addresses of all nodes of the ring, in order."""
        return [f"127.0.0.{self.first + place}" for place in range(self.nodes)]

    @property
    def jmx_port(self) -> int:
        """The port nodetool talks to; JMX listens on 127.0.0.1 only, so each node has its own."""
        return JMX_PORT_BASE + self.first + self.number - 1

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Every address and port this node listens on."""
        return [
            (self.host, CQL_PORT),
            (self.host, STORAGE_PORT),
            ("127.0.0.1", self.jmx_port),
        ]

    @property
    def config(self) -> Path:
        """The folder of the configuration files."""
        return self.folder / "config"


def centre_of(number: int) -> str:
    """The data centre of a node that has one of its own."""
    return f"dc{number}"


def cassandra_yaml(settings: Settings) -> str:
    """The node's cassandra.yaml.

    Returns one setting a line. Settings that are not named here keep the server's defaults.
    """
    # Equal slices of the token range: with the same tokens everywhere no node has to wait for
    # another one to choose, and nothing is streamed.
    token = _TOKEN_MIN + (2**64 // settings.nodes) * (settings.number - 1)
    seeds = ",".join(f"{host}:{STORAGE_PORT}" for host in settings.hosts)
    sync = {
        "batch": "commitlog_sync: batch",
        "periodic": "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms",
    }[settings.commitlog]
    return f"""\
cluster_name: dueline
num_tokens: 1
initial_token: {token}
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: {"GossipingPropertyFileSnitch" if settings.centres else "SimpleSnitch"}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{seeds}"
listen_address: {settings.host}
rpc_address: {settings.host}
storage_port: {STORAGE_PORT}
native_transport_port: {CQL_PORT}

# What dueline asks of a server.
{sync}
paxos_variant: v2
paxos_state_purging: gc_grace
cas_contention_timeout: 20000ms
storage_compatibility_mode: NONE

# A small node: a heap of 700 MiB, two cores.
commitlog_segment_size: 16MiB
commitlog_total_space: 128MiB
commitlog_disk_access_mode: legacy
disk_access_mode: standard
memtable:
  configurations:
    default:
      class_name: TrieMemtable
memtable_heap_space: 96MiB
memtable_offheap_space: 96MiB
memtable_flush_writers: 1
concurrent_reads: 8
concurrent_writes: 8
concurrent_compactors: 1
native_transport_max_threads: {settings.threads}
key_cache_size: 4MiB
file_cache_enabled: false
networking_cache_size: 16MiB

# A node on a busy machine: late is no failure.
read_request_timeout: 20000ms
range_request_timeout: 20000ms
write_request_timeout: 20000ms

# A node for tests: TRUNCATE and DROP are quick; without logins everybody may do all.
dynamic_snitch: false
auto_snapshot: false
authenticator: {"PasswordAuthenticator" if settings.logins else "AllowAllAuthenticator"}
authorizer: {"CassandraAuthorizer" if settings.logins else "AllowAllAuthorizer"}
permissions_validity: 0ms
materialized_views_enabled: false
user_defined_functions_enabled: false
{_encryption(settings)}"""


def _encryption(settings: Settings) -> str:
    if not settings.keystore:
        return ""
    return f"""\
client_encryption_options:
  enabled: true
  optional: true
  keystore: {settings.keystore}
  keystore_password: {KEYSTORE_PASSWORD}
  store_type: PKCS12
"""


def logback_xml() -> str:
    """The log goes to the process's own output, INFO and above."""
    return """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


def config_files(settings: Settings) -> Mapping[str, str]:
    """Name and text of every file in the node's configuration folder."""
    return {
        "cassandra.yaml": cassandra_yaml(settings),
        "cassandra-rackdc.properties": f"dc={settings.centre}\nrack=rack1\n",
        "logback.xml": logback_xml(),
    }


def daemon_command(settings: Settings, *, java: str, jars: Path) -> Sequence[str]:
    """The command line that runs the node in the foreground.

    Args:
        java: the Java 17 program
        jars: the folder that holds the server's jars
    """
    folder = settings.folder
    alone = settings.nodes == 1
    return [
        java,
        *_module_flags(),
        # Memory.
        "-Xms700m",
        "-Xmx700m",
        "-Xss256k",
        "-XX:MaxDirectMemorySize=192m",
        "-XX:+UseSerialGC",
        "-XX:ActiveProcessorCount=2",
        "-XX:+ExitOnOutOfMemoryError",
        *(["-XX:TieredStopAtLevel=1"] if settings.fast_start else []),
        *(["-Dcassandra.unsafesystem=true"] if settings.lazy else []),
        "-Dcassandra.available_processors=2",
        # Where things are.
        f"-Dcassandra.config={(settings.config / 'cassandra.yaml').as_uri()}",
        f"-Dcassandra.storagedir={folder}",
        f"-Dcassandra.logdir={folder}",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-XX:ErrorFile={folder / 'crash.log'}",
        "-Dlogback.configurationFile=logback.xml",
        "-Dcassandra-foreground=yes",
        f"-Dcassandra.jmx.local.port={settings.jmx_port}",
        "-Dcom.sun.management.jmxremote.authenticate=false",
        "-Dcassandra.libjemalloc=-",
        "-Djava.net.preferIPv4Stack=true",
        # Netty.
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.useCacheForAllThreads=true",
        "-Dio.netty.allocator.maxOrder=11",
        "-Dcassandra.disable_tcactive_openssl=true",
        # A fast start. A node alone has nobody to wait for.
        f"-Dcassandra.ring_delay_ms={100 if alone else 5000}",
        *(
            ["-Dcassandra.skip_wait_for_gossip_to_settle=0"]
            if alone
            else [
                "-Dcassandra.gossip_settle_min_wait_ms=500",
                "-Dcassandra.gossip_settle_interval_ms=250",
            ]
        ),
        "-Dcassandra.superuser_setup_delay_ms=0",
        "-Dcassandra.shutdown_announce_in_ms=0",
        f"-Dcassandra.system_distributed.default_rf={settings.nodes}",
        f"-Dcassandra.system_traces.default_rf={settings.nodes}",
        "-cp",
        _class_path(settings, jars),
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def nodetool_command(
    settings: Settings, arguments: Sequence[str], *, java: str, jars: Path
) -> Sequence[str]:
    """The command line that runs nodetool against the node."""
    return [
        java,
        *_module_flags(),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dcassandra.config={(settings.config / 'cassandra.yaml').as_uri()}",
        f"-Dcassandra.storagedir={settings.folder}",
        "-Dlogback.configurationFile=logback.xml",
        "-cp",
        _class_path(settings, jars),
        "org.apache.cassandra.tools.NodeTool",
        "-p",
        str(settings.jmx_port),
        *arguments,
    ]


def store_url(hosts: Sequence[str], keyspace: str = "dueline", centre: str = DATA_CENTRE) -> str:
    """What DUELINE_STORE is set to for these hosts."""
    return f"cassandra://{','.join(hosts)}/{keyspace}?dc={centre}"


def _class_path(settings: Settings, jars: Path) -> str:
    return f"{settings.config}:{jars}/*"


def _module_flags() -> Sequence[str]:
    """Java 17 keeps these packages to itself unless told otherwise."""
    return [
        "-Djdk.attach.allowAttachSelf=true",
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
    ]
