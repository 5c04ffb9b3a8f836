"""A node as a process.

A node runs in a session of its own and outlives whoever started it; a file holds its process id,
so that a later process finds it, stops it, kills it or pauses it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.cassandra import cql
from tools.cassandra.config import Settings, config_files, daemon_command, nodetool_command
from tools.cassandra.jars import CACHE, CassandraError, fetch_jars, find_java

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
NODETOOL_TIMEOUT_S = 300.0
POLL_S = 0.1


class Node:
    """One Cassandra process.

    Nothing is kept in memory but the settings: two objects for one folder are the same node.
    """

    def __init__(self, settings: Settings, *, cache: Path = CACHE) -> None:
        self.settings = settings
        self._cache = cache

    @property
    def host(self) -> str:
        """The address of this node."""
        return self.settings.host

    @property
    def log(self) -> Path:
        """Everything the process printed, in all its lives."""
        return self.settings.folder / "node.log"

    @property
    def pid(self) -> int | None:
        """The id of the running process, or None.

        Its start time is compared too: after a crash the id may belong to another program.
        """
        try:
            pid, started = (int(word) for word in self._pid_file.read_text().split())
        except (OSError, ValueError):
            return None
        process = _look_up(pid)
        if process is None or process.started != started:
            return None
        if process.has_ended:
            with contextlib.suppress(ChildProcessError):  # Another process may have started it.
                os.waitpid(pid, os.WNOHANG)
            return None
        return pid

    def is_alive(self) -> bool:
        """Whether the process exists, paused or not."""
        return self.pid is not None

    def is_ready(self) -> bool:
        """Whether the node answers CQL now; a paused node does not."""
        return self.is_alive() and cql.answers(self.host)

    def start(self) -> None:
        """Start the process and return at once; nothing happens if it is alive.

        Raises CassandraError: no Linux, no Java, no jars, or a port is taken.
        """
        if self.is_alive():
            return
        _require_linux()
        java, jars = find_java(), self._jars()
        for host, port in self.settings.addresses:
            require_free(host, port)
        self._write_files()
        self.run(daemon_command(self.settings, java=java, jars=jars))

    def run(self, command: Sequence[str]) -> None:
        """Run a command line as the node's process."""
        pid = _spawn(command, self.log)
        process = _look_up(pid)
        assert process is not None, "a child stays visible until it is waited for"
        self._pid_file.write_text(f"{pid} {process.started}\n")

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the node answers CQL.

        Raises CassandraError: the process ended, or the time is over; with the log's last lines.
        """

        def answers() -> bool:
            if not self.is_alive():
                raise CassandraError(self.explain("ended while it was starting"))
            return cql.answers(self.host)

        if not poll(answers, timeout_s):
            raise CassandraError(self.explain(f"did not answer within {timeout_s:g} s"))

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Let the node drain and end (SIGTERM), and wait for it; nothing happens if it is dead.

        A node that does not end in time is killed.
        """
        if self.terminate() and not self._wait_dead(timeout_s):
            self.kill()

    def terminate(self) -> bool:
        """Tell the node to drain and end, and return at once; False when it is dead."""
        heard = self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # A paused process hears nothing.
        return heard

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait until it is gone; nothing happens if it is dead."""
        if self._signal(signal.SIGKILL) and not self._wait_dead(STOP_TIMEOUT_S):
            raise CassandraError(self.explain("did not end after SIGKILL"))

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP): connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def nodetool(self, *arguments: str) -> str:
        """Run nodetool against this node.

        Returns what it printed.

        Raises CassandraError: it failed; with what it said.
        """
        command = nodetool_command(self.settings, arguments, java=find_java(), jars=self._jars())
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=NODETOOL_TIMEOUT_S, check=False
        )
        if answer.returncode != 0:
            said = (answer.stderr or answer.stdout).strip()
            raise CassandraError(f"nodetool {' '.join(arguments)} on {self.host} failed: {said}")
        return answer.stdout

    @property
    def _pid_file(self) -> Path:
        return self.settings.folder / "pid"

    def _jars(self) -> Path:
        return fetch_jars(self._cache, self.settings.version)

    def _write_files(self) -> None:
        self.settings.config.mkdir(parents=True, exist_ok=True)
        (self.settings.folder / "tmp").mkdir(exist_ok=True)
        for name, text in config_files(self.settings).items():
            (self.settings.config / name).write_text(text)

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal; False when there is no process to hear it."""
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def _wait_dead(self, timeout_s: float) -> bool:
        return poll(lambda: not self.is_alive(), timeout_s)

    def explain(self, what: str) -> str:
        """Say what became of the node, with the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines[-12:])
        return f"Node {self.settings.number} ({self.host}) {what}; the end of {self.log}:\n{tail}"


def require_free(host: str, port: int) -> None:
    """Raises CassandraError: another program listens on the address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as taken:
            raise CassandraError(
                f"{host}:{port} is not free ({taken.strerror}): stop the program that listens "
                "there. It may be a Cassandra that was started in another folder."
            ) from taken


def poll(is_so: Callable[[], bool], timeout_s: float) -> bool:
    """Ask until it is so or the time is over; the last answer."""
    end = time.monotonic() + timeout_s
    while not (answer := is_so()) and time.monotonic() < end:
        time.sleep(POLL_S)
    return answer


def _spawn(command: Sequence[str], log: Path) -> int:
    """Run a program in a session of its own, its output added to a file; returns its id."""
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


class _Process(NamedTuple):
    started: int  # in ticks since boot
    has_ended: bool


def _look_up(pid: int) -> _Process | None:
    """What the system says of a process id; None when nobody has it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The fields of proc(5) from 3 on; 2 is the program's name in brackets and may hold spaces.
    fields = text.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # While its other threads end, a process that looks ended still holds its ports.
    return _Process(started, has_ended=state in "ZX" and threads <= 1)


def _require_linux() -> None:
    if not Path("/proc/self/stat").exists():
        raise CassandraError(
            "This tool needs Linux (/proc, and 127.0.0.2 and .3 on loopback); "
            "elsewhere use tools/cassandra/compose.yaml."
        )
