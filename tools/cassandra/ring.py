"""Rings of one or three nodes."""

import dataclasses
import fcntl
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tools.cassandra import cql
from tools.cassandra.config import (
    FIRST_MAX,
    NODES_ALLOWED,
    REQUEST_THREADS,
    CommitLog,
    Settings,
    store_url,
)
from tools.cassandra.jars import CACHE, CASSANDRA_VERSION, CassandraError
from tools.cassandra.node import READY_TIMEOUT_S, Node, poll


class Ring:
    """One or three nodes that form a cluster.

    As a context manager: start on entry, stop on exit.

    Args:
        folder: where the nodes keep their data; a ring's size and addresses are fixed in it
        nodes: 1 or 3
        commitlog: `batch` loses no acknowledged write at a SIGKILL; `periodic` is faster
        fast_start: start in half the time and run slower; for tests that measure nothing
        first: last number of the first node's address 127.0.0.x, 1 to 252; rings whose
            addresses differ run side by side
        lazy, logins, keystore, centres, version, threads: see `Settings`
        cache: the folder above the folders of the jars
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        commitlog: CommitLog = "batch",
        fast_start: bool = False,
        lazy: bool = False,
        first: int = 1,
        logins: bool = False,
        keystore: str = "",
        centres: bool = False,
        version: str = CASSANDRA_VERSION,
        threads: int = REQUEST_THREADS,
        cache: Path = CACHE,
    ) -> None:
        if nodes not in NODES_ALLOWED:
            raise CassandraError(f"A ring has 1 or 3 nodes, not {nodes}.")
        if not 1 <= first <= FIRST_MAX:
            raise CassandraError(f"The first address is 127.0.0.1 to .{FIRST_MAX}, not .{first}.")
        self.folder = folder.resolve()
        self.commitlog = commitlog
        self.fast_start = fast_start
        self.lazy = lazy
        self.centres = centres
        self.version = version
        self.nodes: Sequence[Node] = [
            Node(
                Settings(
                    folder=self.folder / f"node{number}",
                    number=number,
                    nodes=nodes,
                    first=first,
                    commitlog=commitlog,
                    fast_start=fast_start,
                    lazy=lazy,
                    logins=logins,
                    keystore=keystore,
                    centres=centres,
                    version=version,
                    threads=threads,
                ),
                cache=cache,
            )
            for number in range(1, nodes + 1)
        ]

    @classmethod
    def find(cls, folder: Path, *, cache: Path = CACHE) -> Self | None:
        """The ring that was last started in a folder, or None."""
        try:
            return cls(folder, cache=cache, **json.loads((folder / "ring.json").read_text()))
        except FileNotFoundError:
            return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def hosts(self) -> Sequence[str]:
        """The addresses of all nodes, in order."""
        return [node.host for node in self.nodes]

    def url(self, keyspace: str = "dueline", *, node: int = 1) -> str:
        """What DUELINE_STORE is set to for this ring, or in the data centre of one of its nodes."""
        return store_url(self.hosts, keyspace, self.nodes[node - 1].settings.centre)

    def saved(self) -> Mapping[str, object]:
        """What the ring was made with, as `find` reads it again."""
        settings = dataclasses.asdict(self.nodes[0].settings)
        del settings["folder"], settings["number"]
        return settings

    def write(self) -> None:
        """Write down what the ring was made with."""
        (self.folder / "ring.json").write_text(json.dumps(self.saved()) + "\n")

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the nodes that are not running and wait until the ring is whole.

        If it fails, the nodes it started are killed again.

        Raises CassandraError: see `Node`; or the folder holds another ring.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "ring.lock").open("w") as lock:
            # Whoever starts the same ring at the same time waits here, then finds it running.
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._require_same()
            dead = [node for node in self.nodes if not node.is_alive()]
            try:
                # All at once: each is a seed, and a seed that finds no other waits out its delay.
                for node in dead:
                    node.start()
                self.write()
                self.wait_ready(timeout_s)
            except BaseException:
                for node in dead:
                    node.kill()
                raise

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every node answers CQL and reads from every other."""
        for node in self.nodes:
            node.wait_ready(timeout_s)
        if len(self.nodes) == 1:
            return
        if not poll(self._is_whole, timeout_s):
            raise CassandraError(f"The nodes do not all reach each other after {timeout_s:g} s.")

    def stop(self) -> None:
        """Let all nodes drain and end, and wait for them."""
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.stop()

    def remove(self) -> None:
        """Kill all nodes and remove their data; other files in the folder stay."""
        for node in self.nodes:
            node.kill()
            shutil.rmtree(node.settings.folder, ignore_errors=True)
        for name in ("ring.json", "ring.lock"):
            (self.folder / name).unlink(missing_ok=True)

    def _is_whole(self) -> bool:
        return all(cql.reaches_all(node.host) for node in self.nodes)

    def _require_same(self) -> None:
        """A ring that is there keeps its shape, and while it runs all of its settings."""
        other = type(self).find(self.folder)
        if other is None:
            return
        if other.hosts != self.hosts:
            raise CassandraError(
                f"{self.folder} holds a ring of {len(other.nodes)} on {other.hosts[0]}: "
                "remove it (down --remove) or choose another folder."
            )
        if other.saved() != self.saved() and any(node.is_alive() for node in self.nodes):
            raise CassandraError(
                "The ring is running with another commit log mode, release or way to start: "
                "stop it first (down)."
            )
