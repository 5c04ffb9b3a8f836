"""One PostgreSQL server in a folder of its own."""

import getpass
import hashlib
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "postgres"
HOST: Final = "127.0.0.1"
PORT: Final = 54329
USER: Final = "dueline"
DATABASE: Final = "dueline"
KILLED_S: Final = 5.0
"""Maximum time in which a killed server is gone."""

_DEBIAN: Final = Path("/usr/lib/postgresql")
_PROGRAMS: Final = ("initdb", "pg_ctl", "postgres")
_SETTINGS: Final = {
    "listen_addresses": f"'{HOST}'",
    "unix_socket_directories": "''",
    "max_connections": "600",
    "max_wal_size": "2GB",
    "log_line_prefix": "'%m [%p] '",
}
_FAST: Final = {"fsync": "off", "full_page_writes": "off"}


class PostgresError(Exception):
    """The server cannot be found, installed, started or stopped."""


class Cluster:
    """A server with its data, log and password in one folder.

    Args:
      folder: The folder; by default `.cache/postgres` of the project. If the server's user cannot
        enter that, which root's folders may forbid, one under the temporary folder.
      port: Port on the loopback address; by default as the cluster has it, or PORT.
      is_fast: Whether nothing is flushed to the disk: for tests, not for measurements.
    """

    def __init__(
        self, folder: Path = CACHE, *, port: int | None = None, is_fast: bool = False
    ) -> None:
        self.folder = _reachable(folder)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self._asked_port = port
        self._is_fast = is_fast

    @property
    def port(self) -> int:
        """The port: as asked for, or as the cluster has it."""
        if self._asked_port is not None:
            return self._asked_port
        settings = self.data / "postgresql.auto.conf"
        match = re.search(
            r"^port = (\d+)", settings.read_text() if settings.exists() else "", re.MULTILINE
        )
        return int(match[1]) if match else PORT

    @property
    def url(self) -> str:
        """The URL of the store, with the password."""
        password = (self.folder / "password").read_text().strip()
        return f"postgresql://{USER}:{quote(password)}@{HOST}:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int | None:
        """The server's process; None if it does not run."""
        try:
            number = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            os.kill(number, 0)
        except (OSError, ValueError, IndexError):
            return None
        return number

    def is_ready(self) -> bool:
        """Return whether the server accepts connections."""
        if self.pid is None:
            return False
        command = [str(_program("pg_isready")), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def is_installed(self) -> bool:
        """Return whether the server's programs are on this machine."""
        return _folder_of_programs() is not None

    def is_running(self) -> bool:
        """Return whether the server is installed and accepts connections."""
        return self.is_installed() and self.is_ready()

    def start(self) -> None:
        """Create the cluster if there is none, and start it."""
        if self.is_ready():
            return
        if not (self.data / "PG_VERSION").exists():
            self._create()
        self._settle_port()
        self._start()
        self._make_database()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server, if it runs."""
        if self.pid is not None:
            _run([_program("pg_ctl"), "stop", "-D", self.data, "-m", mode, "-w", "-s"], self.log)

    def kill(self) -> None:
        """Kill the postmaster; its other processes notice that and end."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
            give_up_s = time.monotonic() + KILLED_S
            while self.pid == pid and time.monotonic() < give_up_s:
                time.sleep(0.01)  # its parent has not heard of its end

    def copy(self, folder: Path, port: int) -> "Cluster":
        """Make a replica that follows this server, start it, and have commits wait for it."""
        replica = Cluster(folder, port=port)
        replica.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(replica.folder, _user())
        shutil.copyfile(self.folder / "password", replica.folder / "password")
        _run(
            [
                _program("pg_basebackup"), "-D", replica.data, "-d", self.url, "-X", "stream",
                "-R", "-c", "fast",
            ],
            replica.log,
        )  # fmt: skip
        with (replica.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"port = {port}\n")
        replica._start()
        self._query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._query("SELECT pg_reload_conf()")
        return replica

    def promote(self) -> None:
        """Make a replica the primary, and wait for it."""
        self._query("ALTER SYSTEM RESET synchronous_standby_names")
        _run([_program("pg_ctl"), "promote", "-D", self.data, "-w", "-s"], self.log)

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_hex(16) + "\n")
        if os.geteuid() == 0:
            for path in (self.folder, password):
                shutil.chown(path, _user())
        _run(
            [
                _program("initdb"), "-D", self.data, "-U", USER, "-E", "UTF8", "--locale=C.UTF-8",
                "--auth=scram-sha-256", f"--pwfile={password}",
            ],
            self.log,
        )  # fmt: skip

    def _start(self) -> None:
        _run(
            [_program("pg_ctl"), "start", "-D", self.data, "-l", self.log, "-w", "-t", "60", "-s"],
            self.log,
        )

    def _settle_port(self) -> None:
        wanted = _SETTINGS | (_FAST if self._is_fast else {})
        lines = [f"{name} = {value}" for name, value in wanted.items()]
        settings = self.data / "postgresql.auto.conf"
        text = "\n".join([*lines, f"port = {self.port}"]) + "\n"
        if settings.read_text() != text:
            settings.write_text(text)

    def _make_database(self) -> None:
        query = f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"  # noqa: S608
        if not self._query(query):
            self._query(f"CREATE DATABASE {DATABASE}")

    def _query(self, query: str) -> str:
        environment = {"PGPASSWORD": (self.folder / "password").read_text().strip()}
        place = ["-h", HOST, "-p", str(self.port), "-U", USER, "-d", "postgres"]
        return _run([_program("psql"), *place, "-Atc", query], self.log, environment)


def install() -> None:
    """Install Debian's server, if there is none.

    Raises:
      PostgresError: It cannot be installed here.
    """
    if _folder_of_programs() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PostgresError(
            "There is no PostgreSQL server here. Install it: apt-get install postgresql."
        )
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "postgresql"],
    ):
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment}
        )
    if _folder_of_programs() is None:
        raise PostgresError("The package postgresql brought no server.")


def _folder_of_programs() -> Path | None:
    """Return the folder with the newest server's programs."""
    folders = [path for path in _DEBIAN.glob("*/bin") if _has_all(path)]
    if folders:
        return max(folders, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    on_path = shutil.which("pg_ctl")
    if on_path and _has_all(Path(on_path).resolve().parent):
        return Path(on_path).resolve().parent
    return None


def _has_all(folder: Path) -> bool:
    return all((folder / name).exists() for name in _PROGRAMS)


def _program(name: str) -> Path:
    folder = _folder_of_programs()
    if folder is None:
        raise PostgresError("There is no PostgreSQL server here: start one with up.")
    return folder / name


def _user() -> str:
    """Return the user that runs the server; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PostgresError("PostgreSQL does not run as root, and there is no user postgres or nobody.")


def _reachable(folder: Path) -> Path:
    """Return the folder, or one that the server's user can enter."""
    if os.geteuid() != 0:
        return folder
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    command = ["test", "-x", str(existing)]
    if subprocess.run(command, check=False, user=_user(), extra_groups=[]).returncode == 0:
        return folder
    number = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"dueline-postgres-{number}"


def _run(command: Sequence[object], log: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program as the server's user, and return its output."""
    user = _user() if os.geteuid() == 0 else None
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output="pg_ctl" not in str(command[0]),  # the server keeps its output open
        env={**os.environ, **(environment or {})},
        cwd="/",
        user=user,
        group=pwd.getpwnam(user).pw_gid if user else None,
        extra_groups=[] if user else None,
    )
    if done.returncode != 0:
        name = Path(str(command[0])).name
        raise PostgresError(f"{name} failed: {(done.stderr or '').strip()} See {log}.")
    return (done.stdout or "").strip()
